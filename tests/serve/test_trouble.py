"""`serve` while its database takes no writes, and with signed nonsense: it lives on."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.kit.serve_process import (
    assert_settled,
    id_of,
    query,
    serving,
    states,
    wait_until_done,
    webhook,
)
from tests.kit.waiting import wait_until
from tests.kit.worlds import listed, mirrored, replayed


def test_a_locked_database_is_503_until_it_is_released(serve, synced, provider):
    def change(number: int) -> bytes:
        wallet = provider.world.wallets()[number % 4]
        provider.world.mint(wallet, 1, {"name": str(number)})
        return webhook("Wallet", wallet)

    with serve(provider.url) as server, ThreadPoolExecutor(8) as pool:
        bodies = [change(number) for number in range(4)]
        assert [server.post(body) for body in bodies] == [200] * 4
        refused = [change(number) for number in range(8)]
        with closing(sqlite3.connect(synced, isolation_level=None, timeout=30)) as other:
            other.execute("BEGIN IMMEDIATE")
            statuses = list(pool.map(server.post, refused))
            assert [server.get("/readyz"), server.get("/healthz")] == [503, 200]
            other.execute("ROLLBACK")
        assert statuses == [503] * 8
        wait_until(lambda: server.get("/readyz") == 200)
        assert list(pool.map(server.post, refused)) == [200] * 8
        wait_until_done(synced)
    assert states(synced).keys() == {id_of(body) for body in bodies + refused}
    assert query(synced, "SELECT DISTINCT deliveries FROM webhooks") == [(1,)]
    assert mirrored(synced) == replayed(synced) == listed(provider.world)


def test_a_full_disk_is_503_until_space_is_free(small_disk, provider):
    database = small_disk / "nftsync.db"
    wallets = provider.world.wallets()
    with serving(small_disk, provider.url) as server:
        assert server.post(webhook("Wallet", wallets[0])) == 200
        wait_until_done(database)
        ballast = database.with_name("ballast")
        with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):  # noqa: PT012
            while True:
                file.write(b"\0" * 4096)
        answered, refused = [], []
        while len(refused) < 3:
            wallet = wallets[len(answered) % len(wallets)]
            provider.world.mint(wallet, 1, {"name": "new"})
            body = webhook("Wallet", wallet, changes={"padding": "x" * 20_000})
            (answered if server.post(body) == 200 else refused).append(body)
            assert len(answered) < 200
        assert server.get("/healthz") == 200
        wait_until(lambda: server.get("/readyz") == 503)
        ballast.unlink()
        wait_until(lambda: server.get("/readyz") == 200)
        assert [server.post(body) for body in refused] == [200] * 3
        assert {id_of(body) for body in answered + refused} <= states(database).keys()
        for wallet in wallets:
            assert server.post(webhook("Wallet", wallet)) == 200
        wait_until_done(database)
        assert server.stop() == 0
    assert_settled(database)
    assert mirrored(database) == replayed(database) == listed(provider.world)
