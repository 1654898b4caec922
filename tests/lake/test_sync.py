"""`nftsync lake sync` on a cluster of processes says what a sync into SQLite says."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pandas.testing import assert_frame_equal

import nftsync
from nftsync import frames
from nftsync.lake.bucket import bucket_of
from nftsync.lake.ledger import Ledger, default_buckets
from nftsync.lake.storage import Lake
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.times import now
from tests.kit.lake_cluster import (
    Cluster,
    check_lake,
    cluster_of,
    environment,
    files,
    held,
    rows,
    shifted_clock,
)
from tests.kit.provider import Provider, balances, entry, reply, token, wallet
from tests.kit.worlds import PATIENCE, Outcome, listed
from tests.lake.conftest import BUCKETS, Sync, refused
from tests.lake.lakes import one_file, same_as_sqlite


@pytest.fixture
def world() -> Iterator[SandboxServer]:
    with SandboxServer(lambda url: generate(wallets=24, nfts=5, seed=4, image_base=url)) as server:
        yield server


def exported(lake: Path, statement: str) -> list[tuple[Any, ...]]:
    """Query the database that `nftsync lake export` makes of a lake."""
    path = one_file(str(lake), lake.parent / f"{uuid4()}.db")
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def counts(result: dict[str, Any]) -> dict[str, Any]:
    """What both results say, but for how long it took."""
    own = {"seconds", "run_id", "retries"}
    failures = sorted(result["failures"], key=lambda failure: failure["wallet_id"])
    return {name: x for name, x in result.items() if name not in own} | {"failures": failures}


Both = Callable[..., dict[str, Any]]


@pytest.fixture
def both(lake: Path, sync: Sync, tmp_path: Path) -> Both:
    """Sync into the lake and into a database, which say the same."""
    database = tmp_path / "same.db"

    def run(url: str, wallets: list[str], code: int = 0) -> dict[str, Any]:
        outcome = sync(url, wallets)
        assert outcome.code == code, outcome.err
        found: dict[str, Any] = outcome.json
        result = nftsync.sync(wallets, base_url=url, database=database, retries=1, progress=False)
        assert counts(found) == counts(result.as_dict())
        same_as_sqlite(lake, database)
        check_lake(lake)
        return found

    return run


def test_runs_say_to_the_character_what_the_provider_and_a_sync_into_sqlite_say(
    world: SandboxServer, lake: Path, both: Both
) -> None:
    wallets = world.world.wallets()
    (first, shared), *_ = listed(world.world)
    moved = list(listed(world.world))[1:40:5]
    holders = Counter(token_id for _, token_id in listed(world.world))
    gone = {token_id for _, token_id in moved}
    mine = next(x for _, x in listed(world.world) if holders[x] == 1 and x not in gone)
    ids: dict[tuple[str, int], str] = {}

    def synced() -> dict[str, Any]:
        found = both(world.url, wallets)
        assert held(lake) == listed(world.world)
        numbers = {
            (key, row[key]): row["observed_at"]
            for name, key in (("balance_changes", "change_id"), ("wallet_states", "state_id"))
            for row in rows(lake, name)
        }
        assert numbers.items() >= ids.items()  # no id changes
        ids.update(numbers)
        return found

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
    assert ("New",) in exported(lake, f"SELECT name FROM tokens WHERE token_id = '{minted}'")
    (change,) = rows(lake, "token_changes")
    assert (change["token_id"], json.loads(change["after"])["name"]) == (mine, "Renamed")


def in_buckets(*buckets: int) -> list[str]:
    """Wallets, by the bucket that each is in."""
    every = [wallet(number) for number in range(100)]
    return [next(x for x in every if bucket_of(x, BUCKETS) == bucket) for bucket in buckets]


def test_a_collection_held_in_all_buckets_has_one_name(
    lying: Provider, lake: Path, sync: Sync, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wallets = in_buckets(0, 1)
    named = [
        entry(token(n), metadata={"name": f"Tram #{n}"}, contractAddress="0x" + "aB" * 20)
        for n in range(6)
    ]
    for each, own in zip(wallets, (named[:3], named[3:]), strict=True):
        lying.holds(each, *own)  # too few to guess a name
    assert sync(lying.url, wallets).code == 0
    assert {row["guessed_name"] for row in rows(lake, "contracts")} == {"Tram"}
    before = files(lake)
    (tmp_path / "collections.csv").write_text(f"contract_address,name\n0x{'ab' * 20},Lines\n")
    monkeypatch.setenv("NFTSYNC_COLLECTIONS_FILE", str(tmp_path / "collections.csv"))
    assert sync(lying.url).code == 0
    found = [(row["bucket"], row["file_name"]) for row in rows(lake, "contracts")]
    assert found == [(0, "Lines"), (1, "Lines")]
    assert files(lake) == before
    assert exported(lake, "SELECT DISTINCT collection FROM holdings") == [("Lines",)]
    check_lake(lake)


def test_a_list_in_part_confirms_nothing_that_it_does_not_show(
    lying: Provider, lake: Path, sync: Sync
) -> None:
    """Not even if it was read after another wallet's list, which showed a token anew."""
    first, second = in_buckets(0, 1)
    answered = threading.Event()
    old, new = (
        [entry(token(n), "1", metadata={"name": each}) for n in (1, 2)] for each in ("Old", "New")
    )
    for each in (first, second):
        lying.holds(each, *old)
    assert sync(lying.url, [first, second]).code == 0

    def show(peer: Any) -> bool:
        keep = reply(balances(*new))(peer)
        answered.set()
        return keep

    lying.on(f"/v1/wallets/{first}/nft-balances", show)
    lying.on(  # its second request is newer than the answer to the other
        f"/v1/wallets/{second}/nft-balances",
        lambda peer: answered.wait(PATIENCE) and reply(status=503)(peer),
        reply(balances(old[1], another="field")),
    )
    assert sync(lying.url, None, "--retries", 2).code == 1
    names = exported(lake, "SELECT token_id, name FROM tokens")
    assert sorted(names) == [(token(1), "New"), (token(2), "Old")]
    check_lake(lake)


