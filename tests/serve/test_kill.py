"""Kills under load: each acknowledged webhook is stored and processed."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

import nftsync
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from tests.kit.serve_process import (
    PATIENCE,
    Serve,
    assert_settled,
    id_of,
    post,
    query,
    serving,
    states,
    wait_until_done,
    webhook,
)
from tests.kit.waiting import wait_until
from tests.kit.worlds import listed, mirrored, replayed

CONNECTIONS = 8
WALLETS_EACH = 5


class Load:
    """Edits of the provider's world, each with a webhook that is sent until the answer is 200.

    Each connection has wallets of its own, which it alone edits.
    """

    def __init__(self, world: World, url: str) -> None:
        self._world = world
        self._url = url
        self._stopped = threading.Event()
        self.answered: list[str] = []
        self.resent: set[str] = set()
        wallets = world.wallets()
        self._threads = [
            threading.Thread(
                target=self._run, args=(wallets[n * WALLETS_EACH : (n + 1) * WALLETS_EACH], n)
            )
            for n in range(CONNECTIONS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, wallets: list[str], number: int) -> None:
        rng = random.Random(number)
        with httpx.Client(trust_env=False, verify=False, timeout=10) as client:
            while not self._stopped.wait(0.05):
                wallet = rng.choice(wallets)
                self._world.mint(wallet, rng.randrange(1, 9), {"name": "new"})
                body = webhook("Wallet", wallet)
                self._deliver(client, body)
                if rng.random() < 0.2:
                    self._deliver(client, body)
                    self.resent.add(id_of(body))

    def _deliver(self, client: httpx.Client, body: bytes) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                status = post(self._url, body, client=client)
            except httpx.TransportError:
                time.sleep(0.02)  # it was killed, and is not yet back
                continue
            assert status in {200, 503}
            if status == 200:
                self.answered.append(id_of(body))
                return
        raise AssertionError("a webhook was not taken")


@contextmanager
def under_load(world: World, url: str) -> Iterator[Load]:
    load = Load(world, url)
    try:
        yield load
    finally:
        load.stop()


def kill_in_the_middle(server: Serve, load: Load, database: Path, rng: random.Random) -> list[str]:
    """Kill it while it works; return the pending webhooks of objects without running ones."""
    before = len(load.answered)
    wait_until(lambda: len(load.answered) > before + rng.randrange(15, 45))
    wait_until(lambda: "running" in states(database).values())
    answered = list(load.answered)
    server.kill()
    stored = states(database)
    assert set(answered) <= stored.keys()
    return [
        row[0]
        for row in query(
            database,
            "SELECT webhook_id FROM webhooks w WHERE state = 'pending' AND NOT EXISTS"
            " (SELECT 1 FROM webhooks r WHERE r.state = 'running'"
            " AND r.resource_id = w.resource_id)",
        )
    ]


def test_kills_under_load_lose_no_acknowledged_webhook(
    tmp_path: Path,
) -> None:
    database = tmp_path / "nftsync.db"
    rng = random.Random(3)
    wallets = CONNECTIONS * WALLETS_EACH
    with SandboxServer(
        lambda url: generate(wallets=wallets, nfts=2, seed=1, image_base=url), latency=0.03
    ) as provider:
        ours = provider.world.wallets()
        nftsync.sync(ours, base_url=provider.url, database=database, progress=False)
        with serving(tmp_path, provider.url) as server:
            port = httpx.URL(server.url).port or 0
            with under_load(provider.world, server.url) as load:
                waiting = kill_in_the_middle(server, load, database, rng)
                with serving(tmp_path, provider.url, port=port) as again:
                    if waiting:  # without any, it would wait for all, under load for ever
                        wait_until_done(database, *waiting)
                    waiting = kill_in_the_middle(again, load, database, rng)
                    running = query(
                        database,
                        "SELECT count(*) FROM sync_runs"
                        " WHERE kind = 'replay' AND status IN ('running', 'interrupted')",
                    )
                    assert running == [(2,)]  # one for each that was killed
                with serving(tmp_path, provider.url, port=port) as last:
                    if waiting:
                        wait_until_done(database, *waiting)
                    load.stop()
                    query(  # as if 20 s had passed
                        database,
                        "UPDATE leases SET expires_at = '2020-01-01T00:00:00.000000Z'"
                        " WHERE lease_no < (SELECT max(lease_no) FROM leases)",
                    )
                    wait_until_done(database)  # what the killed ones held, too
                    assert last.stop() == 0
        assert_settled(database)
        assert set(load.answered) == states(database).keys()
        assert mirrored(database) == replayed(database) == listed(provider.world)
    ended = query(
        database,
        "SELECT status, finished_at IS NOT NULL FROM sync_runs WHERE kind = 'replay'"
        " ORDER BY run_id",
    )
    assert ended.count(("interrupted", 1)) == 2
    assert set(ended) == {("interrupted", 1), ("ok", 1)}
    again = query(database, "SELECT webhook_id FROM webhooks WHERE deliveries > 1")
    assert load.resent <= {row[0] for row in again}
    attempts = query(database, "SELECT max(attempts) FROM webhooks")
    assert attempts == [(1,)]  # a kill uses up none
    changed = query(
        database,
        "SELECT count(*) FROM balance_changes WHERE NOT baseline AND webhook_id IS NULL",
    )
    assert changed == [(0,)]
