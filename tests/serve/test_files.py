"""`serve` while the files of its database are moved, replaced, truncated or removed."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nftsync.sandbox.server import SandboxServer
from tests.kit.serve_process import (
    SECRET,
    Serve,
    assert_settled,
    id_of,
    query,
    serving,
    states,
    wait_until_done,
    webhook,
)
from tests.kit.waiting import wait_until
from tests.kit.worlds import Command, listed, mirrored, replayed


def log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


def send_webhooks(server: Serve, provider: SandboxServer, count: int = 30) -> list[str]:
    """Mint tokens and send webhooks about them; return the webhooks' ids."""
    wallets = provider.world.wallets()
    bodies = []
    for number in range(count):
        provider.world.mint(wallets[number % len(wallets)], 1, {"name": str(number)})
        bodies.append(webhook("Wallet", wallets[number % len(wallets)]))
        assert server.post(bodies[-1]) == 200
    return [id_of(body) for body in bodies]


@pytest.mark.parametrize(("kept", "end"), [(True, "stop"), (False, "kill")])
def test_a_restored_backup_is_not_overwritten_by_the_old_log(
    synced: Path, provider: SandboxServer, command: Command, kept: bool, end: str
) -> None:
    """Although `serve` was running, and its log still existed; the old file is whole, too."""
    backup, old = synced.with_name("backup.db"), synced.with_name("old.db")
    with serving(synced.parent, provider.url) as server:
        send_webhooks(server, provider)
        wait_until_done(synced)
        assert command("snapshot", backup, "-d", synced).code == 0
        backed_up = states(backup)
        later = send_webhooks(server, provider)
        wait_until_done(synced)
        if kept:
            synced.rename(old)
        shutil.copy(backup, synced)
        shutil.copy(backup, synced.with_name("another.db"))
        synced.with_name("another.db").rename(synced)  # replaces the copy
        wait_until(lambda: server.logged("cannot store webhooks"))
        assert server.post(webhook("Wallet", provider.world.wallets()[0])) == 503
        wait_until(lambda: server.logged("database trouble"))
        if end == "stop":
            assert server.stop() == 0
        else:
            server.kill()
    assert states(synced) == backed_up
    assert mirrored(synced) == replayed(synced)
    assert query(synced, "PRAGMA integrity_check") == [("ok",)]
    assert command("sync", "-d", synced, "--base-url", provider.url).code == 0
    assert mirrored(synced) == replayed(synced) == listed(provider.world)
    if kept:  # acknowledged webhooks are only in the old file
        shutil.move(old, synced.with_name("elsewhere.db"))
        assert set(later) <= states(synced.with_name("elsewhere.db")).keys()


def test_a_removed_log_loses_no_acknowledged_webhook(synced: Path, provider: SandboxServer) -> None:
    with serving(synced.parent, provider.url) as server:
        answered = send_webhooks(server, provider)
        log_of(synced).unlink()
        refused = webhook("Wallet", provider.world.wallets()[0])
        assert server.post(refused) == 503
        wait_until(lambda: server.logged("cannot store webhooks"))
        assert server.get("/readyz") == 503
        server.kill()
    with serving(synced.parent, provider.url) as server:
        assert set(answered) <= states(synced).keys()
        assert server.post(refused) == 200
        query(synced, "UPDATE leases SET expires_at = '2020' WHERE lease_no = 1")  # the killed one
        wait_until_done(synced, id_of(refused))
        assert server.stop() == 0
    assert query(synced, "PRAGMA integrity_check") == [("ok",)]
    assert mirrored(synced) == replayed(synced)


@pytest.mark.parametrize("left", [0.0, 0.5])
def test_webhooks_are_refused_once_the_file_is_truncated(
    synced: Path, provider: SandboxServer, command: Command, left: float
) -> None:
    copy = synced.with_name("copy.db")
    assert command("snapshot", copy, "-d", synced).code == 0
    with serving(synced.parent, provider.url) as server:
        send_webhooks(server, provider, 3)
        os.truncate(synced, int(synced.stat().st_size * left) // 4096 * 4096)
        refused = webhook("Wallet", provider.world.wallets()[0])
        assert {server.post(refused) for _ in range(3)} == {503}
        wait_until(lambda: server.logged("cannot store webhooks"))
        said = server.logged("cannot store webhooks")
        assert all("damaged" in x["error"] or "not a " in x["error"] for x in said)
        assert server.get("/readyz") == 503
        server.kill()
    log_of(synced).unlink(missing_ok=True)
    shutil.copy(copy, synced)
    with serving(synced.parent, provider.url) as server:
        assert server.post(refused) == 200
        wait_until_done(synced)
        assert server.stop() == 0
    assert_settled(synced)


def test_an_emptied_file_keeps_its_log(
    synced: Path,
    provider: SandboxServer,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SQLite would take the log away, with all that was answered 200."""
    with serving(synced.parent, provider.url, "--no-replay") as server:
        send_webhooks(server, provider, 3)
        server.kill()
    log = log_of(synced).read_bytes()
    os.truncate(synced, 0)
    monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", SECRET)
    for words in (
        "status",
        f"sync --base-url {provider.url}",
        "holdings",
        "check",
        "serve --no-replay",
    ):
        done = command(*words.split(), "-d", synced)
        assert (done.code, "was emptied while it was in use" in done.said) == (1, True), words
    assert (log_of(synced).read_bytes(), synced.stat().st_size) == (log, 0)


def test_a_file_that_vacuum_shrank_is_not_truncated(synced: Path, provider: SandboxServer) -> None:
    with serving(synced.parent, provider.url, "--no-replay") as server:
        with closing(sqlite3.connect(synced, timeout=30, isolation_level=None)) as other:
            other.execute("CREATE TABLE padding AS SELECT zeroblob(9000000)")
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert server.post(webhook("Wallet", provider.world.wallets()[0])) == 200
            other.execute("DROP TABLE padding")
            size = synced.stat().st_size
            other.execute("VACUUM")
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert synced.stat().st_size < size
        for wallet in provider.world.wallets():
            assert server.post(webhook("Wallet", wallet)) == 200
        assert server.stop() == 0
    assert len(states(synced)) == 5


def test_damage_that_replay_finds_ends_receiving(
    synced: Path, provider: SandboxServer, command: Command
) -> None:
    """The inbox's own pages may be whole while others are not; a restored copy would lack both."""
    with closing(sqlite3.connect(synced)) as connection:
        pages = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE tbl_name IN ('wallets', 'balance_rows')"
        ).fetchall()
    with synced.open("r+b") as file:
        for (page,) in pages:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)
    with serving(synced.parent, provider.url) as server:
        server.post(webhook("Wallet", provider.world.wallets()[0]))
        wait_until(lambda: server.post(webhook("Wallet", provider.world.wallets()[0])) == 503)
        assert server.get("/healthz") == 200
        wait_until(lambda: server.get("/readyz") == 503)
        assert server.stop() == 0
    done = command("sync", "-d", synced, "--base-url", provider.url)
    assert (done.code, done.err.count("\n")) == (1, 1), done.err
    assert "is damaged" in done.err
