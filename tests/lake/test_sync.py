"""A `nftsync lake sync` on a cluster of processes equals a sync into a database."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pandas.testing import assert_frame_equal

import nftsync
import nftsync.lake
from nftsync import frames
from nftsync.lake.ledger import default_buckets
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.times import now
from tests.kit.lake_cluster import (
    Cluster,
    Pair,
    check_lake,
    cluster_of,
    command,
    environment,
    files,
    held,
    rows,
    runs_of,
    shifted_clock,
)
from tests.kit.provider import Provider, balances, entry, reply, token, wallet
from tests.kit.worlds import PATIENCE, listed
from tests.lake.conftest import Sync
from tests.lake.lakes import path_of, refused, show, wallets_of

FIRST, SECOND = (wallets_of(bucket, 1)[0] for bucket in (0, 1))


@pytest.fixture
def world() -> Iterator[SandboxServer]:
    with SandboxServer(lambda url: generate(wallets=24, nfts=5, seed=4, image_base=url)) as server:
        yield server


def kept(before: list[str | None], lake: Path | str) -> list[bool]:
    """Return for each bucket whether it has kept its file."""
    return [x == y for x, y in zip(before, files(lake), strict=True)]


def test_runs_equal_a_database_and_the_provider_to_the_character(
    world: SandboxServer, tmp_path: Path, cluster: Cluster
) -> None:
    pair, wallets = Pair(tmp_path, world.url, cluster.address), world.world.wallets()
    lake = pair.lake
    (first, shared), *_ = listed(world.world)
    moved = list(listed(world.world))[1:40:5]
    holders = Counter(token_id for _, token_id in listed(world.world))
    gone = {token_id for _, token_id in moved}
    mine = next(x for _, x in listed(world.world) if holders[x] == 1 and x not in gone)
    ids: dict[tuple[str, int], str] = {}

    def synced() -> Any:
        result = pair.sync(wallets)
        pair.compare()
        assert held(lake) == listed(world.world)
        numbers = {
            (key, row[key]): row["observed_at"]
            for name, key in (("balance_changes", "change_id"), ("wallet_states", "state_id"))
            for row in rows(lake, name)
        }
        assert numbers.items() >= ids.items()  # no id changes
        ids.update(numbers)
        return result

    world.world.set_amount(first, shared, "0007.50")
    synced()
    before = files(lake)
    assert synced()["wallets"]["unchanged"] == len(wallets)
    assert files(lake) == before
    for giver, given in moved:
        taker = wallets[wallets.index(giver) - 5]
        world.world.transfer(giver, taker, given, listed(world.world)[giver, given])
    minted = world.world.mint(wallets[3], 12, {"name": "New"})
    world.world.edit_metadata(mine, {"name": "Renamed"})
    assert synced()["tokens"] == {"added": 1, "changed": 1}
    assert ("New",) in pair.query(pair.copy, f"SELECT name FROM tokens WHERE token_id = '{minted}'")
    (change,) = rows(lake, "token_changes")
    assert (change["token_id"], json.loads(change["after"])["name"]) == (mine, "Renamed")


def test_a_collection_held_in_all_buckets_has_one_name(
    lying: Provider, pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = [
        entry(token(n), metadata={"name": f"Tram #{n}"}, contractAddress="0x" + "aB" * 20)
        for n in range(6)
    ]
    lying.holds(FIRST, *named[:3])  # too few to guess a name
    lying.holds(SECOND, *named[3:])
    pair.sync([FIRST, SECOND])
    assert {row["guessed_name"] for row in rows(pair.lake, "contracts")} == {"Tram"}
    before = files(pair.lake)
    (tmp_path / "collections.csv").write_text(f"contract_address,name\n0x{'ab' * 20},Lines\n")
    monkeypatch.setenv("NFTSYNC_COLLECTIONS_FILE", str(tmp_path / "collections.csv"))
    pair.sync([FIRST, SECOND])
    pair.compare()
    found = [(row["bucket"], row["file_name"]) for row in rows(pair.lake, "contracts")]
    assert (found, files(pair.lake)) == ([(0, "Lines"), (1, "Lines")], before)
    assert pair.query(pair.copy, "SELECT DISTINCT collection FROM holdings") == [("Lines",)]


def test_a_token_in_several_buckets_is_as_the_last_complete_list_showed_it(
    lying: Provider, pair: Pair
) -> None:
    """An incomplete list confirms only its own tokens, even after another wallet's newer list."""

    def tokens(name: str) -> list[dict[str, Any]]:
        return [entry(token(n), metadata={"name": name}) for n in (1, 2)]

    for wallets, name in (([FIRST, SECOND], "Old"), ([SECOND], "New"), ([SECOND], "Newer")):
        for each in wallets:
            lying.holds(each, *tokens(name))
        pair.sync(wallets)
        pair.compare()
    of_lake, of_copy = nftsync.lake.tokens(pair.lake).compute(), frames.tokens(pair.copy)
    assert_frame_equal(*(x.sort_values("token_id", ignore_index=True) for x in (of_lake, of_copy)))
    answered = threading.Event()

    def newest(peer: Any) -> bool:
        keep = reply(balances(*tokens("Newest")))(peer)
        answered.set()
        return keep

    lying.on(path_of(FIRST), newest)
    lying.on(  # its second request is newer than the answer to the other
        path_of(SECOND),
        lambda peer: answered.wait(PATIENCE) and reply(status=503)(peer),
        reply(balances(tokens("Newer")[1], another="field")),
    )
    assert pair.sync_lake("--retries", 2).code == 1
    of_lake = nftsync.lake.tokens(pair.lake).compute()
    assert of_lake.set_index("token_id")["name"].to_dict() == {
        token(1): "Newest",
        token(2): "Newer",
    }
    check_lake(pair.lake)


