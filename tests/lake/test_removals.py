"""The removal guard of a lake: all buckets together, 24 hours, and approvals as in a database."""

import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

from nftsync.lake.ledger import Ledger
from nftsync.lake.storage import Lake
from tests.kit import lakes
from tests.kit.lake_cluster import Pair, refused, show
from tests.kit.processes import ended, start
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.waiting import wait_until
from tests.kit.worlds import made_once
from tests.kit.worlds import run_command as command

WALLETS = [wallet(number) for number in range(60)]
EACH = 5
LINES = [f"{WALLETS[0]},Treasury,", f"{WALLETS[1]},Cold,", *(f"{x},," for x in WALLETS[2:])]


@pytest.fixture
def emptied(tmp_path, shared, cluster, lying) -> Pair:
    """Both, after most wallets showed an empty list."""

    def make(folder: Path) -> None:
        made = Pair(folder, lying.url, cluster)
        for empty in (0, 36):
            show(lying, WALLETS, "2", EACH, empty)
            made.sync(LINES)

    shutil.copytree(made_once(shared, "emptied", make), tmp_path, dirs_exist_ok=True)
    show(lying, WALLETS, "2", EACH, 36)
    return Pair(tmp_path, lying.url, cluster)


def test_held_removals_are_reported_and_approved_by_runs_that_are_pinned(emptied, lying):
    """All, or of wallets by id or label; approved removals count no more."""
    both, lake = emptied, emptied.lake
    before, stored, asked = lakes.held(lake), lakes.files(lake), len(lying.requests())
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
    assert (len(dry["removals"]), lakes.files(lake)) == (180, stored)
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
    runs = [(run.run_id, run.kind, run.status) for run in lakes.runs_of(lake)]
    assert runs[2:] == [(3, "approval", "ok"), (4, "approval", "ok")]
    assert lakes.held(lake, 2) == before  # earlier runs stay readable
    command("lake", "runs", lake).says("approval: ok")
    assert "held for review" not in command("lake", "status", lake).says().out
    show(lying, WALLETS, "2", EACH, 44)
    both.sync(LINES)  # 40 of the remaining 120
    assert len(lakes.held(lake)) == 16 * EACH
    both.compare()


def test_replaced_names_and_emptied_metadata_are_held_and_approved_in_all_buckets(pair, lying):
    def names() -> set[str | None]:
        pair.compare()
        return {row["name"] for row in lakes.rows(pair.lake, "tokens")}

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


def test_an_approval_beside_a_sync_or_an_interrupted_one_applies_nothing(
    emptied, tmp_path, cluster
):
    lake, ledger = emptied.lake, Ledger(Lake(emptied.lake))
    more = ("--yes", "--scheduler", cluster, "--takeover-after", "1s")
    words = ("lake", "removals", "accept", lake, *more)
    with ledger.heartbeat(ledger.begin("", None, 0.0), 0.4):
        refused(command(*words), 75, "another driver")

    def interrupt(number: int) -> None:
        runs, process = len(ledger.runs()), start(*words, folder=tmp_path)
        wait_until(lambda: len(ledger.runs()) > runs or process.poll() is not None)
        process.send_signal(number)
        ended(process)

    for number in (signal.SIGINT, signal.SIGKILL):
        interrupt(number)
        if ledger.runs()[-1].manifest is None:  # the signal came before the end
            assert len(lakes.held(lake)) == 60 * EACH
            assert len(command("lake", "removals", lake, "--json").json) == 180
    command(*words).says()
    assert len(lakes.held(lake)) == 24 * EACH
    lakes.check_lake(lake)


def editions(provider: Provider, amount: str) -> None:
    """Let each wallet list five of twenty tokens that all share."""
    for number, each in enumerate(WALLETS):
        tokens = (token((number + 4 * place) % 20) for place in range(EACH))
        provider.holds(each, *(entry(one, amount) for one in tokens))


def test_new_wallets_hide_no_loss_of_the_others(lying, lake, sync):
    editions(lying, "5")
    assert sync(WALLETS, "--allow-removals").code == 0  # these wallets are no longer new
    new = [wallet(number) for number in range(100, 100 + 3 * len(WALLETS))]
    show(lying, new, "5", EACH)
    assert sync([*WALLETS, *new]).code == 0
    before = lakes.held(lake)
    for lost in (WALLETS[:40], new):
        editions(lying, "5")
        show(lying, lost, count=0)
        assert (sync().code, lakes.held(lake)) == (1, before)
    lakes.check_lake(lake)


def test_tokens_that_all_wallets_pass_on_or_sweep_into_one_are_transfers(lying, lake, sync):
    every = partial(show, lying, count=EACH)
    for moved in (0, 7):  # most wallets get tokens that their bucket has not seen
        amounts = every([*WALLETS[moved:], *WALLETS[:moved]])
        assert sync(WALLETS).code == 0
        assert lakes.held(lake) == amounts
    show(lying, WALLETS, count=0)
    lying.holds(wallet(700), *(entry(token(number)) for number in range(EACH * len(WALLETS))))
    sync([*WALLETS, wallet(700)]).says()
    assert {wallet_id for wallet_id, _ in lakes.held(lake)} == {wallet(700)}
    lakes.check_lake(lake)
