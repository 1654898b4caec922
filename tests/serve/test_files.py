"""`serve` while the files of its database are moved, replaced, truncated or removed."""

import os
import shutil
import sqlite3
from contextlib import closing

import pytest

from nftsync.sandbox.server import SandboxServer
from tests.kit.serve_process import SECRET, Serve, id_of, query, states, wait_until_done, webhook
from tests.kit.waiting import wait_until
from tests.kit.worlds import listed, mirrored, replayed


def about_first(provider: SandboxServer) -> bytes:
    return webhook("Wallet", provider.world.wallets()[0])


def send_webhooks(server: Serve, provider: SandboxServer, count: int = 30) -> set[str]:
    """Mint tokens and send webhooks about them; return the webhooks' ids."""
    wallets, sent = provider.world.wallets(), set()
    for number in range(count):
        wallet = wallets[number % len(wallets)]
        provider.world.mint(wallet, 1, {"name": str(number)})
        body = webhook("Wallet", wallet)
        assert server.post(body) == 200
        sent.add(id_of(body))
    return sent


@pytest.mark.parametrize(("kept", "end"), [(True, "stop"), (False, "kill")])
def test_a_restored_backup_is_not_overwritten_by_the_old_log(
    serve, synced, provider, command, kept, end
):
    """Although `serve` was running, and its log still existed; the old file is whole, too."""
    backup, old, another = map(synced.with_name, ("backup.db", "old.db", "another.db"))
    with serve(provider.url) as server:
        send_webhooks(server, provider)
        wait_until_done(synced)
        assert command("snapshot", backup, "-d", synced).code == 0
        backed_up = states(backup)
        later = send_webhooks(server, provider)
        wait_until_done(synced)
        if kept:
            synced.rename(old)
        shutil.copy(backup, synced)
        shutil.copy(backup, another)
        another.rename(synced)  # replaces the copy
        wait_until(lambda: server.logged("cannot store webhooks"))
        assert server.post(about_first(provider)) == 503
        wait_until(lambda: server.logged("database trouble"))
        assert end == "kill" or server.stop() == 0
        server.kill()
    assert states(synced) == backed_up
    assert mirrored(synced) == replayed(synced)
    assert query(synced, "PRAGMA integrity_check") == [("ok",)]
    assert command("sync", "-d", synced, "--base-url", provider.url).code == 0
    assert mirrored(synced) == replayed(synced) == listed(provider.world)
    if kept:  # acknowledged webhooks are only in the old file
        assert later <= states(old.rename(synced.with_name("elsewhere.db"))).keys()


def test_a_removed_log_loses_no_acknowledged_webhook(serve, synced, provider):
    with serve(provider.url) as server:
        answered = send_webhooks(server, provider)
        synced.with_name("nftsync.db-wal").unlink()
        refused = about_first(provider)
        assert server.post(refused) == 503
        wait_until(lambda: server.logged("cannot store webhooks"))
        assert server.get("/readyz") == 503
        server.kill()
    with serve(provider.url) as server:
        assert answered <= states(synced).keys()
        assert server.post(refused) == 200
        query(synced, "UPDATE leases SET expires_at = '2020' WHERE lease_no = 1")  # the killed one
        wait_until_done(synced, id_of(refused))
        assert server.stop() == 0
    assert query(synced, "PRAGMA integrity_check") == [("ok",)]
    assert mirrored(synced) == replayed(synced)


@pytest.mark.parametrize("left", [0.0, 0.5])
def test_webhooks_are_refused_once_the_file_is_truncated(serve, synced, provider, command, left):
    copy = synced.with_name("copy.db")
    assert command("snapshot", copy, "-d", synced).code == 0
    with serve(provider.url) as server:
        send_webhooks(server, provider, 3)
        os.truncate(synced, int(synced.stat().st_size * left) // 4096 * 4096)
        refused = about_first(provider)
        assert {server.post(refused) for _ in range(3)} == {503}
        wait_until(lambda: server.logged("cannot store webhooks"))
        errors = [line["error"] for line in server.logged("cannot store webhooks")]
        assert all("damaged" in error or "not a " in error for error in errors)
        assert server.get("/readyz") == 503
        server.kill()
    synced.with_name("nftsync.db-wal").unlink(missing_ok=True)
    shutil.copy(copy, synced)
    with serve(provider.url) as server:
        assert server.post(refused) == 200
        wait_until_done(synced)


def test_an_emptied_file_keeps_its_log(serve, synced, provider, command, monkeypatch):
    """SQLite would take the log away, with all that was answered 200."""
    with serve(provider.url, "--no-replay") as server:
        send_webhooks(server, provider, 3)
        server.kill()
    log = synced.with_name("nftsync.db-wal").read_bytes()
    os.truncate(synced, 0)
    monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", SECRET)
    sync = f"sync --base-url {provider.url}"
    for words in ("status", sync, "holdings", "check", "serve --no-replay"):
        done = command(*words.split(), "-d", synced)
        assert (done.code, "was emptied while it was in use" in done.said) == (1, True), words
    assert (synced.with_name("nftsync.db-wal").read_bytes(), synced.stat().st_size) == (log, 0)


def test_a_file_that_vacuum_shrank_is_not_truncated(serve, synced, provider):
    with serve(provider.url, "--no-replay") as server:
        with closing(sqlite3.connect(synced, timeout=30, isolation_level=None)) as other:
            other.execute("CREATE TABLE padding AS SELECT zeroblob(9000000)")
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert server.post(about_first(provider)) == 200
            other.execute("DROP TABLE padding")
            size = synced.stat().st_size
            other.execute("VACUUM")
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert synced.stat().st_size < size
        for wallet in provider.world.wallets():
            assert server.post(webhook("Wallet", wallet)) == 200
    assert len(states(synced)) == 5


def test_damage_that_replay_finds_ends_receiving(serve, synced, provider, command):
    """The inbox's own pages may be whole while others are not; a restored copy would lack both."""
    with closing(sqlite3.connect(synced)) as connection:
        pages = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE tbl_name IN ('wallets', 'balance_rows')"
        ).fetchall()
    with synced.open("r+b") as file:
        for (page,) in pages:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)
    with serve(provider.url) as server:
        wait_until(lambda: server.post(about_first(provider)) == 503)
        assert server.get("/healthz") == 200
        wait_until(lambda: server.get("/readyz") == 503)
        assert server.stop() == 0
    done = command("sync", "-d", synced, "--base-url", provider.url).tells("is damaged", code=1)
    assert done.err.count("\n") == 1
