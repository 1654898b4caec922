"""Removals that a lake holds for review: listed and approved as those of a database."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LedgerTable
from nftsync.lake.storage import Lake
from tests.kit.lake_cluster import Cluster, check_lake, driver, environment, held, rows, versions
from tests.kit.provider import Provider, balances, entry, reply, token, wallet
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, Outcome, made_once
from tests.lake.test_sync import same_as_sqlite

BUCKETS = 4
WALLETS = [wallet(number) for number in range(60)]
EACH = 5
LABELS = {WALLETS[0]: "Treasury", WALLETS[1]: "Cold"}
Command = Callable[..., Outcome]


def lists(provider: Provider, number: int, **fields: Any) -> None:
    metadata = {"metadata": {"name": f"Name {number}"}}
    places = range(EACH * number, EACH * number + EACH)
    provider.holds(wallet(number), *(entry(token(n), "2", **(metadata | fields)) for n in places))


class Both:
    """A lake and a database of the same provider, changed by the same commands."""

    def __init__(self, folder: Path, provider: Provider, cluster: Cluster, run: Command) -> None:
        self.lake, self.database = folder / "lake", folder / "same.db"
        self.provider, self.cluster, self.run = provider, cluster, run
        self._file = folder / "wallets.csv"
        lines = [f"{each},{LABELS.get(each, '')}" for each in WALLETS]
        self._file.write_text("\n".join(["wallet_id,label", *lines]))

    @property
    def where(self) -> tuple[object, ...]:
        return "--scheduler", self.cluster.address

    def sync(self, code: int) -> tuple[Outcome, Outcome]:
        more = ("--wallets-file", self._file, "--base-url", self.provider.url, "--retries", 1)
        new = () if self.lake.exists() else ("--buckets", BUCKETS)
        outcomes = (
            self.run("lake", "sync", self.lake, *more, *new, *self.where),
            self.run("sync", *more, "-d", self.database),
        )
        assert [each.code for each in outcomes] == [code, code], outcomes
        return outcomes

    def accept(self, *words: str, code: int = 0) -> tuple[Outcome, Outcome]:
        outcomes = (
            self.run("lake", "removals", "accept", self.lake, *words, *self.where),
            self.run("removals", "accept", *words, "-d", self.database),
        )
        assert [each.code for each in outcomes] == [code, code], outcomes
        return outcomes

    def listed(self) -> list[dict[str, Any]]:
        """What both list, which is the same."""
        found: list[list[dict[str, Any]]] = []
        for words in (("lake", "removals", self.lake), ("removals", "-d", self.database)):
            outcome = self.run(*words, "--json")
            assert outcome.code == 0, outcome
            own = {"observed_at", "run_id", "webhook_id"}
            plain = [{k: v for k, v in row.items() if k not in own} for row in outcome.json]
            found.append(sorted(plain, key=lambda row: (row["wallet_id"], row["token_id"])))
        assert found[0] == found[1]
        return found[0]

    def check(self) -> None:
        same_as_sqlite(self.lake, self.database)
        check_lake(self.lake)


@pytest.fixture
def new(tmp_path: Path, provider: Provider, cluster: Cluster, command: Command) -> Both:
    """Neither is there yet."""
    return Both(tmp_path, provider, cluster, command)


@pytest.fixture
def both(new: Both, tmp_path: Path, shared: Path) -> Both:
    """Both, after most wallets showed an empty list."""

    def show_empty_lists() -> None:
        for number in range(36):
            new.provider.holds(wallet(number))

    def make(folder: Path) -> None:
        made = Both(folder, new.provider, new.cluster, new.run)
        made.sync(0)
        show_empty_lists()
        made.sync(1)

    shutil.copytree(made_once(shared, "both", make), tmp_path, dirs_exist_ok=True)
    show_empty_lists()
    return new


@pytest.fixture
def provider(provider: Provider) -> Provider:
    for number in range(len(WALLETS)):
        lists(provider, number)
    return provider


def test_a_sync_that_holds_removals_names_the_command_that_lists_them(both: Both) -> None:
    outcome, _ = both.sync(1)
    assert f"lake removals {both.lake}" in outcome.err
    assert "nftsync removals" not in outcome.said
    assert all("nftsync" not in (row["error"] or "") for row in rows(both.lake, "wallets"))
    shown = both.run("lake", "removals", both.lake)
    assert shown.code == 0
    assert shown.out.count("no longer listed") == 50
    assert "Treasury" in shown.out
    assert "180 removals held for review (60 % of holdings)" in shown.err
    assert f"lake removals accept {both.lake}" in shown.err


def test_a_lake_and_a_database_list_the_same_removals(both: Both) -> None:
    found = both.listed()
    assert len(found) == 36 * EACH
    assert {row["wallet_label"] for row in found} == {"Treasury", "Cold", None}
    assert {(row["what"], row["old_amount"], row["new_amount"]) for row in found} == {
        ("no longer listed", "2", None)
    }


def test_status_reports_removals_held_for_review(both: Both) -> None:
    status = both.run("lake", "status", both.lake)
    assert "180 balances of 36 wallets held for review: " in status.out
    assert f"lake removals {both.lake}" in status.out
    found = both.run("lake", "status", both.lake, "--json").json["removals_held"]
    assert (found["wallets"], found["balances"], found["emptied"]) == (36, 180, 0)
    both.accept()
    assert "held for review" not in both.run("lake", "status", both.lake).out


def test_approved_removals_are_applied_by_a_run_that_is_pinned(both: Both) -> None:
    asked = len(both.provider.requests())
    before = held(both.lake), versions(both.lake)
    outcome, _ = both.accept()
    assert "180 balances of 36 wallets" in outcome.err
    assert len(both.provider.requests()) == asked
    assert len(held(both.lake)) == 24 * EACH
    assert not both.listed()
    assert not rows(both.lake, "removals")
    both.check()
    last = Ledger(Lake(str(both.lake))).runs()[-1]
    assert (last.kind, last.status, last.run_id) == ("approval", "ok", 3)
    assert last.counts.balances_removed == 180
    assert held(both.lake, before[1]) == before[0]  # runs before it can still be read
    assert "approval: ok" in both.run("lake", "runs", both.lake).out
    both.sync(0)
    both.check()


def test_removals_of_single_wallets_are_approved_by_id_or_label(both: Both) -> None:
    both.accept("Treasury", WALLETS[5])
    left = both.listed()
    assert len(left) == 34 * EACH
    assert not {WALLETS[0], WALLETS[5]} & {row["wallet_id"] for row in left}
    assert len(held(both.lake)) == 58 * EACH
    both.check()
    outcome = both.run("lake", "removals", "accept", both.lake, "Nobody", *both.where)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome
    assert "Nobody" in outcome.err


def test_after_an_approval_of_all_earlier_removals_count_no_more(both: Both) -> None:
    both.accept()
    for number in range(36, 44):
        both.provider.holds(wallet(number))
    both.sync(0)  # 40 of 120 that are left
    assert len(held(both.lake)) == 16 * EACH
    both.check()


def test_after_an_approval_of_some_the_others_still_count(both: Both) -> None:
    both.accept("Treasury")
    both.provider.holds(wallet(40))
    both.sync(1)
    assert WALLETS[40] in {row["wallet_id"] for row in both.listed()}
    both.check()


def test_emptied_metadata_is_approved_in_all_buckets(new: Both) -> None:
    new.sync(0)
    for number in range(len(WALLETS)):
        lists(new.provider, number, metadata=None)
    new.sync(1)
    assert {row["what"] for row in new.listed()} == {"metadata emptied"}
    new.accept()
    assert not new.listed()
    assert {row["name"] for row in rows(new.lake, "tokens")} == {None}
    new.check()


def names(provider: Provider, name: str) -> None:
    """Name all tokens of one contract; `{}` stands for the number of a token."""
    for number in range(len(WALLETS)):
        places = range(EACH * number, EACH * number + EACH)
        listed = (
            entry(token(n), "2", contractAddress="0xC0", metadata={"name": name.format(n)})
            for n in places
        )
        provider.holds(wallet(number), *listed)


def names_in(both: Both) -> set[str]:
    both.check()
    return {row["name"] for row in rows(both.lake, "tokens")}


def test_a_name_that_replaces_all_others_is_held_and_approved(new: Both) -> None:
    """Also in a lake of an earlier version, which gets the column with the next run."""
    names(new.provider, "Piece {}")
    new.sync(0)
    own = names_in(new)
    assert len(own) == EACH * len(WALLETS)
    written_by_an_earlier_version(new.lake)
    assert not new.listed()
    names(new.provider, "Not found")
    for _ in range(2):
        new.sync(1)
        assert names_in(new) == own
    held_rows = {(row["what"], row["new_name"]) for row in new.listed()}
    assert held_rows == {("name replaced", "Not found")}
    new.accept("Treasury")
    assert len(names_in(new)) == len(own) - EACH + 1
    new.accept()
    assert not new.listed()
    assert names_in(new) == {"Not found"}
    new.sync(0)
    assert names_in(new) == {"Not found"}


def written_by_an_earlier_version(lake: Path) -> None:
    """Let the pinned table of removals lack its newest column."""
    table = DeltaTable(str(lake / "removals"))
    schema = pa.schema([x for x in pa.schema(table.schema()) if x.name != "new_name"])
    empty = schema.empty_table()
    write_deltalake(table, empty, mode="overwrite", schema_mode="overwrite")
    ledger = LedgerTable(Lake(str(lake)))
    entry_of_run, runs = ledger.open()
    assert runs[-1].versions is not None
    runs[-1].versions["removals"] = table.version()
    ledger.write(entry_of_run, runs)


def test_a_dry_run_changes_nothing(both: Both) -> None:
    before = versions(both.lake)
    lake, _ = both.accept("--dry-run", "--json")
    found = lake.json
    assert (found["dry_run"], found["wallets"], found["balances"]) == (True, 36, 180)
    assert len(found["removals"]) == 180
    assert versions(both.lake) == before
    assert len(Ledger(Lake(str(both.lake))).runs()) == 2


def test_approved_removals_are_printed_as_json(both: Both) -> None:
    lake, database = both.accept("--yes", "--json", "Cold")
    own = {"removals", "run_id"}
    plain = [{k: v for k, v in x.json.items() if k not in own} for x in (lake, database)]
    assert plain[0] == plain[1]
    assert lake.json["run_id"] == 3
    assert [row["token_id"] for row in lake.json["removals"]] == [
        token(n) for n in range(EACH, 2 * EACH)
    ]


def test_without_removals_nothing_is_run(both: Both) -> None:
    both.accept()
    outcome, _ = both.accept()
    assert "No removals are held for review." in outcome.err
    assert len(Ledger(Lake(str(both.lake))).runs()) == 3


def test_an_approval_beside_a_running_sync_is_refused(both: Both, tmp_path: Path) -> None:
    go = threading.Event()
    path = f"/v1/wallets/{WALLETS[50]}/nft-balances"
    both.provider.on(path, lambda peer: not go.wait(PATIENCE) or reply(balances())(peer))
    asked = len(both.provider.requests(path))
    arguments = (both.lake, "--base-url", both.provider.url, *both.where)
    process = driver(*arguments, "--takeover-after", "4s", folder=tmp_path)
    try:
        wait_until(lambda: len(both.provider.requests(path)) > asked)
        outcome = both.run(
            *("lake", "removals", "accept", both.lake, "--takeover-after", "4s"), *both.where
        )
        assert (outcome.code, outcome.err.count("\n")) == (75, 1), outcome
        assert "another driver is at work" in outcome.err
    finally:
        go.set()
        process.communicate(timeout=PATIENCE)
    assert len(held(both.lake)) == 60 * EACH


def accepting(both: Both, tmp_path: Path) -> subprocess.Popen[str]:
    words = ("lake", "removals", "accept", both.lake, "--takeover-after", "2s", *both.where)
    return subprocess.Popen(
        [sys.executable, "-m", "nftsync", *map(str, words)],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_approval_that_is_stopped_is_applied_as_a_whole_by_the_next(
    number: int, both: Both, tmp_path: Path
) -> None:
    ledger = Ledger(Lake(str(both.lake)))
    process = accepting(both, tmp_path)
    wait_until(lambda: len(ledger.runs()) == 3)
    process.send_signal(number)
    process.communicate(timeout=PATIENCE)
    if ledger.runs()[-1].versions is None:  # else it was sooner
        assert len(held(both.lake)) == 60 * EACH
        assert len(json.loads(both.run("lake", "removals", both.lake, "--json").out)) == 180
    done = accepting(both, tmp_path)
    _, err = done.communicate(timeout=PATIENCE)
    assert done.returncode == 0, err
    assert len(held(both.lake)) == 24 * EACH
    check_lake(both.lake)


def test_what_a_database_holds_can_be_approved_in_the_lake_it_becomes(
    both: Both, tmp_path: Path, command: Command
) -> None:
    copy = tmp_path / "copy"
    assert both.run("lake", "import", both.database, copy, "--buckets", 3).code == 0
    outcome = both.run("lake", "removals", "accept", copy, *both.where)
    assert outcome.code == 0, outcome
    assert len(held(copy)) == 24 * EACH
    check_lake(copy)


def test_a_lake_that_is_none_is_reported_in_one_line(command: Command, tmp_path: Path) -> None:
    for words in ((tmp_path / "none",), ("accept", tmp_path / "none")):
        outcome = command("lake", "removals", *words)
        assert (outcome.code, outcome.err.count("\n")) == (1, 1), outcome
        assert not (tmp_path / "none").exists()
