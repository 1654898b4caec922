"""A `nftsync lake sync` on a cluster of processes equals a sync into a database."""

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from pandas.testing import assert_frame_equal

import nftsync
import nftsync.lake
from nftsync import frames
from nftsync.lake.ledger import default_buckets
from nftsync.times import now
from tests.kit import lakes
from tests.kit.database import begun
from tests.kit.lake_cluster import (
    cluster_of,
    path_of,
    refused,
    shifted_clock,
    show,
    wallets_of,
)
from tests.kit.provider import balances, entry, reply, token, wallet
from tests.kit.serve_process import environment
from tests.kit.worlds import PATIENCE
from tests.kit.worlds import run_command as command
from tests.nightly import lake_rounds

FIRST, SECOND = (wallets_of(bucket, 1)[0] for bucket in (0, 1))


def kept(before: list[str | None], lake: Path | str) -> list[bool]:
    return [x == y for x, y in zip(before, lakes.files(lake), strict=True)]


def test_random_changes_and_approvals_give_the_rows_of_a_database(tmp_path, cluster, monkeypatch):
    monkeypatch.setenv("NFTSYNC_REMOVAL_ROWS", "5")  # is removed after the test
    figures = lake_rounds.compare(5, tmp_path, cluster, rounds=6)
    assert figures["held"]
    assert figures["accepted"]


def test_a_collection_held_in_all_buckets_has_one_name(lying, pair, tmp_path, monkeypatch):
    named = [
        entry(token(n), metadata={"name": f"Tram #{n}"}, contractAddress="0x" + "aB" * 20)
        for n in range(6)
    ]
    lying.holds(FIRST, *named[:3])  # too few to guess a name
    lying.holds(SECOND, *named[3:])
    pair.sync([FIRST, SECOND])
    assert {row["guessed_name"] for row in lakes.rows(pair.lake, "contracts")} == {"Tram"}
    before = lakes.files(pair.lake)
    (tmp_path / "collections.csv").write_text(f"contract_address,name\n0x{'ab' * 20},Lines\n")
    monkeypatch.setenv("NFTSYNC_COLLECTIONS_FILE", str(tmp_path / "collections.csv"))
    pair.sync([FIRST, SECOND])
    pair.compare()
    found = [(row["bucket"], row["file_name"]) for row in lakes.rows(pair.lake, "contracts")]
    assert (found, lakes.files(pair.lake)) == ([(0, "Lines"), (1, "Lines")], before)
    assert pair.query(pair.copy, "SELECT DISTINCT collection FROM holdings") == [("Lines",)]


def test_a_token_in_several_buckets_is_as_the_last_complete_list_showed_it(lying, pair):
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
    lakes.check_lake(pair.lake)


def test_a_loss_after_five_unchanged_runs_is_held_as_in_a_database(lying, pair):
    """A gain before the last of these runs does not explain it."""
    losers, gainers = wallets_of(0, 20), wallets_of(1, 20)
    times = []

    def run(emptied: list[str], filled: list[str], status: str = "ok") -> None:
        show(lying, emptied, count=0)
        show(lying, filled, count=5)
        assert pair.sync([*losers, *gainers])["status"] == status
        times.append(now())

    run(gainers, losers)
    before = lakes.files(pair.lake)
    run([], gainers)
    assert kept(before, pair.lake) == [True, False]
    before = lakes.files(pair.lake)
    for _ in range(5):
        run([], [])
        assert lakes.files(pair.lake) == before
    pair.compare()
    of_lake = nftsync.lake.wallet_states(pair.lake).compute()
    of_database = frames.wallet_states(pair.database)
    states = (x.sort_values("wallet_id", ignore_index=True) for x in (of_lake, of_database))
    assert_frame_equal(*(x[["wallet_id", "body_sha256", "reads"]] for x in states))
    run(losers, [], "partial")  # held: no transfers to the gainers
    pair.compare()
    assert len(lakes.held(pair.lake)) == 200
    databases = pair.database, pair.copy
    for at in times:
        pair_of_frames = (frames.holdings(each, as_of=at) for each in databases)
        said = ["wallet_id", "token_id", "amount", "certainty"]
        assert_frame_equal(*(x[said].sort_values(said, ignore_index=True) for x in pair_of_frames))
    assert_frame_equal(*(frames.freshness(each)[["what", "count"]] for each in databases))
    for each in databases:
        last = frames.wallet_states(each).set_index("wallet_id")["last_read_at"]
        assert last[losers].between(times[5], times[6]).all()


