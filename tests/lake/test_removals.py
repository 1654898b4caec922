"""The removal guard of a lake: all buckets together, 24 hours, and approvals as in a database."""

from __future__ import annotations

import shutil
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from nftsync.lake.ledger import Ledger
from nftsync.lake.storage import Lake
from tests.kit.lake_cluster import (
    Cluster,
    Pair,
    check_lake,
    command,
    ended,
    files,
    held,
    rows,
    runs_of,
    start,
)
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import made_once
from tests.lake.conftest import Sync
from tests.lake.lakes import refused, show

WALLETS = [wallet(number) for number in range(60)]
EACH = 5
LINES = [f"{WALLETS[0]},Treasury,", f"{WALLETS[1]},Cold,", *(f"{x},," for x in WALLETS[2:])]


# Approvals ----------------------------------------------------------------------------------------


def show_some(provider: Provider, empty: int = 36) -> None:
    show(provider, WALLETS, "2", EACH)
    for each in WALLETS[:empty]:
        provider.holds(each)


@pytest.fixture
def emptied(tmp_path: Path, shared: Path, cluster: Cluster, lying: Provider) -> Pair:
    """Both, after most wallets showed an empty list."""

    def make(folder: Path) -> None:
        made = Pair(folder, lying.url, cluster.address)
        for empty in (0, 36):
            show_some(lying, empty)
            made.sync(LINES)

    shutil.copytree(made_once(shared, "emptied", make), tmp_path, dirs_exist_ok=True)
    show_some(lying)
    return Pair(tmp_path, lying.url, cluster.address)


def test_held_removals_are_reported_and_approved_by_runs_that_are_pinned(
    emptied: Pair, lying: Provider
) -> None:
    """All, or of wallets by id or label; approved removals count no more."""
    both, lake = emptied, emptied.lake
    before, stored, asked = held(lake), files(lake), len(lying.requests())
    assert len(before) == 60 * EACH
    shown = command("lake", "removals", lake)
    shown.says("180 removals held for review (60 % of holdings)", f"accept {lake}")
    assert shown.out.count("no longer listed") == 50
    listed = both.removals()
    assert len(listed) == 36 * EACH
    assert {row["wallet_label"] for row in listed} == {"Treasury", "Cold", None}
    status = command("lake", "status", lake)
    status.says("180 balances of 36 wallets held for review: ", f"lake removals {lake}")
    found = command("lake", "status", lake, "--json").json["removals_held"]
    assert (found["wallets"], found["balances"], found["emptied"]) == (36, 180, 0)
    dry = both.accept("--dry-run")[0]
    assert (dry["dry_run"], dry["wallets"], dry["balances"]) == (True, 36, 180)
    assert (len(dry["removals"]), files(lake)) == (180, stored)
    refused(command("lake", "removals", "accept", lake, "Nobody"), 2, "Nobody")
    results = both.accept("Treasury", WALLETS[5])
    own = [token(EACH * number + place) for number in (0, 5) for place in range(EACH)]
    assert [row["token_id"] for row in results[0]["removals"]] == own
    plain = [{k: v for k, v in x.items() if k not in {"removals", "run_id"}} for x in results]
    assert plain[0] == plain[1]
    assert not {WALLETS[0], WALLETS[5]} & {row["wallet_id"] for row in both.removals()}
    both.compare()
    assert both.accept()[0]["balances"] == 170
    assert both.accept()[0]["balances"] == 0
    assert both.removals() == []
    assert len(lying.requests()) == asked
    runs = [(run.run_id, run.kind, run.status) for run in runs_of(lake)]
    assert runs[2:] == [(3, "approval", "ok"), (4, "approval", "ok")]
    assert held(lake, 2) == before  # earlier runs stay readable
    command("lake", "runs", lake).says("approval: ok")
    assert "held for review" not in command("lake", "status", lake).says().out
    show_some(lying, 44)
    both.sync(LINES)  # 40 of the remaining 120
    assert len(held(lake)) == 16 * EACH
    both.compare()


