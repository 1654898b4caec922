"""`--sync-every`: when a sync is due, and what goes before it."""

import fcntl
import threading
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import msgspec

import nftsync
from nftsync.provider.client import access_to
from nftsync.provider.config import ClientConfig
from nftsync.pull.plan import NoWallets, SyncRequest
from nftsync.pull.result import SyncResult
from nftsync.pull.run import sync_wallets
from nftsync.replay.config import RunSync
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.serve.schedule import sync_periodically
from nftsync.store.wallets import WalletLine
from tests.kit.database import begun
from tests.kit.provider import Peer, Provider, balances, entry, reply, token, wallet
from tests.kit.serve_process import (
    PATIENCE,
    assert_settled,
    configure,
    query,
    serving,
    wait_until_done,
    webhook,
)
from tests.kit.waiting import wait_until
from tests.kit.worlds import Command, listed, mirrored, replayed

NOWHERE = "http://127.0.0.1:9"


def runs(database: Path) -> list[tuple[str, ...]]:
    """The syncs of the ledger: number, status, start."""
    return query(
        database,
        "SELECT run_id, status, started_at FROM sync_runs WHERE kind = 'sync' ORDER BY run_id",
    )


@contextmanager
def scheduled(database: Path, every: timedelta, sync: RunSync) -> Iterator[None]:
    """A schedule in a thread."""
    stopped = threading.Event()
    thread = threading.Thread(target=sync_periodically, args=(database, every, sync, stopped))
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def is_due(database: Path, seconds: float = PATIENCE) -> bool:
    """Whether a schedule of an hour that begins now syncs at once, and not in some minutes."""
    due = threading.Event()

    def sync(_: threading.Event) -> SyncResult:
        due.set()
        raise NoWallets

    with scheduled(database, timedelta(hours=1), sync):
        return due.wait(seconds)


def move_back(database: Path, seconds: int) -> None:
    """Move times back."""
    for table, column in (("sync_runs", "started_at"), ("wallets", "first_seen_at")):
        earlier = f"strftime('%Y-%m-%dT%H:%M:%f000Z', {column}, '-{seconds} seconds')"
        query(database, f"UPDATE {table} SET {column} = {earlier}")


# When one is due -----------------------------------------------------------------------------


def test_a_sync_is_due_an_interval_after_the_last_start(
    provider: SandboxServer, tmp_path: Path
) -> None:
    database = tmp_path / "nftsync.db"
    begun(database)
    assert is_due(database)
    wallets = provider.world.wallets()
    nftsync.sync(wallets, base_url=provider.url, database=database, progress=False)
    assert not is_due(database, 1.0)
    move_back(database, 3_590)
    assert not is_due(database, 1.0)
    move_back(database, 11)
    assert is_due(database)


def test_failed_and_killed_syncs_do_not_count(synced: Path, provider: SandboxServer) -> None:
    move_back(synced, 3_601)
    failed = sync_wallets(
        synced, ClientConfig(base_url=NOWHERE, attempts=1), SyncRequest(), progress=False
    )
    assert failed.status == "failed"
    assert is_due(synced)
    query(  # as kill -9 leaves it
        synced,
        "UPDATE sync_runs SET status = 'running', finished_at = NULL WHERE run_id = ?",
        failed.run_id,
    )
    assert is_due(synced)


# In `serve` ----------------------------------------------------------------------------------


def wallets_file(folder: Path, provider: SandboxServer) -> Path:
    path = folder / "wallets.csv"
    lines = [f"{wallet},Wallet {n}" for n, wallet in enumerate(provider.world.wallets())]
    path.write_text("\n".join(["wallet_id,label", *lines]))
    return path


def test_syncs_read_the_wallets_file_and_missed_changes(
    provider: SandboxServer, tmp_path: Path
) -> None:
    database = tmp_path / "nftsync.db"
    names = wallets_file(tmp_path, provider)
    with serving(tmp_path, provider.url, "--sync-every", "1s", "--wallets-file", names) as server:
        wait_until(lambda: server.logged("synced"))
        assert mirrored(database) == listed(provider.world)
        labels = query(database, "SELECT count(label) FROM wallets WHERE tracked")
        assert labels == [(4,)]
        first, second = provider.world.wallets()[:2]
        token = next(t for w, t in listed(provider.world) if w == first)
        provider.world.transfer(first, second, token, 1)  # without a webhook
        wait_until(lambda: mirrored(database) == listed(provider.world))
        more = provider.world.add_wallet()
        provider.world.mint(more, 1, {"name": "late"})
        names.write_text(names.read_text() + f"\n{more},Late\n")
        wait_until(lambda: mirrored(database) == listed(provider.world))
        assert server.stop() == 0
    assert replayed(database) == listed(provider.world)
    starts = [start for _, _, start in runs(database)]
    assert len(starts) >= 3
    assert starts == sorted(starts)
    assert_settled(database)