def test_a_bucket_keeps_its_file_until_something_in_it_changes(lying, pair):
    full = [entry(token(number)) for number in range(120)]
    lying.holds(SECOND, entry(token(1)))

    def run(line: str = "Cold,east", *shown: Any) -> list[bool]:
        before = lakes.files(pair.lake) if pair.began else [None, None]
        lying.holds(FIRST, *shown)
        pair.sync([f"{FIRST},{line}", SECOND])
        if not all(same := kept(before, pair.lake)):
            pair.compare()
        return same

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
    before = lakes.files(pair.lake)
    pair.accept()
    assert kept(before, pair.lake) == other
    assert [run(), run()] == [other, every]  # the approval removed the answer's digest


def test_workers_whose_clocks_and_uptimes_differ_sync_one_lake(lying, lake, sync, tmp_path):
    """No read is stale, no time runs back, and no loss is forgotten."""
    wallets, until = [wallet(number) for number in range(40)], ""
    with cluster_of(tmp_path / "ahead", 1, shifted_clock(tmp_path, 1, 100)) as ahead:
        # Each number is of wallets that have become empty; every second run is hours ahead.
        for amount, empty in enumerate((0, 15, 15, 30), start=1):
            show(lying, wallets, str(amount), 3, empty)
            outcome = sync(wallets, *(("--scheduler", ahead) if amount % 2 else ()))
            assert outcome.code == (amount == 4), outcome.said
            lakes.check_lake(lake)
            run_id = outcome.json["run_id"]
            times = [
                row["observed_at"]
                for row in lakes.rows(lake, "balance_changes")
                if row["run_id"] == run_id
            ]
            assert min(times) > until
            until = max(times)
    assert Counter(lakes.held(lake).values()) == {"3": 45, "4": 30}


def test_all_workers_share_the_rate_limit_and_a_retry_after(lying, sync):
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


def test_a_new_lake_has_a_bucket_per_thousand_wallets(lying, lake, cluster, caplog):
    sizes = {0: 4, 4_999: 4, 5_000: 5, 63_999: 63, 10_000_000: 64}
    assert {wallets: default_buckets(wallets) for wallets in sizes} == sizes
    show(lying, [FIRST])
    Path("wallets.txt").write_text(FIRST)
    words = ("lake", "sync", lake, "--scheduler", cluster)
    refused(command(*words, "--base-url", lying.url), 2, "no wallets to read")
    refused(command(*words), 2, "base_url")
    for _ in range(2):
        command(*words, "--base-url", lying.url, "--wallets-file", "wallets.txt").says()
    assert [run.buckets for run in lakes.runs_of(lake)] == [4, 4]
    (line,) = [line for line in caplog.messages if "bucket" in line]
    assert line.startswith("New lake with 4 buckets; --buckets sets another number.")


def test_drivers_give_up_a_provider_that_refuses_all_requests(lying, lake, sync, tmp_path):
    (tmp_path / "file").write_text("")
    refused(sync([wallet(0)], to=tmp_path / "file"), 1, str(tmp_path / "file"))
    lying.always(reply(b"no", 401))
    outcome = sync([wallet(number) for number in range(480)], "--buckets", 12)
    assert (outcome.code, outcome.json["status"]) == (1, "failed"), outcome.said
    assert len(lying.requests()) <= 2 * (20 + 16)  # each of two workers gives up on its own
    assert all(run.manifest is None for run in lakes.runs_of(lake))


WITHOUT_THE_EXTRA = """
import importlib.util, sys
extra, find_spec = {"dask", "distributed", "deltalake"}, importlib.util.find_spec
sys.modules.update(dict.fromkeys(extra))
importlib.util.find_spec = lambda name, *more: None if name in extra else find_spec(name, *more)
from nftsync.cli import main
main(sys.argv[1:])
"""


def test_without_the_extra_one_line_names_it_and_other_commands_work(tmp_path):
    database = begun(tmp_path / "own.db")

    def run(*words: str) -> tuple[int, str]:
        code = [sys.executable, "-c", WITHOUT_THE_EXTRA, *words]
        done = subprocess.run(code, env=environment(), capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    code, err = run("lake", "sync", "x", "--base-url", "http://127.0.0.1:9")
    assert (code, err.count("\n")) == (1, 1), err
    assert "lakes need dask, deltalake, distributed; to install: " in err
    assert not (tmp_path / "x").exists()
    assert run("status", "-d", str(database))[0] == 0