def test_a_loss_after_five_unchanged_runs_is_judged_as_in_a_database(
    lying: Provider, lake: Path, both: Both
) -> None:
    """A gain that was seen before the last of these runs does not explain it."""
    every = [wallet(number) for number in range(100)]
    losers, gainers = ([x for x in every if bucket_of(x, BUCKETS) == n][:20] for n in (0, 1))
    times = []

    def run(code: int = 0, **shown: list[str]) -> None:
        for each in shown.get("nothing", ()):
            lying.holds(each)
        for number, each in enumerate(shown.get("tokens", ())):
            lying.holds(each, *(entry(token(5 * number + place)) for place in range(5)))
        both(lying.url, [*losers, *gainers], code)
        times.append(now())

    run(tokens=losers, nothing=gainers)
    first = files(lake)
    run(tokens=gainers)
    kept = files(lake)
    assert [x == y for x, y in zip(first, kept, strict=True)] == [True, False]
    for _ in range(5):
        run()
        assert files(lake) == kept
    run(1, nothing=losers)  # held: not transfers to the gainers
    assert len(held(lake)) == 200
    databases = lake.parent / "same.db", one_file(str(lake), lake.parent / "own.db")
    for at in times:
        pair = (frames.holdings(each, as_of=at) for each in databases)
        said = ["wallet_id", "token_id", "amount", "certainty"]
        assert_frame_equal(*(x[said].sort_values(said, ignore_index=True) for x in pair))
    assert_frame_equal(*(frames.freshness(each)[["what", "count"]] for each in databases))
    for each in databases:
        states = frames.wallet_states(each).set_index("wallet_id")["last_read_at"]
        assert states[losers].between(times[5], times[6]).all()


def test_a_bucket_keeps_its_file_until_something_in_it_changes(
    lying: Provider, lake: Path, sync: Sync, command: Callable[..., Outcome], cluster: Cluster
) -> None:
    first, second = in_buckets(0, 1)
    path, lines = f"/v1/wallets/{first}/nft-balances", lake.parent / "lines.csv"
    full = [entry(token(number)) for number in range(120)]
    lying.holds(second, entry(token(1)))

    def kept(code: int, line: str = "Cold,east", *shown: Any) -> list[bool]:
        before = files(lake) if lake.exists() else [None, None]
        lines.write_text(f"wallet_id,label,group\n{first},{line}\n{second},,")
        lying.holds(first, *shown)
        outcome = sync(lying.url, None, "--wallets-file", lines)
        assert outcome.code == code, outcome.said
        check_lake(lake)
        return [x == y for x, y in zip(before, files(lake), strict=True)]

    every, other = [True, True], [False, True]
    assert kept(0, ",", *full) == [False, False]
    assert kept(0, ",", *full) == every
    for line in ("Cold,", "Cold,east"):
        assert kept(0, line, *full) == other
    lying.on(path, reply(b"gone", 404))
    assert kept(1) == other
    lying.on(path)
    held_back: tuple[int, list[Any], list[bool]] = (1, [], other)
    again = (0, full, other)
    for code, shown, expected in (again, (0, full, every), held_back, again, held_back):
        assert kept(code, "Cold,east", *shown) == expected
    before = files(lake)
    accept = ("lake", "removals", "accept", lake, "--yes", "--scheduler", cluster.address)
    assert command(*accept).code == 0
    assert [x == y for x, y in zip(before, files(lake), strict=True)] == other
    assert kept(0) == other  # the approval forgot the answer
    assert kept(0) == every