def test_a_loss_after_five_unchanged_runs_is_held_as_in_a_database(
    lying: Provider, pair: Pair
) -> None:
    """A gain before the last of these runs does not explain it."""
    losers, gainers = wallets_of(0, 20), wallets_of(1, 20)
    times = []

    def run(emptied: list[str], filled: list[str], status: str = "ok") -> None:
        for each in emptied:
            lying.holds(each)
        show(lying, filled, count=5)
        assert pair.sync([*losers, *gainers])["status"] == status
        pair.compare()
        times.append(now())

    run(gainers, losers)
    before = files(pair.lake)
    run([], gainers)
    assert kept(before, pair.lake) == [True, False]
    before = files(pair.lake)
    for _ in range(5):
        run([], [])
        assert files(pair.lake) == before
    of_lake = nftsync.lake.wallet_states(pair.lake).compute()
    of_database = frames.wallet_states(pair.database)
    states = (x.sort_values("wallet_id", ignore_index=True) for x in (of_lake, of_database))
    assert_frame_equal(*(x[["wallet_id", "body_sha256", "reads"]] for x in states))
    run(losers, [], "partial")  # held: no transfers to the gainers
    assert len(held(pair.lake)) == 200
    databases = pair.database, pair.copy
    for at in times:
        pair_of_frames = (frames.holdings(each, as_of=at) for each in databases)
        said = ["wallet_id", "token_id", "amount", "certainty"]
        assert_frame_equal(*(x[said].sort_values(said, ignore_index=True) for x in pair_of_frames))
    assert_frame_equal(*(frames.freshness(each)[["what", "count"]] for each in databases))
    for each in databases:
        last = frames.wallet_states(each).set_index("wallet_id")["last_read_at"]
        assert last[losers].between(times[5], times[6]).all()


def test_a_bucket_keeps_its_file_until_something_in_it_changes(lying: Provider, pair: Pair) -> None:
    full = [entry(token(number)) for number in range(120)]
    lying.holds(SECOND, entry(token(1)))

    def run(line: str = "Cold,east", *shown: Any) -> list[bool]:
        before = files(pair.lake) if pair.began else [None, None]
        lying.holds(FIRST, *shown)
        pair.sync([f"{FIRST},{line}", SECOND])
        pair.compare()
        return kept(before, pair.lake)

    every, other = [True, True], [False, True]
    assert [run(",", *full) for _ in range(2)] == [[False, False], every]
    for line in ("Cold,", "Cold,east"):
        assert run(line, *full) == other
    lying.on(path_of(FIRST), reply(b"gone", 404))
    assert run() == other
    lying.on(path_of(FIRST))
    # Two lists without a token: their removals are held.
    for shown, expected in ((full, other), (full, every), ([], other), (full, other), ([], other)):
        assert run("Cold,east", *shown) == expected
    before = files(pair.lake)
    pair.accept()
    assert kept(before, pair.lake) == other
    assert [run(), run()] == [other, every]  # the approval removed the answer's digest


