"""`--sync-every`: when a sync is due, and what goes before it."""

import fcntl
import threading
from array import array
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import msgspec

import nftsync
from nftsync.pull.plan import NoWallets
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.serve.schedule import sync_periodically
from tests.kit.database import begun
from tests.kit.provider import one_token_each, path_of, wallet
from tests.kit.serve_process import PATIENCE, configure, query, wait_until_done, webhook
from tests.kit.waiting import wait_until
from tests.kit.worlds import listed, mirrored, replayed

RUNS = "SELECT status FROM sync_runs WHERE kind = 'sync' ORDER BY run_id"


def is_due(database: Path, seconds: float = PATIENCE) -> bool:
    """Whether a schedule of an hour that begins now syncs at once, and not in some minutes."""
    due, stopped = threading.Event(), threading.Event()

    def sync(_: threading.Event) -> nftsync.SyncResult:
        due.set()
        raise NoWallets

    with ThreadPoolExecutor(1) as pool:
        pool.submit(sync_periodically, database, timedelta(hours=1), sync, stopped)
        is_set = due.wait(seconds)
        stopped.set()
    return is_set


def move_back(database: Path, seconds: int) -> None:
    for table, column in (("sync_runs", "started_at"), ("wallets", "first_seen_at")):
        earlier = f"strftime('%Y-%m-%dT%H:%M:%f000Z', {column}, '-{seconds} seconds')"
        query(database, f"UPDATE {table} SET {column} = {earlier}")


def test_a_sync_is_due_an_interval_after_the_last_start_that_neither_failed_nor_was_killed(
    provider, database
):
    assert is_due(begun(database))
    wallets = provider.world.wallets()
    nftsync.sync(wallets, base_url=provider.url, database=database, progress=False)
    assert not is_due(database, 0.5)
    move_back(database, 3_590)
    assert not is_due(database, 0.5)
    move_back(database, 11)
    assert is_due(database)
    nowhere = "http://127.0.0.1:9"
    failed = nftsync.sync(base_url=nowhere, database=database, retries=1, progress=False)
    assert failed.status == "failed"
    assert is_due(database)
    query(  # as kill -9 leaves it
        database,
        "UPDATE sync_runs SET status = 'running', finished_at = NULL WHERE run_id = ?",
        failed.run_id,
    )
    assert is_due(database)


def wallets_file(provider: SandboxServer) -> Path:
    path = Path("wallets.csv")
    lines = [f"{wallet},Wallet {n}" for n, wallet in enumerate(provider.world.wallets())]
    path.write_text("\n".join(["wallet_id,label", *lines]))
    return path


def token_of(provider: SandboxServer, wallet: str) -> str:
    return next(token for holder, token in listed(provider.world) if holder == wallet)


def test_syncs_read_the_wallets_file_and_missed_changes(serve, provider, database):
    names = wallets_file(provider)
    with serve(provider.url, "--sync-every", "1s", "--wallets-file", names) as server:
        wait_until(lambda: server.logged("synced"))
        assert mirrored(database) == listed(provider.world)
        assert query(database, "SELECT count(label) FROM wallets WHERE tracked") == [(4,)]
        first, second = provider.world.wallets()[:2]
        provider.world.transfer(first, second, token_of(provider, first), 1)  # without a webhook
        wait_until(lambda: mirrored(database) == listed(provider.world))
        more = provider.world.add_wallet()
        provider.world.mint(more, 1, {"name": "late"})
        names.write_text(names.read_text() + f"\n{more},Late\n")
        wait_until(lambda: mirrored(database) == listed(provider.world))
    assert replayed(database) == listed(provider.world)
    starts = [row[0] for row in query(database, "SELECT started_at FROM sync_runs ORDER BY run_id")]
    assert len(starts) >= 3
    assert starts == sorted(starts)


def test_it_resumes_a_sync_that_was_killed(serve, database):
    """Stored wallets are not read again."""
    with SandboxServer(
        lambda url: generate(wallets=30, nfts=1, image_base=url), latency=0.1
    ) as provider:
        flags = ("--sync-every", "6h", "--wallets-file", wallets_file(provider))
        flags += ("--concurrency", 2)
        stored = "SELECT count(*) FROM wallets WHERE status = 'ok'"
        with serve(provider.url, *flags) as server:
            wait_until(lambda: query(database, stored)[0][0] > 4)
            server.kill()
        ((count,),), before = query(database, stored), provider.requests["balances"]
        with serve(provider.url, *flags) as server:
            wait_until(lambda: server.logged("synced"))
        # Two reads were running: the provider may count them late.
        assert count < 30
        assert provider.requests["balances"] - before <= 30 - count + 2
        assert query(database, RUNS) == [("ok",)]
        assert mirrored(database) == listed(provider.world)