def test_it_resumes_a_sync_that_was_killed_or_stopped(tmp_path: Path) -> None:
    """Stored wallets are not read again; reads in flight are lost by a kill."""
    database = tmp_path / "nftsync.db"
    with SandboxServer(
        lambda url: generate(wallets=30, nfts=1, image_base=url), latency=0.1
    ) as provider:
        names = wallets_file(tmp_path, provider)
        flags = ("--sync-every", "6h", "--wallets-file", names, "--concurrency", 2)

        def stored() -> int:
            found = query(database, "SELECT count(*) FROM wallets WHERE status = 'ok'")
            return int(found[0][0])

        def requests() -> int:
            return provider.requests["balances"]

        with serving(tmp_path, provider.url, *flags) as server:
            wait_until(lambda: stored() > 4)
            server.kill()
        killed_at, before = stored(), requests()
        with serving(tmp_path, provider.url, *flags) as server:
            wait_until(lambda: stored() > killed_at + 4)
            assert server.stop() == 0
        # Two reads were running at each end: the provider may count the killed ones late, and
        # the stopped ones are read again.
        assert requests() - before <= stored() - killed_at + 4
        assert [status for _, status, _ in runs(database)] == ["interrupted"]
        stopped_at, before = stored(), requests()
        assert stopped_at < 30
        with serving(tmp_path, provider.url, *flags) as server:
            wait_until(lambda: server.logged("synced"))
            assert server.stop() == 0
        assert requests() - before <= 30 - stopped_at + 2
        assert [status for _, status, _ in runs(database)] == ["ok"]
        assert mirrored(database) == listed(provider.world)
    assert_settled(database)


def test_a_concurrent_sync_is_not_an_error(
    synced: Path, provider: SandboxServer, command: Command
) -> None:
    move_back(synced, 60)
    flags = ("--sync-every", "1s", "--rate-limit", 2)
    with serving(synced.parent, provider.url, *flags) as server:
        wait_until(lambda: runs(synced)[-1][1] == "running")
        done = command("sync", "--base-url", provider.url, "-d", synced)
        assert (done.code, done.err.count("\n"), "another sync" in done.err) == (75, 1, True)
        wait_until(lambda: server.logged("synced"))
        with synced.with_name("nftsync.db.sync-lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            wait_until(lambda: server.logged("another process is syncing"))
        wait_until(lambda: len(server.logged("synced")) > 1)
        assert server.stop() == 0
    assert len(server.logged("another process is syncing")) == 1
    assert_settled(synced)


def test_webhooks_go_before_a_sync_that_uses_up_the_rate_limit(tmp_path: Path) -> None:
    database = tmp_path / "nftsync.db"
    with SandboxServer(lambda url: generate(wallets=200, nfts=1, image_base=url)) as provider:
        names = wallets_file(tmp_path, provider)
        flags = ("--sync-every", "6h", "--wallets-file", names, "--rate-limit", 15)
        with serving(tmp_path, provider.url, *flags) as server:
            configure(provider, server.url)
            wait_until(lambda: provider.requests["balances"] > 5)
            for number in range(3):
                giver, taker = provider.world.wallets()[-2 - number], provider.world.wallets()[-1]
                token = next(t for w, t in listed(provider.world) if w == giver)
                sent = provider.sandbox.transfer(giver, taker, token, 1)
                wait_until_done(database, *sent)
                assert mirrored(database)[taker, token] == "1"
                assert (giver, token) not in mirrored(database)
                assert runs(database)[-1][1] == "running"
            before = provider.requests["balances"]
            assert before < 200
            assert server.stop() == 0
    assert_settled(database)


def test_a_full_sync_counts_also_if_webhooks_had_wallets_read_meanwhile(
    tmp_path: Path,
) -> None:
    """They are a part of its total, and the schedule waits."""
    database = tmp_path / "nftsync.db"
    # More than the sync takes in hand at once, so it looks the last ones up late.
    wallets = [wallet(number) for number in range(1, 2_621)]
    go_on = threading.Event()

    def when_told(peer: Peer) -> bool:
        go_on.wait()
        return reply(balances(entry(token(1))))(peer)

    with Provider() as provider, serving(tmp_path, provider.url) as server:
        for each in wallets:
            provider.holds(each, entry(token(1)))
        provider.on(f"/v1/wallets/{wallets[0]}/nft-balances", when_told)
        client = ClientConfig(base_url=provider.url)
        request = SyncRequest(wallets=[WalletLine(each) for each in wallets])
        with ThreadPoolExecutor(1) as pool:
            syncing = pool.submit(
                *(sync_wallets, database, client, request),
                concurrency=1,
                progress=False,
                access=access_to(client),
            )
            try:
                wait_until(provider.requests)  # and the sync waits for the answer
                for each in wallets[-20:]:
                    assert server.post(webhook("Wallet", each)) == 200
                wait_until_done(database)
            finally:
                go_on.set()
        done = syncing.result()
        assert (done.status, msgspec.to_builtins(done.wallets)) == (
            *("ok", {"total": 2_620, "ok": 2_620, "unchanged": 20, "failed": 0}),
        )
        ledger = "SELECT wallets_total, wallets_ok FROM sync_runs WHERE kind = 'sync'"
        assert query(database, ledger) == [(2_620, 2_620)]
        assert not is_due(database, 1.0)
        assert server.stop() == 0
    assert_settled(database)


def test_a_requested_sync_reads_wallets_of_an_interrupted_one(
    provider: SandboxServer, synced: Path
) -> None:
    (synced.parent / "nftsync.toml").write_text(
        '[routes."*"]\nkind = "sync"\nat_most_every = "1s"\n'
    )
    wallets = provider.world.wallets()
    # As if it had been interrupted when all but one had been read.
    numbers = [row[0] for row in query(synced, "SELECT wallet_no FROM wallets ORDER BY wallet_no")]
    plan = array("q", numbers).tobytes()
    query(synced, "UPDATE sync_runs SET status = 'interrupted', plan = ?", plan)
    query(synced, "UPDATE wallets SET status = 'failed' WHERE wallet_no = ?", numbers[-1])
    provider.world.mint(wallets[0], 1, {"name": "new"})
    with serving(synced.parent, provider.url) as server:
        assert server.post(webhook("Payment", wallets[0])) == 200
        wait_until_done(synced)
        assert server.stop() == 0
    assert mirrored(synced) == listed(provider.world)
