"""Webhooks for half an hour into a `serve` that is killed and restarted.

    make load
    python -m tests.nightly.load [--minutes 30] [--rate 500] [--every 180]

Each webhook is sent until it is answered 200, as the provider does. Meanwhile NFTs change owners,
and for a third of the time a reader keeps a transaction open. In the end, each webhook with a 200
must be stored once, and the mirror must equal the provider's state.
"""

from __future__ import annotations

import argparse
import http.client
import io
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path

import nftsync
from nftsync.errors import InputError
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.serve_process import Serve, free_port, query, serving, signed, webhook
from tests.kit.waiting import wait_until
from tests.kit.worlds import listed, mirrored

_SENDERS = 64
_SAMPLE_EVERY = 5.0
_LEFT = "SELECT count(*) FROM webhooks WHERE state <> 'done'"


@dataclass
class Load:
    """The webhooks, the process under load, and samples of it."""

    provider: SandboxServer
    database: Path
    rate: float
    ends_at: float
    port: int = field(default_factory=free_port)
    sent: int = 0
    repeated: int = 0
    slowest: float = 0.0
    process: int = 0
    samples: list[dict[str, float]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.ends_at

    @contextmanager
    def serve(self) -> Iterator[Serve]:
        """Run `serve` on the same port for a block."""
        with (
            redirect_stdout(io.StringIO()),
            serving(self.database.parent, self.provider.url, port=self.port) as server,
        ):
            self.process = server.process.pid
            yield server

    def send(self, sender: int) -> None:
        """Send webhooks at a steady rate, each until it is answered 200."""
        chance, wallets = random.Random(sender), self.provider.world.wallets()
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        began, count = time.monotonic(), 0
        while not self.over:
            time.sleep(max(0.0, began + count * _SENDERS / self.rate - time.monotonic()))
            body = webhook("Wallet", chance.choice(wallets))
            while not self._taken(link, body):
                time.sleep(0.5)
            count += 1
        with self.lock:
            self.sent += count

    def _taken(self, link: http.client.HTTPConnection, body: bytes) -> bool:
        began = time.monotonic()
        with suppress(OSError, http.client.HTTPException):
            link.request("POST", "/webhooks", body, signed(body))
            answer = link.getresponse()
            answer.read()
            if answer.status == 200:
                self.slowest = max(self.slowest, time.monotonic() - began)
                return True
        link.close()
        with self.lock:
            self.repeated += 1
        return False

    def transfer(self) -> None:
        """Transfer a few NFTs each second."""
        chance, world = random.Random(0), self.provider.world
        while not self.over:
            giver, taker = chance.sample(world.wallets(), 2)
            if amounts := world.amounts(giver):
                with suppress(InputError):
                    world.transfer(giver, taker, chance.choice([*amounts]), 1)
            time.sleep(0.2)

    def sample(self) -> None:
        """Sample memory, descriptors, the log and the backlog, every few seconds."""
        while not self.over:
            time.sleep(_SAMPLE_EVERY)
            with suppress(OSError, sqlite3.Error, StopIteration):  # it is being killed
                status = Path(f"/proc/{self.process}/status").read_text().splitlines()
                resident = next(line for line in status if line.startswith("VmRSS")).split()[1]
                log = self.database.with_name(self.database.name + "-wal")
                self.samples.append(
                    {
                        "at": time.monotonic(),
                        "MB": int(resident) / 1024,
                        "descriptors": len(list(Path(f"/proc/{self.process}/fd").iterdir())),
                        "log MB": log.stat().st_size / 1e6,
                        "backlog": query(self.database, _LEFT)[0][0],
                    }
                )

    def hold_open(self) -> None:
        """Keep a read transaction open, in the second third of the time."""
        third = (self.ends_at - time.monotonic()) / 3
        time.sleep(third)
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM balances").fetchone()
            time.sleep(third)

    def differences(self) -> Iterator[str]:
        """Yield the errors of the final state."""
        counts = "SELECT count(*), count(DISTINCT webhook_id) FROM webhooks"
        stored, distinct = query(self.database, counts)[0]
        if not stored == distinct == self.sent:
            yield f"{self.sent:,} answered 200, {stored:,} stored"
        if (report := query(self.database, "PRAGMA integrity_check")) != [("ok",)]:
            yield f"integrity_check: {report}"
        differing = listed(self.provider.world).items() ^ mirrored(self.database).items()
        for wallet, token in dict(differing):
            yield f"token {token} of wallet {wallet} differs from the provider"

    def print_samples(self) -> None:
        """Print a line for each tenth of the samples."""
        step = max(1, len(self.samples) // 10)
        for start in range(0, len(self.samples), step):
            some = self.samples[start : start + step]
            most = {name: max(x[name] for x in some) for name in some[0]}
            print(
                f"minute {(some[0]['at'] - self.samples[0]['at']) / 60:4.1f}: {most['MB']:5.0f} MB,"
                f" {most['descriptors']:3.0f} descriptors, log {most['log MB']:6.1f} MB, "
                f"backlog {most['backlog']:7,.0f}"
            )


def main() -> None:
    """Run, and print the result; exit with 1 after an error."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--every", type=float, default=180, help="seconds between kills")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        SandboxServer(lambda url: generate(wallets=200, nfts=20, image_base=url)) as provider,
    ):
        database = Path(name) / "nftsync.db"
        wallets = provider.world.wallets()
        nftsync.sync(wallets, base_url=provider.url, database=database, progress=False)
        load = Load(provider, database, given.rate, time.monotonic() + 60 * given.minutes)
        work = [threading.Thread(target=load.send, args=(n + 1,)) for n in range(_SENDERS)]
        others = (load.transfer, load.sample, load.hold_open)
        work += [threading.Thread(target=each) for each in others]
        for thread in work:
            thread.start()
        kills = 0
        while time.monotonic() + given.every < load.ends_at:
            with load.serve() as server:
                time.sleep(given.every)
                server.stop(signal.SIGTERM if kills % 3 == 2 else signal.SIGKILL)
            kills += 1
        with load.serve() as server:
            for thread in work:
                thread.join()
            for wallet in wallets:  # each transfer is announced
                assert server.post(webhook("Wallet", wallet)) == 200
            load.sent += len(wallets)
            drains = time.monotonic()
            wait_until(lambda: query(database, _LEFT) == [(0,)], lambda: query(database, _LEFT))
            drained = time.monotonic() - drains
            time.sleep(6)  # unchanged wallets are read again after 5 s
            ended = server.stop()
        wrong = list(load.differences()) + [f"serve ended with {ended}"] * bool(ended)
    load.print_samples()
    print(
        f"{load.sent:,} webhooks answered 200 in {given.minutes:g} minutes, {load.repeated:,} sent"
        f" again, the slowest answer {load.slowest:.2f} s; {kills} kills and restarts; backlog"
        f" drained in {drained:.0f} s"
    )
    print("\n".join(wrong) or "No webhook was lost, and the mirror equals the provider.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
