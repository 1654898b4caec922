"""Webhooks for half an hour into a `serve` that works them off, is killed, and starts again.

    python -m benchmarks.load [--minutes 30] [--rate 500] [--kill-every 180]

Each webhook is sent until it is answered 200, as the provider does. NFTs change hands meanwhile,
and for a third of the time a reader, as a notebook, holds a transaction open. In the end each
webhook that was answered 200 must be stored once, and the mirror be the provider's state.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

from benchmarks.webhooks import SECRET, call, free_port, provider, sync, wallets_of
from nftsync.provider.webhooks import HEADER, sign

_SENDERS = 64
#: The last trade, seconds before the last webhooks, which must tell of it.
_LAST_TRADE = 10.0
_LOOK_EVERY = 5.0


@dataclass
class Load:
    """What goes on, and what was seen of it."""

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
        command = [
            *(sys.executable, "-m", "nftsync", "serve", "--port", str(self.port)),
            *("--base-url", self.base, "-d", str(self.database)),
        ]
        env = {**os.environ, "NFTSYNC_WEBHOOK_SECRET": SECRET}
        with (self.database.parent / "serve.log").open("ab") as log:
            self.serving = subprocess.Popen(command, env=env, stderr=log)
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
            body = json.dumps(
                {
                    "id": str(uuid.UUID(int=(sender << 64) + count)),
                    "organizationId": str(uuid.UUID(int=1)),
                    "action": "update",
                    "resourceId": chance.choice(wallets),
                    "resourceType": "Wallet",
                    "createdAtUtc": "2026-01-31T12:00:00.1234567+00:00",
                    "changes": None,
                }
            ).encode()
            while not self._taken(link, body):
                time.sleep(0.5)
            count += 1
        with self.lock:
            self.sent += count

    def _taken(self, link: http.client.HTTPConnection, body: bytes) -> bool:
        headers = {HEADER: sign(SECRET, body), "Content-Type": "application/json"}
        began = time.monotonic()
        status = 0
        with suppress(OSError, http.client.HTTPException):
            link.request("POST", "/webhooks", body, headers)
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

    def trade(self, wallets: list[str]) -> None:
        """Let NFTs change hands, a few each second."""
        chance = random.Random(0)
        while time.monotonic() < self.ends_at - _LAST_TRADE:
            giver, taker = chance.sample(wallets, 2)
            with urlopen(f"{self.base}/v1/wallets/{giver}/nft-balances") as answer:
                held = [x for x in json.load(answer)["nftTokenBalances"] if int(x["amount"])]
            if held:
                token = chance.choice(held)["tokenId"]
                move = {"fromWalletId": giver, "toWalletId": taker, "tokenId": token, "amount": "1"}
                call("POST", f"{self.base}/sandbox/transfer", move)
            time.sleep(0.2)

    def look(self) -> None:
        """Note memory, descriptors, the log and the backlog, every few seconds."""
        while not self.over:
            time.sleep(_LOOK_EVERY)
            process = self.serving
            with suppress(OSError, sqlite3.Error, StopIteration):  # it is being killed
                if process is not None and process.poll() is None:
                    self.samples.append(self._sample(process.pid))

    def _sample(self, pid: int) -> dict[str, float]:
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
        """Read as a notebook does that keeps its transaction, in the second third of the time."""
        third = (self.ends_at - time.monotonic()) / 3
        time.sleep(third)
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM balances").fetchone()
            time.sleep(third)

    def backlog(self) -> int:
        with closing(sqlite3.connect(self.database)) as connection:
            (found,) = connection.execute(
                "SELECT count(*) FROM webhooks WHERE state NOT IN ('done')"
            ).fetchone()
        return int(found)

    def differences(self, wallets: list[str]) -> list[str]:
        """What does not hold in the end."""
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
                wrong.append(f"wallet {wallet} is not as the provider has it")
        return wrong


def _told(load: Load) -> None:
    """A line for each tenth of the samples."""
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
    """Load, and say what came of it; exits with 1 when something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--kill-every", type=float, default=180)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, provider(200, 20) as base:
        database = Path(name) / "load.db"
        sync(base, database)
        wallets = wallets_of(database)
        load = Load(base, database, given.rate)
        load.start()
        load.ends_at = time.monotonic() + 60 * given.minutes
        work = [
            *(threading.Thread(target=load.send, args=(n + 1, wallets)) for n in range(_SENDERS)),
            threading.Thread(target=load.trade, args=(wallets,)),
            *(threading.Thread(target=each) for each in (load.look, load.hold_open)),
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
        time.sleep(6)  # what showed no change is read once more after 5 s
        ended = load.stop(signal.SIGTERM)
        wrong = load.differences(wallets)
        log = (Path(name) / "serve.log").stat().st_size
    _told(load)
    print(
        f"{load.sent:,} webhooks answered 200 in {given.minutes:g} minutes, {load.repeated:,} sent"
        f" again, the slowest answer {load.slowest:.2f} s; {kills} kills and restarts; backlog"
        f" drained in {drained:.0f} s; {log / 1e6:.1f} MB of log lines"
    )
    if ended:
        wrong.append(f"serve ended with {ended}")
    print("\n".join(wrong) or "Nothing is lost, and the mirror is the provider's state.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
