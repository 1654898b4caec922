"""Syncs and a service over a network with faults at any byte: the mirror is still correct.

    python -m tests.nightly.network --rounds 500     # a round is some syncs, or a service
    python -m tests.nightly.network --seed 17        # one round alone

A relay between nftsync and a provider whose wallets change cuts, resets, half-closes, silences,
delays and floods connections: before an answer, within its headers or body, or after it.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from nftsync import SyncResult
from tests.kit.forward_proxy import AT_ONCE, SPOILED, WITHIN, Fault, Relay
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.serve_process import assert_settled, query, serving, webhook
from tests.kit.waiting import wait_until
from tests.kit.worlds import mirrored, replayed
from tests.nightly.rounds import run_rounds
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
        self._provider = provider
        self._rng = rng
        self.wallets = [wallet(number) for number in range(wallets)]
        self._held: dict[str, dict[str, str]] = {}
        self.trade(wallets)

    def trade(self, count: int) -> list[str]:
        """Change the holdings of some wallets; return the wallets."""
        traded = self._rng.sample(self.wallets, count)
        for each in traded:
            tokens = self._rng.sample(range(200), self._rng.randint(1, 5))
            held = {token(number): str(self._rng.randint(1, 9)) for number in tokens}
            fields = {
                "contractAddress": "0x1",
                "metadata": {"name": "x" * self._rng.randint(0, 2000)},
            }
            self._provider.holds(each, *(entry(t, a, **fields) for t, a in held.items()))
            self._held[each] = held
        return traded

    def truth(self) -> Holdings:
        return {(w, t): a for w, held in self._held.items() for t, a in held.items()}


def faults(rng: random.Random, *more: str) -> Fault | None:
    """Return a fault at a random byte; one connection in five has none."""
    if rng.random() < 0.2:
        return None
    kind = rng.choice((*WITHIN, *AT_ONCE, *more))
    near_start, headers, body = rng.randint(0, 20), rng.randint(0, 120), rng.randint(0, 6_000)
    return Fault(kind, rng.choice((0, near_start, headers, headers, body, body, 10 * body)))


def of(holdings: Holdings, wallet_id: str) -> Holdings:
    return {key: amount for key, amount in holdings.items() if key[0] == wallet_id}


def descriptors(process: int | str = "self") -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def run_syncs(
    seed: int, *, wallets: int = 16, certificates: tuple[str, str] | None = None
) -> Counter[str]:
    """Sync over a faulty network, three times, and once over a good one.

    Args:
        seed: of the world and the faults.
        wallets: from 500 on, a process of its own reads them.
        certificates: files of a CA and of a server; None: no TLS.
    """
    rng = random.Random(seed)
    ca, server = certificates or (None, None)
    before_all = descriptors()
    with tempfile.TemporaryDirectory() as folder, Provider(certificate=server) as provider:
        world = World(provider, rng, wallets)
        database = Path(folder, "nftsync.db")
        chances, lock = random.Random(seed), threading.Lock()

        def fault() -> Fault | None:
            with lock:
                return faults(chances, *([] if ca is None else [SPOILED]))

        with Relay(provider.url, fault) as relay:
            mirrored_by = Mirror(provider, database)

            def sync() -> SyncResult:
                began = time.monotonic()
                result = mirrored_by.run(
                    range(wallets),
                    allow_removals=True,
                    concurrency=CONCURRENCY,
                    base_url=relay.url,
                    ca_file=ca,
                    timeout=TIMEOUT,
                    attempts=ATTEMPTS,
                    max_bytes=1_000_000,
                )
                assert time.monotonic() - began < result.requests * TIMEOUT + LEEWAY
                return result

            mirror: Holdings = {}
            figures: Counter[str] = Counter()
            for _ in range(3):
                before, result, mirror = mirror, sync(), mirrored(database)
                failed = {failure.wallet_id for failure in result.failures}
                assert result.wallets.total == wallets or result.status == "failed"
                for each in world.wallets:
                    good = before if each in failed else world.truth()
                    if result.status in {"ok", "partial"} or each in failed:
                        assert of(mirror, each) == of(good, each), (seed, each)
                figures += Counter(requests=result.requests, failed=len(failed), syncs=1)
                world.trade(wallets // 2)
            relay.fault = lambda: None
            final = sync()
            assert final.status == "ok", (seed, final)
            assert mirrored(database) == replayed(database) == world.truth(), seed
            figures += relay.counts
    assert descriptors() <= before_all, (seed, descriptors(), before_all)
    return figures


def struck(figures: Counter[str]) -> int:
    """Return the number of faults."""
    return sum(figures[kind] for kind in (*WITHIN, *AT_ONCE))


def run_service(seed: int, *, seconds: float = 4.0, least: int = 0) -> Counter[str]:
    """Let a service follow webhooks and sync over a faulty network, and then over a good one.

    Args:
        seed: of the world, and of the faults.
        seconds: how long the network is faulty.
        least: the number of faults to wait for.
    """
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, Provider() as provider:
        world = World(provider, rng, 12)
        database = Path(folder, "nftsync.db")
        chances, lock = random.Random(seed), threading.Lock()

        def fault() -> Fault | None:
            with lock:
                return faults(chances)

        settings = {"NFTSYNC_TIMEOUT": str(TIMEOUT), "NFTSYNC_RETRIES": str(ATTEMPTS)}
        settings |= {"NFTSYNC_CONCURRENCY": str(CONCURRENCY), "NFTSYNC_REMOVAL_LIMIT": "1"}
        with (
            Relay(provider.url, fault) as relay,
            serving(Path(folder), relay.url, "--sync-every", "1s", variables=settings) as server,
        ):
            process = server.process.pid
            before = descriptors(process)
            until = time.monotonic() + seconds
            posted = 0
            while time.monotonic() < until or struck(relay.counts) < least:
                assert time.monotonic() < until + LEEWAY, relay.counts
                for each in world.trade(2):
                    assert server.post(webhook("Wallet", each)) == 200
                    posted += 1
                time.sleep(0.1)
            relay.fault = lambda: None
            for each in world.wallets:
                assert server.post(webhook("Wallet", each)) == 200
            wait_until(lambda: mirrored(database) == world.truth(), lambda: server.raw[-20:])
            # Connections of replay and of a sync, and a few others.
            assert descriptors(process) <= before + 2 * CONCURRENCY + 8, seed
            status = Path(f"/proc/{process}/status").read_text()
            memory = int(status.partition("VmHWM:")[2].split()[0]) // 1024
            assert memory < MOST_MEMORY, (seed, memory)
            assert server.get("/readyz") == 200
            assert server.stop() == 0
        assert "Traceback" not in "".join(server.raw)
        assert_settled(database)
        assert query(database, "SELECT count(*) FROM webhooks WHERE state = 'dead'") == [(0,)]
        assert mirrored(database) == replayed(database), seed
        return relay.counts + Counter(services=1, webhooks=posted)


def run_round(seed: int, _: object = None) -> Counter[str]:
    if seed % 10 == 9:
        return run_service(seed, seconds=10.0)
    return run_syncs(seed, wallets=600 if seed % 10 == 4 else 40)


if __name__ == "__main__":
    sys.exit(run_rounds(__doc__, run_round, rounds=200))
