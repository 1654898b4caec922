"""Removals that a lake holds for review: listed and approved as those of a database."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nftsync.lake.ledger import Ledger
from nftsync.lake.storage import Lake
from tests.kit.lake_cluster import Cluster, check_lake, driver, files, held, rows
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import PATIENCE, Outcome, made_once
from tests.lake.conftest import BUCKETS, refused
from tests.lake.lakes import same_as_sqlite

WALLETS = [wallet(number) for number in range(60)]
EACH = 5
LABELS = {WALLETS[0]: "Treasury", WALLETS[1]: "Cold"}
Command = Callable[..., Outcome]


def lists(provider: Provider, name: str = "Name {}", **fields: Any) -> None:
    """Let each wallet list its tokens; `{}` stands for the number of a token."""
    for number, each in enumerate(WALLETS):
        own = [(n, {"metadata": {"name": name.format(n)}} | fields) for n in places(number)]
        provider.holds(each, *(entry(token(n), "2", **more) for n, more in own))


def places(number: int) -> range:
    return range(EACH * number, EACH * number + EACH)


class Both:
    """A lake and a database of the same provider, changed by the same commands."""

    def __init__(self, provider: Provider, cluster: Cluster, run: Command, folder: Path) -> None:
        self.lake, self.database, self.run = folder / "lake", folder / "same.db", run
        self.where = ("--scheduler", cluster.address, "--takeover-after", "1s")
        lines = "\n".join(f"{each},{LABELS.get(each, '')}" for each in WALLETS)
        (folder / "wallets.csv").write_text(f"wallet_id,label\n{lines}")
        self._more = ("--wallets-file", folder / "wallets.csv", "--base-url", provider.url)

    def sync(self, code: int) -> Outcome:
        new = () if self.lake.exists() else ("--buckets", BUCKETS)
        words = ("lake", "sync", self.lake, *new)
        return self._run(code, words, ("sync",), *self._more, "--retries", 1)[0]

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
            own = {"observed_at", "run_id", "webhook_id"}
            listed = self.run(*words, "--json").json
            plain = [{k: v for k, v in row.items() if k not in own} for row in listed]
            found.append(sorted(plain, key=lambda row: (row["wallet_id"], row["token_id"])))
        assert found[0] == found[1]
        return found[0]

    def names(self) -> set[str | None]:
        same_as_sqlite(self.lake, self.database)
        check_lake(self.lake)
        return {row["name"] for row in rows(self.lake, "tokens")}


@pytest.fixture
def make(provider: Provider, cluster: Cluster, command: Command) -> Callable[[Path], Both]:
    """Neither is there yet."""
    return partial(Both, provider, cluster, command)


@pytest.fixture
def both(make: Callable[[Path], Both], provider: Provider, tmp_path: Path, shared: Path) -> Both:
    """Both, after most wallets showed an empty list."""

    def show_empty_lists() -> None:
        lists(provider)
        for each in WALLETS[:36]:
            provider.holds(each)

    def made(folder: Path) -> None:
        lists(provider)
        both = make(folder)
        both.sync(0)
        show_empty_lists()
        both.sync(1)

    shutil.copytree(made_once(shared, "both", made), tmp_path, dirs_exist_ok=True)
    show_empty_lists()
    return make(tmp_path)


def test_removals_held_for_review_are_reported_by_sync_list_and_status(both: Both) -> None:
    """A lake and a database list the same."""
    command = f"lake removals {both.lake}"
    outcome = both.sync(1)
    assert command in outcome.err
    assert "nftsync removals" not in outcome.said
    assert len(held(both.lake)) == 60 * EACH
    shown = both.run("lake", "removals", both.lake)
    shown.says("180 removals held for review (60 % of holdings)", f"accept {both.lake}")
    assert shown.out.count("no longer listed") == 50
    listed = both.listed()
    assert len(listed) == 36 * EACH
    assert {row["wallet_label"] for row in listed} == {"Treasury", "Cold", None}
    assert {(row["what"], row["old_amount"], row["new_amount"]) for row in listed} == {
        ("no longer listed", "2", None)
    }
    status = both.run("lake", "status", both.lake)
    status.says("180 balances of 36 wallets held for review: ", command)
    found = both.run("lake", "status", both.lake, "--json").json["removals_held"]
    assert (found["wallets"], found["balances"], found["emptied"]) == (36, 180, 0)


def test_approved_removals_are_applied_by_a_run_that_is_pinned(
    both: Both, provider: Provider
) -> None:
    """All, or those of single wallets by id or label; what was approved counts no more."""
    asked, before, stored = len(provider.requests()), held(both.lake), files(both.lake)
    dry = both.accept("--dry-run", "--json")[0].json
    assert (dry["dry_run"], dry["wallets"], dry["balances"]) == (True, 36, 180)
    assert (len(dry["removals"]), files(both.lake)) == (180, stored)
    refused(both.run("lake", "removals", "accept", both.lake, "Nobody", *both.where), 2, "Nobody")
    results = [each.json for each in both.accept("--yes", "--json", "Treasury", WALLETS[5])]
    removed = results[0]["removals"]
    assert [row["token_id"] for row in removed] == [token(n) for k in (0, 5) for n in places(k)]
    own = {"removals", "run_id"}
    plain = [{k: v for k, v in result.items() if k not in own} for result in results]
    assert plain[0] == plain[1]
    assert not {WALLETS[0], WALLETS[5]} & {row["wallet_id"] for row in both.listed()}
    both.names()
    assert "170 balances of 34 wallets" in both.accept()[0].err
    assert "No removals are held for review." in both.accept()[0].err
    assert not both.listed()
    assert len(provider.requests()) == asked
    runs = [(run.run_id, run.kind, run.status) for run in Ledger(Lake(str(both.lake))).runs()]
    assert runs[2:] == [(3, "approval", "ok"), (4, "approval", "ok")]
    assert held(both.lake, 2) == before  # runs before it can still be read
    both.run("lake", "runs", both.lake).says("approval: ok")
    assert "held for review" not in both.run("lake", "status", both.lake).says().out
    for each in WALLETS[36:44]:
        provider.holds(each)
    both.sync(0)  # 40 of 120 that are left
    assert len(held(both.lake)) == 16 * EACH
    both.names()


def test_replaced_names_and_emptied_metadata_are_held_and_approved_in_all_buckets(
    make: Callable[[Path], Both], provider: Provider, tmp_path: Path
) -> None:
    both = make(tmp_path)
    lists(provider, "Piece {}", contractAddress="0xC0")
    both.sync(0)
    own = both.names()
    assert len(own) == EACH * len(WALLETS)
    lists(provider, "Not found", contractAddress="0xC0")
    both.sync(1)
    assert both.names() == own
    assert {(x["what"], x["new_name"]) for x in both.listed()} == {("name replaced", "Not found")}
    both.accept("Treasury")
    assert len(both.names()) == len(own) - EACH + 1
    both.accept()
    assert both.names() == {"Not found"}
    lists(provider, metadata=None, contractAddress="0xC0")
    both.sync(1)
    assert both.names() == {"Not found"}
    assert {row["what"] for row in both.listed()} == {"metadata emptied"}
    both.accept()
    assert not both.listed()
    assert both.names() == {None}


def test_an_approval_beside_a_sync_is_refused_and_one_that_is_stopped_is_repeated(
    both: Both,
) -> None:
    ledger, words = Ledger(Lake(str(both.lake))), ("accept", both.lake, "--yes", *both.where)
    with ledger.heartbeat(ledger.begin("", None, 0.0), 0.4):
        refused(both.run("lake", "removals", *words), 75, "another driver")
    for runs, number in enumerate((signal.SIGINT, signal.SIGKILL), start=4):
        process = driver(*words, folder=both.lake.parent, command=("lake", "removals"))
        while len(ledger.runs()) < runs and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
        if ledger.runs()[-1].manifest is None:  # else it was sooner
            assert len(held(both.lake)) == 60 * EACH
            assert len(both.run("lake", "removals", both.lake, "--json").json) == 180
    both.run("lake", "removals", *words).says()
    assert len(held(both.lake)) == 24 * EACH
    check_lake(both.lake)
