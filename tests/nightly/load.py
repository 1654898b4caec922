"""Webhooks for half an hour into a `serve` that is killed and restarted.

Each webhook is sent until it is answered 200, as the provider does. Meanwhile NFTs change owners,
and for a third of the time a reader keeps a transaction open. In the end, each webhook with a 200
must be stored once, and the mirror must equal the provider's state.
"""

from __future__ import annotations

import http.client
import io
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, redirect_stdout, suppress
from pathlib import Path

import nftsync
from nftsync.sandbox.server import SandboxServer
from tests.kit.serve_process import Serve, free_port, query, serving, signed, webhook
from tests.kit.waiting import wait_until
from tests.kit.worlds import listed, mirrored
from tests.nightly.rounds import edit, run_seeds, sandbox

_SENDERS = 64
_LEFT = "SELECT count(*) FROM webhooks WHERE state <> 'done'"


class Load:
    def __init__(self, provider: SandboxServer, database: Path, rate: float, ends_at: float):
        self.provider, self.database, self.rate = provider, database, rate
        self.ends_at, self.port, self.process = ends_at, free_port(), 0

    def left(self) -> float:
        return self.ends_at - time.monotonic()

    @contextmanager
    def serve(self) -> Iterator[Serve]:
        with (
            redirect_stdout(io.StringIO()),
            serving(self.database.parent, self.provider.url, port=self.port) as server,
        ):
            self.process = server.process.pid
            yield server

    def send(self, sender: int) -> Counter[str]:
        """Send webhooks at a steady rate, each until it is answered 200."""
        rng, wallets = random.Random(sender), self.provider.world.wallets()
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        began, counts = time.monotonic(), Counter[str]()
        while self.left() > 0:
            time.sleep(max(0.0, began + counts["sent"] * _SENDERS / self.rate - time.monotonic()))
            body = webhook("Wallet", rng.choice(wallets))
            while not self._taken(link, body):
                counts["sent again"] += 1
                time.sleep(0.5)
            counts["sent"] += 1
        return counts

    def _taken(self, link: http.client.HTTPConnection, body: bytes) -> bool:
        with suppress(OSError, http.client.HTTPException):
            link.request("POST", "/webhooks", body, signed(body))
            answer = link.getresponse()
            answer.read()
            if answer.status == 200:
                return True
        link.close()
        return False

    def edit(self) -> None:
        rng = random.Random(0)
        while self.left() > 0:
            edit(self.provider, rng)
            time.sleep(0.2)

    def sample(self) -> None:
        """Print memory, descriptors, the log and the backlog, ten times."""
        log = self.database.with_name(self.database.name + "-wal")
        for left in range(9, -1, -1):
            time.sleep(self.left() / (left + 1))
            with suppress(OSError, sqlite3.Error):  # it is being killed
                status = Path(f"/proc/{self.process}/status").read_text()
                memory = int(status.partition("VmRSS:")[2].split()[0]) / 1024
                files = len(list(Path(f"/proc/{self.process}/fd").iterdir()))
                ((backlog,),) = query(self.database, _LEFT)
                print(
                    f"{memory:.0f} MB, {files} descriptors, log {log.stat().st_size / 1e6:.1f} MB,"
                    f" backlog {backlog:,}",
                    file=sys.stderr,
                )

    def hold_open(self) -> None:
        """Keep a read transaction open, in the second third of the time."""
        third = self.left() / 3
        time.sleep(third)
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM balances").fetchone()
            time.sleep(third)


def run_seed(_: int, folder: Path, *, minutes: float, rate: float, every: float) -> Counter[str]:
    database, counts = folder / "nftsync.db", Counter[str]()
    with sandbox(200, 20) as provider, ThreadPoolExecutor(_SENDERS + 3) as threads:
        wallets = provider.world.wallets()
        nftsync.sync(wallets, base_url=provider.url, database=database, progress=False)
        load = Load(provider, database, rate, time.monotonic() + 60 * minutes)
        senders = threads.map(load.send, range(1, _SENDERS + 1))
        others = [threads.submit(each) for each in (load.edit, load.sample, load.hold_open)]
        while load.left() > every:
            with load.serve() as server:
                time.sleep(every)
                server.stop(signal.SIGTERM if counts["kills"] % 3 == 2 else signal.SIGKILL)
            counts["kills"] += 1
        with load.serve() as server:
            counts += sum(senders, Counter[str]())
            for other in others:
                other.result()
            for wallet in wallets:  # each transfer is announced
                assert server.post(webhook("Wallet", wallet)) == 200
            wait_until(lambda: query(database, _LEFT) == [(0,)], lambda: query(database, _LEFT))
            time.sleep(6)  # unchanged wallets are read again after 5 s
            assert server.stop() == 0
    stored = query(database, "SELECT count(*), count(DISTINCT webhook_id) FROM webhooks")
    assert stored == [(counts["sent"] + len(wallets),) * 2], f"{counts}, stored: {stored}"
    assert query(database, "PRAGMA integrity_check") == [("ok",)]
    assert mirrored(database) == listed(provider.world)
    return counts


if __name__ == "__main__":
    run_seeds(__doc__, run_seed, minutes=30.0, rate=500.0, every=180.0)