def test_a_concurrent_sync_is_not_an_error(serve, synced, provider, command):
    move_back(synced, 60)
    with serve(provider.url, "--sync-every", "1s", "--rate-limit", 2) as server:
        wait_until(lambda: query(synced, RUNS)[-1] == ("running",))
        done = command("sync", "--base-url", provider.url, "-d", synced)
        assert (done.code, done.err.count("\n"), "another sync" in done.err) == (75, 1, True)
        wait_until(lambda: server.logged("synced"))
        with synced.with_name("nftsync.db.sync-lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            wait_until(lambda: server.logged("another process is syncing"))
        wait_until(lambda: len(server.logged("synced")) > 1)
    assert len(server.logged("another process is syncing")) == 1


def test_webhooks_go_before_a_sync_that_uses_up_the_rate_limit(serve, database):
    with SandboxServer(lambda url: generate(wallets=200, nfts=1, image_base=url)) as provider:
        flags = ("--sync-every", "6h", "--wallets-file", wallets_file(provider))
        with serve(provider.url, *flags, "--rate-limit", 15) as server:
            configure(provider, server.url)
            wait_until(lambda: provider.requests["balances"] > 5)
            *_, third, second, first, taker = provider.world.wallets()
            for giver in (first, second, third):
                token = token_of(provider, giver)
                wait_until_done(database, *provider.sandbox.transfer(giver, taker, token, 1))
                assert mirrored(database)[taker, token] == "1"
                assert (giver, token) not in mirrored(database)
                assert query(database, RUNS) == [("running",)]
            assert provider.requests["balances"] < 200


def test_a_full_sync_counts_also_if_webhooks_had_wallets_read_meanwhile(serve, database, lying):
    """They are a part of its total, and the schedule waits."""
    # More than the sync takes in hand at once, so it looks the last ones up late.
    wallets = [wallet(number) for number in range(1, 2_621)]
    go_on = threading.Event()
    lying.always(one_token_each)
    lying.on(path_of(1), lambda peer: go_on.wait() and one_token_each(peer))
    options = {"base_url": lying.url, "database": database, "concurrency": 1, "progress": False}
    with serve(lying.url) as server, ThreadPoolExecutor(1) as pool:
        syncing = pool.submit(nftsync.sync, wallets, **options)
        try:
            wait_until(lying.requests)  # and the sync waits for the answer
            for each in wallets[-20:]:
                assert server.post(webhook("Wallet", each)) == 200
            wait_until_done(database)
        finally:
            go_on.set()
        done = syncing.result()
        counts = {"total": 2_620, "ok": 2_620, "unchanged": 20, "failed": 0}
        assert (done.status, msgspec.to_builtins(done.wallets)) == ("ok", counts)
        ledger = "SELECT wallets_total, wallets_ok FROM sync_runs WHERE kind = 'sync'"
        assert query(database, ledger) == [(2_620, 2_620)]
        assert not is_due(database, 0.5)


def test_a_requested_sync_reads_wallets_of_an_interrupted_one(serve, provider, synced):
    Path("nftsync.toml").write_text('[routes."*"]\nkind = "sync"\nat_most_every = "1s"\n')
    # As if it had been interrupted when all but one had been read.
    numbers = [row[0] for row in query(synced, "SELECT wallet_no FROM wallets ORDER BY wallet_no")]
    plan = array("q", numbers).tobytes()
    query(synced, "UPDATE sync_runs SET status = 'interrupted', plan = ?", plan)
    query(synced, "UPDATE wallets SET status = 'failed' WHERE wallet_no = ?", numbers[-1])
    first = provider.world.wallets()[0]
    provider.world.mint(first, 1, {"name": "new"})
    with serve(provider.url) as server:
        assert server.post(webhook("Payment", first)) == 200
        wait_until_done(synced)
    assert mirrored(synced) == listed(provider.world)