def test_workers_whose_clocks_and_uptimes_differ_sync_one_lake(
    lying: Provider, lake: Path, sync: Sync, tmp_path: Path
) -> None:
    """No read is stale, no time runs back, and no loss is forgotten."""
    wallets, until = [wallet(number) for number in range(40)], ""
    (folder := tmp_path / "ahead").mkdir()
    with cluster_of(folder, 1, shifted_clock(tmp_path, 1, 100)) as ahead:
        # Each number is of wallets that have become empty; every second run is hours ahead.
        for amount, empty in enumerate((0, 15, 15, 30), start=1):
            show(lying, wallets, str(amount), 3)
            for each in wallets[:empty]:
                lying.holds(each)
            outcome = sync(wallets, *(("--scheduler", ahead.address) if amount % 2 else ()))
            assert outcome.code == (amount == 4), outcome.said
            check_lake(lake)
            run_id = outcome.json["run_id"]
            times = [
                row["observed_at"]
                for row in rows(lake, "balance_changes")
                if row["run_id"] == run_id
            ]
            assert min(times) > until
            until = max(times)
    assert Counter(held(lake).values()) == {"3": 45, "4": 30}


def test_all_workers_share_the_rate_limit_and_a_retry_after(lying: Provider, sync: Sync) -> None:
    wallets = [wallet(number) for number in range(20)]
    show(lying, wallets)
    assert sync(wallets, "--rate-limit", 20).code == 0
    times = [seen.at for seen in lying.requests()]
    # Each worker may begin with one at once; never sooner, however slow the machine is.
    assert times[-1] - times[0] >= (len(wallets) - 4) / 20
    asked, first = len(times), path_of(wallets[0])
    lying.on(first, reply(b"", 429, retry_after="4"), reply(lying.bodies[first]))
    assert sync(wallets, "--rate-limit", 10, "--retries", 3).code == 0
    again = lying.requests()[asked:]
    limited = next(seen.at for seen in again if seen.path == first)
    # A request that is on its way to the other worker takes a moment.
    assert not [seen for seen in again if limited + 1.5 < seen.at < limited + 4]


def test_a_new_lake_has_a_bucket_per_thousand_wallets_and_the_sync_reports_it(
    lying: Provider, lake: Path, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    sizes = {0: 4, 4_999: 4, 5_000: 5, 63_999: 63, 10_000_000: 64}
    assert {wallets: default_buckets(wallets) for wallets in sizes} == sizes
    show(lying, [FIRST])
    Path("wallets.txt").write_text(FIRST)
    where, url = ("--scheduler", cluster.address), ("--base-url", lying.url)
    refused(command("lake", "sync", lake, *where, *url), 2, "no wallets to read")
    refused(command("lake", "sync", lake, *where), 2, "base_url")
    for _ in range(2):
        command("lake", "sync", lake, *where, *url, "--wallets-file", "wallets.txt").says()
    assert [run.buckets for run in runs_of(lake)] == [4, 4]
    (line,) = [line for line in caplog.messages if "bucket" in line]
    assert line.startswith("New lake with 4 buckets; --buckets sets another number.")


def test_drivers_give_up_a_provider_that_refuses_all_whatever_the_number_of_buckets(
    lying: Provider, lake: Path, sync: Sync, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    refused(sync([wallet(0)], to=tmp_path / "file"), 1, str(tmp_path / "file"))
    lying.always(reply(b"no", 401))
    outcome = sync([wallet(number) for number in range(480)], "--buckets", 12)
    assert (outcome.code, outcome.json["status"]) == (1, "failed"), outcome.said
    assert len(lying.requests()) <= 2 * (20 + 16)  # each of two workers gives up on its own
    assert all(run.manifest is None for run in runs_of(lake))


WITHOUT_THE_EXTRA = """
import importlib.util, sys
extra, find_spec = {"dask", "distributed", "deltalake"}, importlib.util.find_spec
sys.modules.update(dict.fromkeys(extra))
importlib.util.find_spec = lambda name, *more: None if name in extra else find_spec(name, *more)
from nftsync.cli import main
main(sys.argv[1:])
"""


def test_without_the_extra_one_line_names_it_and_other_commands_work(
    world: SandboxServer, tmp_path: Path
) -> None:
    database = tmp_path / "own.db"
    nftsync.sync(world.world.wallets()[:1], base_url=world.url, database=database, progress=False)

    def run(*words: str) -> tuple[int, str]:
        code = [sys.executable, "-c", WITHOUT_THE_EXTRA, *words]
        done = subprocess.run(code, env=environment(), capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    code, err = run("lake", "sync", "x", "--base-url", "http://127.0.0.1:9")
    assert (code, err.count("\n")) == (1, 1), err
    assert "lakes need dask, deltalake, distributed; to install: " in err
    assert not (tmp_path / "x").exists()
    assert run("status", "-d", str(database))[0] == 0
