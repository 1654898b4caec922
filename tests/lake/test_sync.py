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

import pytest

import nftsync
from nftsync.lake.ledger import Ledger
from nftsync.lake.rows import bucket_of, default_buckets
from nftsync.lake.storage import Lake
from nftsync.records import CONTENT_COLUMNS
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.lake_cluster import (
    Cluster,
    check_lake,
    environment,
    held,
    rows,
    versions,
)
from tests.kit.provider import Provider, Sender, balances, entry, reply, token, wallet
from tests.kit.worlds import PATIENCE, Outcome, listed, mirrored
from tests.lake.conftest import BUCKETS, Sync, refused


@pytest.fixture
def world() -> Iterator[SandboxServer]:
    with SandboxServer(lambda url: generate(wallets=24, nfts=5, seed=4, image_base=url)) as server:
        yield server


def content(lake: Path) -> dict[str, tuple[Any, ...]]:
    return {
        row["token_id"]: tuple(row[name] for name in CONTENT_COLUMNS)
        for row in rows(lake, "tokens")
    }


def queried(database: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(statement).fetchall()


def counts(result: dict[str, Any]) -> dict[str, Any]:
    """What both results say, but for how long it took."""
    own = {"seconds", "run_id", "retries"}
    found = {name: value for name, value in result.items() if name not in own}
    return found | {
        "failures": sorted(result["failures"], key=lambda failure: failure["wallet_id"])
    }


SAME = {
    "tokens": ("token_id", *CONTENT_COLUMNS),
    "wallets": ("wallet_id", "status", "error"),
    "wallet_states": ("wallet_id", "reads"),
    "balance_changes": ("wallet_id", "token_id", "old_amount", "new_amount", "baseline"),
    "token_changes": ("token_id", "before", "after"),
    "contracts": ("contract", "guessed_name"),
}


def same_as_sqlite(lake: Path, database: Path) -> None:
    """A lake and a SQLite file say the same."""
    assert held(lake) == mirrored(database)
    pinned = versions(lake)
    for table, columns in SAME.items():
        names = ("present_states", "past_states") if table == "wallet_states" else (table,)
        found = [row for name in names for row in rows(lake, name, pinned)]
        known = queried(database, f"SELECT {', '.join(columns)} FROM {table}")
        here = [tuple(row[name] for name in columns) for row in found]
        assert sorted(here, key=repr) == sorted(known, key=repr), table


Both = Callable[..., dict[str, Any]]


@pytest.fixture
def both(lake: Path, sync: Sync, tmp_path: Path) -> Both:
    """Sync into the lake and into a database, which say the same."""
    database = tmp_path / "same.db"

    def run(url: str, wallets: list[str], code: int = 0) -> dict[str, Any]:
        outcome = sync(url, wallets)
        assert outcome.code == code, outcome.err
        result = nftsync.sync(wallets, base_url=url, database=database, retries=1, progress=False)
        assert counts(outcome.json) == counts(result.as_dict())
        same_as_sqlite(lake, database)
        check_lake(lake)
        return outcome.json

    return run


def test_runs_say_to_the_character_what_the_provider_and_a_sync_into_sqlite_say(
    world: SandboxServer, lake: Path, both: Both
) -> None:
    wallets = world.world.wallets()
    (first, shared), *_ = listed(world.world)
    moved = list(listed(world.world))[1:40:5]
    tokens = {token_id for _, token_id in moved}
    holders = Counter(token_id for _, token_id in listed(world.world))
    mine = next(x for _, x in listed(world.world) if holders[x] == 1 and x not in tokens)

    def synced() -> dict[str, Any]:
        found = both(world.url, wallets)
        assert held(lake) == listed(world.world)
        return found

    world.world.set_amount(first, shared, "0007.50")
    synced()
    before = versions(lake)
    again = synced()
    assert again["wallets"]["unchanged"] == len(wallets)
    unchanged = ("balances", "tokens", "balance_changes", "known_tokens", "token_changes")
    assert {name: versions(lake)[name] for name in unchanged} == {
        name: before[name] for name in unchanged
    }
    for giver, given in moved:
        taker = wallets[wallets.index(giver) - 5]
        world.world.transfer(giver, taker, given, listed(world.world)[giver, given])
    minted = world.world.mint(wallets[3], 12, {"name": "New"})
    world.world.edit_metadata(mine, {"name": "Renamed"})
    result = synced()
    assert result["tokens"] == {"added": 1, "changed": 1}
    assert synced()["wallets"]["unchanged"] == len(wallets)
    assert content(lake)[minted][CONTENT_COLUMNS.index("name")] == "New"
    (change,) = rows(lake, "token_changes")
    assert (change["token_id"], json.loads(change["after"])["name"]) == (mine, "Renamed")


def test_a_token_that_changed_is_a_change_of_the_wallet_that_showed_it_first(
    lying: Provider, both: Both
) -> None:
    wallets = [wallet(number) for number in range(12)]
    for name, unchanged in (("Old", 0), ("Old", 12), ("New", 11), ("New", 12)):
        for each in wallets:
            lying.holds(each, entry(token(1), "1", metadata={"name": name}))
        assert both(lying.url, wallets)["wallets"]["unchanged"] == unchanged


def test_failed_and_empty_lists_follow_the_rules_of_sync(
    lying: Provider, lake: Path, both: Both
) -> None:
    wallets = [wallet(number) for number in range(12)]
    for number, each in enumerate(wallets):
        lying.holds(each, entry(token(number), "3", metadata={"name": f"N {number}"}))
    both(lying.url, wallets)
    wrong = (
        reply(b"gone", 404),
        reply(b"down", 500),
        reply(b'{"nftTokenBalances": [{"amount": "1"}]}'),
    )
    paths = [f"/v1/wallets/{each}/nft-balances" for each in wallets]
    for path, answer in zip(paths, wrong, strict=False):
        lying.on(path, answer)
    lying.holds(wallets[3])
    lying.holds(wallets[4], nextPage="x")
    both(lying.url, wallets, 1)
    assert len(held(lake)) == 11
    for path in paths[:3]:
        lying.on(path)
    lying.holds(wallets[4], entry(token(4), "4"))
    both(lying.url, wallets)


def in_buckets(*buckets: int) -> list[str]:
    """Wallets, by the bucket that each is in."""
    every = [wallet(number) for number in range(100)]
    return [next(x for x in every if bucket_of(x, BUCKETS) == bucket) for bucket in buckets]


def first_is_refused_until_other_is_answered(names: list[str]) -> Sender:
    """Answer two wallets with the same token, and refuse the first request until the other is read.

    So the wallet that was asked for first has the newer response. Each response names the token
    anew; `names` collects the names.
    """
    paths: list[str] = []
    other_is_answered = threading.Event()

    def answer(peer: Any) -> bool:
        paths.append(peer.seen.path)
        if peer.seen.path == paths[0] and paths.count(paths[0]) == 1:
            assert other_is_answered.wait(PATIENCE)
            return reply(status=503)(peer)
        names.append(f"Name {len(names)}")
        keep = reply(balances(entry(token(1), "1", metadata={"name": names[-1]})))(peer)
        other_is_answered.set()
        return keep

    return answer


def test_a_token_of_several_buckets_is_there_once_and_the_newer_read_wins(
    lying: Provider, lake: Path, sync: Sync
) -> None:
    wallets = in_buckets(0, 1)  # two workers read them at once
    names: list[str] = []
    for _ in range(2):
        lying.always(first_is_refused_until_other_is_answered(names))
        assert sync(lying.url, wallets, "--retries", 2).code == 0
        (found,) = content(lake).values()
        assert found[CONTENT_COLUMNS.index("name")] == names[-1]
        check_lake(lake)
    assert len(names) == 4
    assert len(rows(lake, "known_tokens")) == 2


def test_a_read_that_shows_the_same_state_adds_no_state(
    lying: Provider, lake: Path, sync: Sync
) -> None:
    """Not even if other buckets had shown a token both before and after it."""
    every = [wallet(number) for number in range(100)]
    (first, last), (gate, middle) = (
        [each for each in every if bucket_of(each, BUCKETS) == bucket][:2] for bucket in (0, 1)
    )
    began = {each: threading.Event() for each in (first, middle)}

    def show(each: str, *entries: Any, after: str | None = None) -> None:
        def answer(peer: Any) -> bool:
            if each in began:
                began[each].set()
            assert after is None or began[after].wait(PATIENCE)
            return reply(balances(*entries))(peer)

        lying.on(f"/v1/wallets/{each}/nft-balances", answer)

    named = entry(token(1), "1", metadata={"name": "One"})
    show(gate, after=first)
    show(first, named, after=middle)
    show(middle, entry(token(1), "1", metadata=None))
    show(last, named)
    for _ in range(3):
        outcome = sync(lying.url, [first, last, gate, middle], "--concurrency", 1)
        assert outcome.code == 0, outcome.err
    assert {row["reads"] for row in rows(lake, "present_states")} == {3}
    assert not rows(lake, "past_states")
    check_lake(lake)


def test_a_list_in_part_vouches_for_nothing_that_it_does_not_show(
    lying: Provider, lake: Path, sync: Sync
) -> None:
    """Not even where it was read after another wallet's list, which showed a token anew."""
    first, second = in_buckets(0, 1)
    name, answered = CONTENT_COLUMNS.index("name"), threading.Event()
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
    assert {t: row[name] for t, row in content(lake).items()} == {token(1): "New", token(2): "Old"}
    changes = [row["token_id"] for row in rows(lake, "token_changes")]
    assert sorted(changes) == [token(1), token(2), token(2)]
    check_lake(lake)


def test_what_is_known_is_asked_for_by_its_etag(lying: Provider, lake: Path, sync: Sync) -> None:
    wallets = [wallet(number) for number in range(3)]

    def tagged(body: bytes) -> Sender:
        def answer(peer: Any) -> bool:
            if peer.seen.headers.get("if-none-match") == '"same"':
                return reply(status=304)(peer)
            return reply(body, etag='"same"')(peer)

        return answer

    for number, each in enumerate(wallets[:2]):
        lying.on(f"/v1/wallets/{each}/nft-balances", tagged(balances(entry(token(number)))))
    lying.holds(wallets[2], entry(token(2)))
    assert sync(lying.url, wallets).code == 0
    count = len(lying.requests())
    again = sync(lying.url)
    assert again.json["wallets"] == {"total": 3, "ok": 3, "unchanged": 3, "failed": 0}
    asked = lying.requests()[count:]
    assert sorted(x.headers.get("if-none-match", "") for x in asked) == ["", '"same"', '"same"']
    assert {row["reads"] for row in rows(lake, "present_states")} == {2}


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
    for _ in range(2):
        assert command(*words, "--wallets-file", tmp_path / "wallets.txt").code == 0
    assert [run.buckets for run in Ledger(Lake(str(lake))).runs()] == [4, 4]
    assert [line for line in caplog.messages if "bucket" in line] == [
        "New lake with 4 buckets. You can't change this later; --buckets sets another number."
    ]


def test_what_cannot_work_is_said_in_one_line(
    lying: Provider, lake: Path, cluster: Cluster, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "wallets.txt").write_text("\n".join(map(wallet, range(480))))
    (tmp_path / "file").write_text("")
    lying.always(reply(b"no", 401))
    file = ("--wallets-file", tmp_path / "wallets.txt")
    url, scheduler = ("--base-url", lying.url), ("--scheduler", cluster.address)
    for arguments, code, said in [
        ((lake, *file, *scheduler), 2, "base_url"),
        ((lake, *url, *scheduler), 2, "--wallets-file"),
        ((tmp_path / "file", *url, *file, *scheduler), 1, str(tmp_path / "file")),
    ]:
        refused(command("lake", "sync", *arguments, "--buckets", 2), code, said)
    forbidden = (tmp_path / "refused", *url, *file, *scheduler, "--json", "--buckets", 12)
    outcome = command("lake", "sync", *forbidden)
    assert (outcome.code, outcome.json["status"]) == (1, "failed"), outcome.said
    # Each of two workers gives up by itself, whatever the number of buckets.
    assert len(lying.requests()) <= 2 * (20 + 16)
    assert all(run.versions is None for run in Ledger(Lake(str(forbidden[0]))).runs())


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
    wallets, database = world.world.wallets()[:1], tmp_path / "own.db"
    nftsync.sync(wallets, base_url=world.url, database=database, progress=False)

    def run(*words: str) -> tuple[int, str]:
        code = [sys.executable, "-c", WITHOUT_THE_EXTRA, *words]
        done = subprocess.run(
            code, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
        )
        return done.returncode, done.stderr

    code, err = run("lake", "sync", "x", "--base-url", "http://127.0.0.1:9")
    assert (code, err.count("\n")) == (1, 1), err
    assert "lakes need dask, deltalake, distributed; to install: " in err
    assert not (tmp_path / "x").exists()
    assert run("status", "-d", str(database))[0] == 0
