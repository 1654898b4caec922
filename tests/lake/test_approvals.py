"""Removals that a lake holds for review: listed and approved as those of a database."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LedgerTable
from nftsync.lake.storage import Lake
from tests.kit.lake_cluster import Cluster, check_lake, driver, held, rows, versions
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, Outcome, made_once
from tests.lake.conftest import refused
from tests.lake.test_sync import same_as_sqlite

BUCKETS = 2
WALLETS = [wallet(number) for number in range(60)]
EACH = 5
LABELS = {WALLETS[0]: "Treasury", WALLETS[1]: "Cold"}
SOON = ("--takeover-after", "1s")
Command = Callable[..., Outcome]


def lists(provider: Provider, name: str = "Name {}", **fields: Any) -> None:
    """Let each wallet list its tokens; `{}` stands for the number of a token."""
    for number, each in enumerate(WALLETS):
        places = range(EACH * number, EACH * number + EACH)
        named = ({"metadata": {"name": name.format(n)}} | fields for n in places)
        provider.holds(
            each, *(entry(token(n), "2", **x) for n, x in zip(places, named, strict=True))
        )


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
        return self._run(code, ("lake", "sync", self.lake, *new), ("sync",), *more)

    def accept(self, *words: str) -> tuple[Outcome, Outcome]:
        lake = ("lake", "removals", "accept", self.lake)
        return self._run(0, lake, ("removals", "accept"), *words)

    def _run(
        self, code: int, lake: tuple[object, ...], database: tuple[object, ...], *more: object
    ) -> tuple[Outcome, Outcome]:
        outcomes = (
            self.run(*lake, *more, *self.where),
            self.run(*database, *more, "-d", self.database),
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
    lists(provider)
    return provider


def test_removals_held_for_review_are_reported_by_sync_list_and_status(both: Both) -> None:
    """A lake and a database list the same."""
    command = f"lake removals {both.lake}"
    outcome, _ = both.sync(1)
    assert command in outcome.err
    assert len(held(both.lake)) == 60 * EACH
    assert {row["bucket"] for row in rows(both.lake, "removals")} == set(range(BUCKETS))
    assert "nftsync removals" not in outcome.said
    assert all("nftsync" not in (row["error"] or "") for row in rows(both.lake, "wallets"))
    shown = both.run("lake", "removals", both.lake)
    assert shown.code == 0
    assert shown.out.count("no longer listed") == 50
    assert "Treasury" in shown.out
    assert "180 removals held for review (60 % of holdings)" in shown.out
    assert f"lake removals accept {both.lake}" in shown.err
    listed = both.listed()
    assert len(listed) == 36 * EACH
    assert {row["wallet_label"] for row in listed} == {"Treasury", "Cold", None}
    assert {(row["what"], row["old_amount"], row["new_amount"]) for row in listed} == {
        ("no longer listed", "2", None)
    }
    status = both.run("lake", "status", both.lake).out
    assert "180 balances of 36 wallets held for review: " in status
    assert command in status
    found = both.run("lake", "status", both.lake, "--json").json["removals_held"]
    assert (found["wallets"], found["balances"], found["emptied"]) == (36, 180, 0)


def test_approved_removals_are_applied_by_a_run_that_is_pinned(both: Both) -> None:
    """Then earlier removals count no more."""
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
    status = both.run("lake", "status", both.lake)
    assert (status.code, "held for review" in status.out) == (0, False)
    export = both.run("lake", "export", both.lake, both.lake.parent / "copy.db")
    assert export.code == 0, export.err
    outcome, _ = both.accept()
    assert "No removals are held for review." in outcome.err
    assert len(Ledger(Lake(str(both.lake))).runs()) == 3
    for number in range(36, 44):
        both.provider.holds(wallet(number))
    both.sync(0)  # 40 of 120 that are left
    assert len(held(both.lake)) == 16 * EACH
    both.check()


def test_removals_of_single_wallets_are_approved_by_id_or_label(both: Both) -> None:
    """The others still count."""
    both.accept("Treasury", WALLETS[5])
    left = both.listed()
    assert len(left) == 34 * EACH
    assert not {WALLETS[0], WALLETS[5]} & {row["wallet_id"] for row in left}
    assert len(held(both.lake)) == 58 * EACH
    both.check()
    outcome = both.run("lake", "removals", "accept", both.lake, "Nobody", *both.where)
    refused(outcome, 2, "Nobody")
    both.provider.holds(wallet(40))
    both.sync(1)
    assert WALLETS[40] in {row["wallet_id"] for row in both.listed()}
    both.check()


def names_in(both: Both) -> set[str]:
    both.check()
    return {row["name"] for row in rows(both.lake, "tokens")}


def test_replaced_names_and_emptied_metadata_are_held_and_approved_in_all_buckets(
    new: Both,
) -> None:
    """Also in a lake of an earlier version, which gets the column with the next run."""
    lists(new.provider, "Piece {}", contractAddress="0xC0")
    new.sync(0)
    own = names_in(new)
    assert len(own) == EACH * len(WALLETS)
    written_by_an_earlier_version(new.lake)
    assert not new.listed()
    lists(new.provider, "Not found", contractAddress="0xC0")
    new.sync(1)
    assert names_in(new) == own
    held_rows = {(row["what"], row["new_name"]) for row in new.listed()}
    assert held_rows == {("name replaced", "Not found")}
    new.accept("Treasury")
    assert len(names_in(new)) == len(own) - EACH + 1
    new.accept()
    assert not new.listed()
    assert names_in(new) == {"Not found"}
    lists(new.provider, metadata=None, contractAddress="0xC0")
    new.sync(1)
    assert names_in(new) == {"Not found"}
    assert {row["what"] for row in new.listed()} == {"metadata emptied"}
    new.accept()
    assert not new.listed()
    assert names_in(new) == {None}


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


def test_approvals_are_printed_as_json_and_a_dry_run_changes_nothing(both: Both) -> None:
    before = versions(both.lake)
    lake, _ = both.accept("--dry-run", "--json")
    found = lake.json
    assert (found["dry_run"], found["wallets"], found["balances"]) == (True, 36, 180)
    assert len(found["removals"]) == 180
    assert versions(both.lake) == before
    assert len(Ledger(Lake(str(both.lake))).runs()) == 2
    lake, database = both.accept("--yes", "--json", "Cold")
    own = {"removals", "run_id"}
    plain = [{k: v for k, v in x.json.items() if k not in own} for x in (lake, database)]
    assert plain[0] == plain[1]
    assert lake.json["run_id"] == 3
    assert [row["token_id"] for row in lake.json["removals"]] == [
        token(n) for n in range(EACH, 2 * EACH)
    ]


def test_an_approval_beside_a_running_sync_is_refused(both: Both) -> None:
    ledger = Ledger(Lake(str(both.lake)))
    with ledger.heartbeat(ledger.begin("", None, 0.0), 0.4):
        outcome = both.run("lake", "removals", "accept", both.lake, *SOON, *both.where)
    refused(outcome, 75, "another driver")
    assert len(held(both.lake)) == 60 * EACH


def test_an_approval_that_is_stopped_is_applied_as_a_whole_by_the_next(both: Both) -> None:
    ledger, words = Ledger(Lake(str(both.lake))), ("accept", both.lake, "--yes", *SOON, *both.where)
    for runs, number in enumerate((signal.SIGINT, signal.SIGKILL), start=3):
        process = driver(*words, folder=both.lake.parent, command=("lake", "removals"))
        wait_until(lambda p=process, n=runs: len(ledger.runs()) == n or p.poll() is not None)
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
        if ledger.runs()[-1].versions is None:  # else it was sooner
            assert len(held(both.lake)) == 60 * EACH
            assert len(both.run("lake", "removals", both.lake, "--json").json) == 180
    done = both.run("lake", "removals", *words)
    assert done.code == 0, done.err
    assert len(held(both.lake)) == 24 * EACH
    check_lake(both.lake)