def test_replaced_names_and_emptied_metadata_are_held_and_approved_in_all_buckets(
    pair: Pair, lying: Provider
) -> None:
    def names() -> set[str | None]:
        pair.compare()
        return {row["name"] for row in rows(pair.lake, "tokens")}

    for number, each in enumerate(WALLETS):
        own = range(EACH * number, EACH * number + EACH)
        lying.holds(each, *(entry(token(n), metadata={"name": f"Piece {n}"}) for n in own))
    pair.sync(LINES)
    whole = names()
    assert len(whole) == EACH * len(WALLETS)
    show(lying, WALLETS, count=EACH, metadata={"name": "Not found"})
    pair.sync(LINES)
    assert names() == whole
    assert {x["what"] for x in pair.removals()} == {"name replaced"}
    pair.accept("Treasury")
    assert len(names()) == len(whole) - EACH + 1
    pair.accept()
    show(lying, WALLETS, count=EACH, metadata=None)
    pair.sync(LINES)
    assert names() == {"Not found"}
    assert {row["what"] for row in pair.removals()} == {"metadata emptied"}
    pair.accept()
    assert (pair.removals(), names()) == ([], {None})


def test_an_approval_beside_a_sync_is_refused_and_an_interrupted_one_applies_nothing(
    emptied: Pair, tmp_path: Path, cluster: Cluster
) -> None:
    lake, ledger = emptied.lake, Ledger(Lake(emptied.lake))
    more = ("--yes", "--scheduler", cluster.address, "--takeover-after", "1s")
    words = ("lake", "removals", "accept", lake, *more)
    with ledger.heartbeat(ledger.begin("", None, 0.0), 0.4):
        refused(command(*words), 75, "another driver")
    for number in (signal.SIGINT, signal.SIGKILL):
        runs, process = len(ledger.runs()), start(*words, folder=tmp_path)
        while len(ledger.runs()) == runs and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        ended(process)
        if ledger.runs()[-1].manifest is None:  # the signal came before the end
            assert len(held(lake)) == 60 * EACH
            assert len(command("lake", "removals", lake, "--json").json) == 180
    command(*words).says()
    assert len(held(lake)) == 24 * EACH
    check_lake(lake)


# The removal guard --------------------------------------------------------------------------------


def editions(provider: Provider, amount: str) -> None:
    """Let each wallet list five of twenty tokens that all share."""
    for number, each in enumerate(WALLETS):
        tokens = (token((number + 4 * place) % 20) for place in range(EACH))
        provider.holds(each, *(entry(one, amount) for one in tokens))


def test_new_wallets_hide_no_loss_of_the_others(lying: Provider, lake: Path, sync: Sync) -> None:
    editions(lying, "5")
    assert sync(WALLETS, "--allow-removals").code == 0  # these wallets are no longer new
    new = [wallet(number) for number in range(100, 100 + 3 * len(WALLETS))]
    show(lying, new, "5", EACH)
    assert sync([*WALLETS, *new]).code == 0
    before = held(lake)
    for lost in (WALLETS[:40], new):
        editions(lying, "5")
        for each in lost:
            lying.holds(each)
        assert (sync().code, held(lake)) == (1, before)
    check_lake(lake)


def test_amounts_that_fall_in_steps_are_held_below_half(
    lying: Provider, lake: Path, sync: Sync
) -> None:
    for amount, more, code, kept in (
        *(("5", (), 0, "5"), ("3", (), 0, "3"), ("2", (), 1, "3"), ("2", (), 1, "3")),
        *(("2", ("--allow-removals",), 0, "2"), ("1", (), 0, "1")),  # half of the approved amount
    ):
        editions(lying, amount)
        assert sync(WALLETS, *more).code == code
        assert set(held(lake).values()) == {kept}
    check_lake(lake)


def test_tokens_that_all_wallets_pass_on_or_sweep_into_one_are_transfers(
    lying: Provider, lake: Path, sync: Sync
) -> None:
    every = partial(show, lying, count=EACH)
    for moved in (0, 7):  # most wallets get tokens that their bucket has not seen
        amounts = every([*WALLETS[moved:], *WALLETS[:moved]])
        assert sync(WALLETS).code == 0
        assert held(lake) == amounts
    for each in WALLETS:
        lying.holds(each)
    lying.holds(wallet(700), *(entry(token(number)) for number in range(EACH * len(WALLETS))))
    sync([*WALLETS, wallet(700)]).says()
    assert {wallet_id for wallet_id, _ in held(lake)} == {wallet(700)}
    check_lake(lake)
