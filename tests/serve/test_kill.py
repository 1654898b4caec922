"""Kills under load: each acknowledged webhook is stored and processed."""

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx

import nftsync
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.serve_process import free_port, id_of, post, query, states, wait_until_done, webhook
from tests.kit.waiting import wait_until
from tests.kit.worlds import listed, mirrored, replayed

CONNECTIONS = 8
#: Pending webhooks of objects without running ones.
WAITING = """
    SELECT webhook_id FROM webhooks w WHERE state = 'pending' AND NOT EXISTS
        (SELECT 1 FROM webhooks r WHERE r.state = 'running' AND r.resource_id = w.resource_id)
"""


def test_kills_under_load_lose_no_acknowledged_webhook(serve, database):
    rng, port, answered, waiting = random.Random(3), free_port(), [], []
    url = f"http://127.0.0.1:{port}/webhooks"
    with (
        SandboxServer(
            lambda url: generate(wallets=40, nfts=2, seed=1, image_base=url), latency=0.03
        ) as provider,
        httpx.Client(trust_env=False, verify=False, timeout=10) as client,
        ThreadPoolExecutor(CONNECTIONS) as pool,
    ):
        wallets = provider.world.wallets()
        nftsync.sync(wallets, base_url=provider.url, database=database, progress=False)

        def is_taken(body: bytes) -> bool:
            with suppress(httpx.TransportError):  # it was killed, and is not yet back
                status = post(url, body, client=client)
                assert status in {200, 503}
                return status == 200
            return False

        def edit(number: int) -> None:
            """Edit a wallet, and send its webhook until the answer is 200, every fifth twice."""
            wallet = rng.choice(wallets)
            provider.world.mint(wallet, number + 1, {"name": "new"})
            body = webhook("Wallet", wallet)
            for _ in range(1 + (number % 5 == 0)):
                wait_until(lambda: is_taken(body), "a webhook is taken")
                answered.append(id_of(body))

        edits = pool.map(edit, range(300))
        for is_last in (False, False, True):
            with serve(provider.url, port=port) as server:
                if waiting:  # without any, it would wait for all, under load for ever
                    wait_until_done(database, *waiting)
                if is_last:
                    list(edits)
                    query(  # as if 20 s had passed
                        database,
                        "UPDATE leases SET expires_at = '2020-01-01T00:00:00.000000Z'"
                        " WHERE lease_no < (SELECT max(lease_no) FROM leases)",
                    )
                    wait_until_done(database)  # what the killed ones held, too
                    continue
                count = len(answered) + rng.randrange(15, 45)
                wait_until(lambda count=count: len(answered) > count)
                wait_until(lambda: "running" in states(database).values())
                taken = set(answered)
                server.kill()
                assert taken <= states(database).keys()
                waiting = [name for (name,) in query(database, WAITING)]
        assert set(answered) == states(database).keys()
        assert mirrored(database) == replayed(database) == listed(provider.world)
    ends = "SELECT status, finished_at IS NOT NULL FROM sync_runs WHERE kind = 'replay'"
    ended = query(database, ends)
    assert ended.count(("interrupted", 1)) == 2  # one for each that was killed
    assert set(ended) == {("interrupted", 1), ("ok", 1)}
    again = query(database, "SELECT webhook_id FROM webhooks WHERE deliveries > 1")
    assert {name for name in answered if answered.count(name) > 1} <= {name for (name,) in again}
    assert query(database, "SELECT max(attempts) FROM webhooks") == [(1,)]  # a kill uses up none
    changes = "SELECT count(*) FROM balance_changes WHERE NOT baseline AND webhook_id IS NULL"
    assert query(database, changes) == [(0,)]
