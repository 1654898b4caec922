"""A full disk: each command fails with one line, stores nothing partial, and later succeeds."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import nftsync
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.inbox import Inbox
from tests.kit.serve_process import query, webhook
from tests.kit.worlds import listed, mirrored, replayed


@pytest.fixture
def provider() -> Iterator[SandboxServer]:
    """Lists that are long enough to fill a small disk."""
    with SandboxServer(lambda url: generate(wallets=6, nfts=40, seed=4, image_base=url)) as running:
        yield running


def change_wallets(database: Path, provider: SandboxServer) -> list[str]:
    """Change each wallet, and store a webhook about it; return the wallets."""
    wallets = provider.world.wallets()
    nftsync.sync(wallets, base_url=provider.url, database=database, progress=False)
    bodies = []
    for wallet in wallets:
        for _ in range(8):
            provider.world.mint(wallet, 1, {"name": "new", "description": "x" * 2_000})
        bodies.append(webhook("Wallet", wallet))
    Inbox(database).receive(*bodies)
    return wallets


def test_on_a_full_disk_each_command_fails_and_later_succeeds(small_disk, provider, command):
    database, ballast = small_disk / "nftsync.db", small_disk / "ballast"
    wallets = change_wallets(database, provider)
    free = os.statvfs(small_disk)
    ballast.write_bytes(b"x" * (free.f_bavail * free.f_frsize - 40_960))
    before, names = mirrored(database), {path.name for path in small_disk.iterdir()}
    writes = [
        ("replay", "--base-url", provider.url),
        ("export", small_disk / "tables", "--format", "csv"),
        ("export", small_disk / "book", "--format", "parquet"),
        ("snapshot", small_disk / "copy.db"),
        ("sync", "--base-url", provider.url),
    ]
    for words in writes:
        done = command(*words, "-d", database)
        assert (done.code, "Traceback" in done.err) == (1, False), words
        assert "no room left" in done.err or "No space left" in done.err, (words, done.err)
        here = {path.name for path in small_disk.iterdir()}
        assert here - {"nftsync.db-wal", "nftsync.db-shm"} <= names
    assert mirrored(database) == replayed(database) == before
    assert query(database, "SELECT DISTINCT state FROM webhooks WHERE attempts > 0") in (
        [],
        [("running",)],  # under a lease, which runs out
        [("pending",)],
    )
    ballast.unlink()
    with closing(sqlite3.connect(database)) as connection, connection:  # as if 20 s had passed
        connection.execute("UPDATE leases SET expires_at = '2020-01-01T00:00:00.000000Z'")
    for words in writes:
        assert command(*words, "-d", database).code == 0, words
    assert mirrored(database) == replayed(database) == listed(provider.world)
    assert query(database, "SELECT state, count(*) FROM webhooks") == [("done", len(wallets))]
    assert query(database, "PRAGMA integrity_check") == [("ok",)]
