"""A full disk: each command fails with one line, stores nothing partial, and later succeeds."""

import os

import nftsync
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.inbox import Inbox
from tests.kit.serve_process import query, webhook
from tests.kit.worlds import listed, mirrored, replayed


def test_on_a_full_disk_each_command_fails_and_later_succeeds(small_disk, command):
    # Lists that are long enough to fill a small disk.
    world = lambda url: generate(wallets=6, nfts=40, seed=4, image_base=url)  # noqa: E731
    database, ballast = small_disk / "nftsync.db", small_disk / "ballast"
    with SandboxServer(world) as provider:
        wallets = provider.world.wallets()
        nftsync.sync(wallets, base_url=provider.url, database=database, progress=False)
        for wallet in wallets * 8:
            provider.world.mint(wallet, 1, {"name": "new", "description": "x" * 2_000})
        Inbox(database).receive(*(webhook("Wallet", wallet) for wallet in wallets))
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
        tried = query(database, "SELECT DISTINCT state FROM webhooks WHERE attempts > 0")
        assert tried in ([], [("running",)], [("pending",)])  # running under a lease
        ballast.unlink()
        query(database, "UPDATE leases SET expires_at = '2020-01-01T00:00:00.000000Z'")
        for words in writes:
            assert command(*words, "-d", database).code == 0, words
        assert mirrored(database) == replayed(database) == listed(provider.world)
    assert query(database, "SELECT state, count(*) FROM webhooks") == [("done", len(wallets))]
    assert query(database, "PRAGMA integrity_check") == [("ok",)]