def test_workers_whose_clocks_and_uptimes_differ_sync_one_lake(
    lying: Provider, lake: Path, sync: Sync, tmp_path: Path
) -> None:
    """No read is stale, no time runs back, and no loss is forgotten."""
    wallets, until = [wallet(number) for number in range(40)], ""
    # From each number on, wallets show three tokens; every second worker is hours and days ahead.
    for amount, first in enumerate((0, 15, 15, 30), start=1):
        for number, each in enumerate(wallets):
            places = range(3 if number >= first else 0)
            lying.holds(each, *(entry(token(3 * number + n), str(amount)) for n in places))
        ahead = shifted_clock(tmp_path, 1, 100) if amount % 2 else {}
        (folder := tmp_path / str(amount)).mkdir()
        with cluster_of(folder, 1, ahead) as own:
            outcome = sync(lying.url, wallets, "--scheduler", own.address)
        assert outcome.code == (amount == 4), outcome.said
        check_lake(lake)
        run_id = outcome.json["run_id"]
        changes = [x for x in rows(lake, "balance_changes") if x["run_id"] == run_id]
        assert min(row["observed_at"] for row in changes) > until
        until = max(row["observed_at"] for row in changes)
    assert Counter(held(lake).values()) == {"3": 45, "4": 30}


def test_the_rate_limit_and_a_not_now_hold_for_all_workers_together(
    lying: Provider, lake: Path, sync: Sync
) -> None:
    wallets = [wallet(number) for number in range(20)]
    for each in wallets:
        lying.holds(each)
    assert sync(lying.url, wallets, "--rate-limit", 20).code == 0
    times = [seen.at for seen in lying.requests()]
    # Each worker may begin with one at once; never sooner, however slow the machine is.
    assert times[-1] - times[0] >= (len(wallets) - 4) / 20
    asked = len(lying.requests())
    first = f"/v1/wallets/{wallets[0]}/nft-balances"
    lying.on(first, reply(b"", 429, retry_after="4"), reply(balances()))
    assert sync(lying.url, wallets, "--rate-limit", 10, "--retries", 3).code == 0
    again = lying.requests()[asked:]
    refused = next(seen.at for seen in again if seen.path == first)
    # What is on its way to the other worker takes a moment.
    assert not [seen for seen in again if refused + 1.5 < seen.at < refused + 4]


def test_a_new_lake_has_a_bucket_per_thousand_wallets_and_the_sync_says_so(
    world: SandboxServer,
    lake: Path,
    cluster: Cluster,
    command: Callable[..., Outcome],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sizes = {0: 4, 4_999: 4, 5_000: 5, 63_999: 63, 10_000_000: 64}
    assert {wallets: default_buckets(wallets) for wallets in sizes} == sizes
    (tmp_path / "wallets.txt").write_text("\n".join(world.world.wallets()[:2]))
    words = ("lake", "sync", lake, "--base-url", world.url, "--scheduler", cluster.address)
    refused(command(*words), 2, "no wallets to read: set --wallets-file")
    refused(command(*words[:3], *words[5:]), 2, "base_url")
    for _ in range(2):
        assert command(*words, "--wallets-file", tmp_path / "wallets.txt").code == 0
    assert [run.buckets for run in Ledger(Lake(str(lake))).runs()] == [4, 4]
    assert [line for line in caplog.messages if "bucket" in line] == [
        (
            "New lake with 4 buckets; --buckets sets another number."
            " To change it later, export the lake, and import it again."
        )
    ]


def test_a_provider_that_refuses_all_is_given_up_whatever_the_number_of_buckets(
    lying: Provider, lake: Path, sync: Sync, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    refused(sync(lying.url, [wallet(0)], to=tmp_path / "file"), 1, str(tmp_path / "file"))
    lying.always(reply(b"no", 401))
    outcome = sync(lying.url, [wallet(number) for number in range(480)], "--buckets", 12)
    assert (outcome.code, outcome.json["status"]) == (1, "failed"), outcome.said
    assert len(lying.requests()) <= 2 * (20 + 16)  # each of two workers gives up by itself
    assert all(run.manifest is None for run in Ledger(Lake(str(lake))).runs())


WITHOUT_THE_EXTRA = """
import importlib.util, sys
extra, find_spec = {"dask", "distributed", "deltalake"}, importlib.util.find_spec
sys.modules.update(dict.fromkeys(extra))
importlib.util.find_spec = lambda name, *more: None if name in extra else find_spec(name, *more)
from nftsync.cli import main
main(sys.argv[1:])
"""


def test_without_the_extra_one_line_says_how_to_get_it_and_others_work(
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
