"""Webhooks for half an hour into a `serve` that is killed and restarted.

    make load
    python -m tests.nightly.load [--minutes 30] [--rate 500] [--kill-every 180]

Each webhook is sent until it is answered 200, as the provider does. Meanwhile NFTs change owners,
and for a third of the time a reader keeps a transaction open. In the end, each webhook with a 200
must be stored once, and the mirror must equal the provider's state.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

from benchmarks.commands import (
    environment,
    free_port,
    program,
    query,
    sandbox,
    signed,
    sync,
    wallets_of,
    webhook,
)
from benchmarks.webhooks import transfer

_SENDERS = 64
#: Seconds between the last transfer and the last webhooks, which must announce it.
_LAST_TRANSFER = 10.0
_SAMPLE_EVERY = 5.0


@dataclass
class Load:
    """The webhooks, the process under load, and samples of it."""

    base: str
    database: Path
    rate: float
    port: int = field(default_factory=free_port)
    ends_at: float = 0.0
    sent: int = 0
    repeated: int = 0
    starts: int = 0
    slowest: float = 0.0
    errors: list[str] = field(default_factory=list)
    serving: subprocess.Popen[bytes] | None = None
    samples: list[dict[str, float]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.ends_at

    def start(self) -> None:
        """Start `serve`, and wait until it takes webhooks."""
        options = ("--port", str(self.port), "--base-url", self.base, "-d", self.database)
        with (self.database.parent / "serve.log").open("ab") as log:
            command = program("serve", *options)
            self.serving = subprocess.Popen(command, env=environment(), stderr=log)
        self.starts += 1
        for _ in range(600):
            with suppress(OSError), urlopen(f"http://127.0.0.1:{self.port}/readyz"):
                return
            time.sleep(0.05)
        raise SystemExit("serve does not start")

    def stop(self, how: signal.Signals) -> int:
        if self.serving is None:
            raise AssertionError("it was never started")
        self.serving.send_signal(how)
        return self.serving.wait()

    def send(self, sender: int, wallets: list[str]) -> None:
        """Send webhooks at a steady rate, each until it is answered 200."""
        chance = random.Random(sender)
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        began = time.monotonic()
        count = 0
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
        status = 0
        with suppress(OSError, http.client.HTTPException):
            link.request("POST", "/webhooks", body, signed(body))
            answer = link.getresponse()
            answer.read()
            status = answer.status
        if status == 200:
            self.slowest = max(self.slowest, time.monotonic() - began)
            return True
        link.close()
        with self.lock:
            self.repeated += 1
        return False

    def transfer(self, wallets: list[str]) -> None:
        """Transfer a few NFTs each second."""
        chance = random.Random(0)
        while time.monotonic() < self.ends_at - _LAST_TRANSFER:
            with suppress(IndexError, OSError):  # an empty wallet
                transfer(self.base, *chance.sample(wallets, 2))
            time.sleep(0.2)

    def sample(self) -> None:
        """Sample memory, descriptors, the log and the backlog, every few seconds."""
        while not self.over:
            time.sleep(_SAMPLE_EVERY)
            process = self.serving
            with suppress(OSError, sqlite3.Error, StopIteration):  # it is being killed
                if process is not None and process.poll() is None:
                    self.samples.append(self._values(process.pid))

    def _values(self, pid: int) -> dict[str, float]:
        status = Path(f"/proc/{pid}/status").read_text()
        resident = next(x for x in status.splitlines() if x.startswith("VmRSS")).split()[1]
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection:
            (backlog,) = connection.execute(
                "SELECT count(*) FROM webhooks WHERE state IN ('pending', 'running', 'failed')"
            ).fetchone()
        return {
            "at": time.monotonic(),
            "MB": int(resident) / 1024,
            "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
            "log MB": self.database.with_name(self.database.name + "-wal").stat().st_size / 1e6,
            "backlog": backlog,
        }

    def hold_open(self) -> None:
        """Keep a read transaction open, in the second third of the time."""
        third = (self.ends_at - time.monotonic()) / 3
        time.sleep(third)
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM balances").fetchone()
            time.sleep(third)

    def backlog(self) -> int:
        return int(
            query(self.database, "SELECT count(*) FROM webhooks WHERE state <> 'done'")[0][0]
        )

    def differences(self, wallets: list[str]) -> list[str]:
        """Return the errors of the final state."""
        with closing(sqlite3.connect(self.database)) as connection:
            stored, distinct = connection.execute(
                "SELECT count(*), count(DISTINCT webhook_id) FROM webhooks"
            ).fetchone()
            (whole,) = connection.execute("PRAGMA integrity_check").fetchone()
            mirror: dict[str, dict[str, str]] = {}
            for wallet, token, amount in connection.execute(
                "SELECT wallet_id, token_id, amount FROM balances"
            ):
                mirror.setdefault(wallet, {})[token] = amount
        wrong = []
        if not stored == distinct == self.sent:
            wrong.append(f"{self.sent:,} answered 200, {stored:,} stored")
        if whole != "ok":
            wrong.append(f"integrity_check: {whole}")
        for wallet in wallets:
            with urlopen(f"{self.base}/v1/wallets/{wallet}/nft-balances") as answer:
                listed = {x["tokenId"]: x["amount"] for x in json.load(answer)["nftTokenBalances"]}
            if listed != mirror.get(wallet, {}):
                wrong.append(f"wallet {wallet} differs from the provider")
        return wrong


def _print_samples(load: Load) -> None:
    """Print a line for each tenth of the samples."""
    step = max(1, len(load.samples) // 10)
    began = load.samples[0]["at"]
    for start in range(0, len(load.samples), step):
        some = load.samples[start : start + step]
        most = {name: max(x[name] for x in some) for name in some[0]}
        print(
            f"minute {(some[0]['at'] - began) / 60:4.1f}: {most['MB']:5.0f} MB, "
            f"{most['descriptors']:3.0f} descriptors, log {most['log MB']:6.1f} MB, "
            f"backlog {most['backlog']:7,.0f}"
        )


def main() -> None:
    """Run, and print the result; exit with 1 after an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--kill-every", type=float, default=180)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, sandbox(200, 20) as base:
        database = Path(name) / "load.db"
        sync(base, database)
        wallets = wallets_of(database)
        load = Load(base, database, given.rate)
        load.start()
        load.ends_at = time.monotonic() + 60 * given.minutes
        work = [
            *(threading.Thread(target=load.send, args=(n + 1, wallets)) for n in range(_SENDERS)),
            threading.Thread(target=load.transfer, args=(wallets,)),
            *(threading.Thread(target=each) for each in (load.sample, load.hold_open)),
        ]
        for thread in work:
            thread.start()
        kills = 0
        while time.monotonic() + given.kill_every < load.ends_at:
            time.sleep(given.kill_every)
            load.stop(signal.SIGTERM if kills % 3 == 2 else signal.SIGKILL)
            kills += 1
            load.start()
        for thread in work:
            thread.join()
        drains = time.monotonic()
        while load.backlog() and time.monotonic() - drains < 600:
            time.sleep(0.5)
        drained = time.monotonic() - drains
        time.sleep(6)  # unchanged wallets are read again after 5 s
        ended = load.stop(signal.SIGTERM)
        wrong = load.differences(wallets)
        log = (Path(name) / "serve.log").stat().st_size
    _print_samples(load)
    print(
        f"{load.sent:,} webhooks answered 200 in {given.minutes:g} minutes, {load.repeated:,} sent"
        f" again, the slowest answer {load.slowest:.2f} s; {kills} kills and restarts; backlog"
        f" drained in {drained:.0f} s; {log / 1e6:.1f} MB of log lines"
    )
    if ended:
        wrong.append(f"serve ended with {ended}")
    print("\n".join(wrong) or "No webhook was lost, and the mirror equals the provider.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
