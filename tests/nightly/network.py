"""Syncs and a service over a network with faults at any byte: the mirror is still correct.

A relay between nftsync and a provider whose wallets change cuts, resets, half-closes, silences,
delays and floods connections: before an answer, within its headers or body, or after it.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from nftsync import SyncResult
from tests.kit.forward_proxy import AT_ONCE, SPOILED, WITHIN, Fault, Relay
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.serve_process import assert_settled, query, serving, webhook
from tests.kit.waiting import wait_until
from tests.kit.worlds import mirrored, replayed
from tests.nightly.rounds import run_seeds
from tests.pull.mirror import Mirror

TIMEOUT = 0.3
ATTEMPTS = 2
CONCURRENCY = 8
#: Seconds for the database and a busy machine.
LEEWAY = 60.0
#: Megabytes, a limit for a service's memory; it needs about 100 without a fault.
MOST_MEMORY = 400

Holdings = dict[tuple[str, str], str]


class World:
    """A provider whose wallets trade; no list is ever empty."""

    def __init__(self, provider: Provider, rng: random.Random, wallets: int) -> None:
        self._provider, self._rng = provider, rng
        self.wallets = [wallet(number) for number in range(wallets)]
        self.truth: Holdings = {}
        self.trade(wallets)

    def trade(self, count: int) -> list[str]:
        """Change the holdings of some wallets; return the wallets."""
        rng, traded = self._rng, self._rng.sample(self.wallets, count)
        self.truth = {key: amount for key, amount in self.truth.items() if key[0] not in traded}
        for each in traded:
            tokens = map(token, rng.sample(range(200), rng.randint(1, 5)))
            held = {one: str(rng.randint(1, 9)) for one in tokens}
            fields = {"contractAddress": "0x1", "metadata": {"name": "x" * rng.randint(0, 2000)}}
            self._provider.holds(each, *(entry(t, a, **fields) for t, a in held.items()))
            self.truth |= {(each, one): amount for one, amount in held.items()}
        return traded


def faults(seed: int, *more: str) -> Callable[[], Fault | None]:
    """Return a function that returns a fault at a random byte; one in five is none."""
    rng, lock = random.Random(seed), threading.Lock()

    def fault() -> Fault | None:
        with lock:
            kind = rng.choice((*WITHIN, *AT_ONCE, *more))
            start, headers, body = rng.randint(0, 20), rng.randint(0, 120), rng.randint(0, 6_000)
            after = rng.choice((0, start, headers, headers, body, body, 10 * body))
            return None if rng.random() < 0.2 else Fault(kind, after)

    return fault


def of(holdings: Holdings, wallet_id: str) -> Holdings:
    return {key: amount for key, amount in holdings.items() if key[0] == wallet_id}


def descriptors(process: int | str = "self") -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def run_syncs(
    seed: int, folder: Path, *, wallets: int = 16, certificates: tuple[str, str] | None = None
) -> Counter[str]:
    """Sync three times with faults, and once without; 500 wallets are read by a process."""
    ca, server = certificates or (None, None)
    database, before_all, figures = folder / "nftsync.db", descriptors(), Counter[str]()
    with Provider(certificate=server) as provider:
        world = World(provider, random.Random(seed), wallets)
        with Relay(provider.url, faults(seed, *([] if ca is None else [SPOILED]))) as relay:

            def sync(timeout: float) -> SyncResult:
                began = time.monotonic()
                result = Mirror(provider, database).run(
                    range(wallets),
                    allow_removals=True,
                    concurrency=CONCURRENCY,
                    base_url=relay.url,
                    ca_file=ca,
                    timeout=timeout,
                    attempts=ATTEMPTS,
                    max_bytes=1_000_000,
                )
                assert time.monotonic() - began < result.requests * timeout + LEEWAY
                return result

            mirror: Holdings = {}
            for _ in range(3):
                before, result, mirror = mirror, sync(TIMEOUT), mirrored(database)
                failed = {failure.wallet_id for failure in result.failures}
                assert result.wallets.total == wallets or result.status == "failed"
                for each in world.wallets:
                    good = before if each in failed else world.truth
                    if result.status in {"ok", "partial"} or each in failed:
                        assert of(mirror, each) == of(good, each), each
                figures += Counter(requests=result.requests, failed=len(failed), syncs=1)
                world.trade(wallets // 2)
            relay.fault = lambda: None
            final = sync(LEEWAY)
            assert final.status == "ok", final
            assert mirrored(database) == replayed(database) == world.truth
            figures += relay.counts
    assert descriptors() <= before_all
    return figures


def struck(figures: Counter[str]) -> int:
    return sum(figures[kind] for kind in (*WITHIN, *AT_ONCE))


def run_service(seed: int, folder: Path, *, seconds: float = 4.0, least: int = 0) -> Counter[str]:
    """Follow webhooks and sync during some seconds and faults, then without faults."""
    database, posted = folder / "nftsync.db", 0
    settings = {"NFTSYNC_TIMEOUT": str(TIMEOUT), "NFTSYNC_RETRIES": str(ATTEMPTS)}
    settings |= {"NFTSYNC_CONCURRENCY": str(CONCURRENCY), "NFTSYNC_REMOVAL_LIMIT": "1"}
    with (
        Provider() as provider,
        Relay(provider.url, faults(seed)) as relay,
        serving(folder, relay.url, "--sync-every", "1s", variables=settings) as server,
    ):
        world = World(provider, random.Random(seed), 12)
        process = server.process.pid
        before = descriptors(process)
        until = time.monotonic() + seconds
        while time.monotonic() < until or struck(relay.counts) < least:
            assert time.monotonic() < until + LEEWAY, relay.counts
            for each in world.trade(2):
                assert server.post(webhook("Wallet", each)) == 200
                posted += 1
            time.sleep(0.1)
        relay.fault = lambda: None
        for each in world.wallets:
            assert server.post(webhook("Wallet", each)) == 200
        wait_until(lambda: mirrored(database) == world.truth, lambda: server.raw[-20:])
        # Connections of replay and of a sync, and a few others.
        assert descriptors(process) <= before + 2 * CONCURRENCY + 8
        status = Path(f"/proc/{process}/status").read_text()
        assert int(status.partition("VmHWM:")[2].split()[0]) // 1024 < MOST_MEMORY
        assert server.get("/readyz") == 200
        assert server.stop() == 0
    assert "Traceback" not in "".join(server.raw)
    assert_settled(database)
    assert query(database, "SELECT count(*) FROM webhooks WHERE state = 'dead'") == [(0,)]
    assert mirrored(database) == replayed(database)
    return relay.counts + Counter(services=1, webhooks=posted)


def run_seed(seed: int, folder: Path) -> Counter[str]:
    if seed % 10 == 9:
        return run_service(seed, folder, seconds=10.0)
    return run_syncs(seed, folder, wallets=600 if seed % 10 == 4 else 40)


if __name__ == "__main__":
    run_seeds(__doc__, run_seed, seeds=200)
