"""Webhooks through a real `serve`: how soon the mirror follows, also beside a sync.

Four trials: many webhooks on few changed objects, taken in and then replayed; from a transfer to
the changed row; webhooks at a steady rate beside a sync in another process; and while `serve`
itself syncs at a rate limit. The provider is the sandbox, in a process of its own.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from nftsync.signature import HEADER, sign

SECRET = "a-secret-for-benchmarks"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(*arguments: str, ready: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command of nftsync's, once an address answers, until the block ends."""
    command = [sys.executable, "-m", "nftsync", *arguments]
    env = {**os.environ, "NFTSYNC_WEBHOOK_SECRET": SECRET}
    with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                try:
                    with urlopen(ready):
                        break
                except OSError:
                    time.sleep(0.02)
            yield process
        finally:
            process.terminate()
            process.wait()


@contextmanager
def provider(wallets: int, nfts: int) -> Iterator[str]:
    url = f"http://127.0.0.1:{(port := free_port())}"
    arguments = ["sandbox", "--port", str(port), "--wallets", str(wallets), "--nfts", str(nfts)]
    with running(*arguments, ready=f"{url}/sandbox/wallets"):
        yield url


@contextmanager
def serving(base: str, database: Path, *more: str) -> Iterator[str]:
    url = f"http://127.0.0.1:{(port := free_port())}"
    arguments = ["serve", "--port", str(port), "--base-url", base, "-d", str(database), *more]
    with running(*arguments, ready=f"{url}/readyz"):
        yield url


def call(method: str, url: str, body: object) -> dict[str, object]:
    request = Request(url, json.dumps(body).encode(), method=method)
    with urlopen(request) as answer:
        found: dict[str, object] = json.load(answer)
        return found


def sync(base: str, database: Path, *more: str) -> dict[str, object]:
    ids = database.with_suffix(".txt")
    with urlopen(f"{base}/sandbox/wallets") as answer:
        ids.write_text("\n".join(json.load(answer)))
    command = [
        *(sys.executable, "-m", "nftsync", "sync", "--json", "--base-url", base),
        *("-d", str(database), "--wallets-file", str(ids), *more),
    ]
    done = subprocess.run(command, capture_output=True, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def wallets_of(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return [row[0] for row in connection.execute("SELECT wallet_id FROM wallets")]


def webhook(wallet: str) -> tuple[str, bytes, dict[str, str]]:
    """A signed webhook on a wallet: its id, body and headers."""
    number = str(uuid.UUID(int=random.getrandbits(128), version=4))
    body = json.dumps(
        {
            "organizationId": str(uuid.UUID(int=1)),
            "action": "update",
            "id": number,
            "resourceId": wallet,
            "resourceType": "Wallet",
            "createdAtUtc": "2026-01-31T12:00:00.1234567+00:00",
            "changes": None,
        }
    ).encode()
    return number, body, {HEADER: sign(SECRET, body), "Content-Type": "application/json"}


def post_all(url: str, wallets: list[str], per_second: float | None) -> Counter[int]:
    """Send a webhook for each wallet in turn; the statuses, by how often they came."""
    link = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    statuses: Counter[int] = Counter()
    began = time.monotonic()
    for number, wallet in enumerate(wallets):
        if per_second is not None:
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))
        _, body, headers = webhook(wallet)
        link.request("POST", "/webhooks", body, headers)
        answer = link.getresponse()
        answer.read()
        statuses[answer.status] += 1
    return statuses


def change_all(base: str, wallets: list[str]) -> None:
    """Let every wallet give an NFT to its neighbour."""
    for giver, taker in zip(wallets[::2], wallets[1::2], strict=True):
        transfer(base, giver, taker)


def transfer(base: str, giver: str, taker: str) -> str:
    with urlopen(f"{base}/v1/wallets/{giver}/nft-balances") as answer:
        token = random.choice(json.load(answer)["nftTokenBalances"])["tokenId"]
    ids = {"fromWalletId": giver, "toWalletId": taker, "tokenId": token, "amount": 1}
    call("POST", f"{base}/sandbox/transfer", ids)
    return str(token)


def burst(folder: Path) -> None:
    """10,000 webhooks on 500 changed objects, stored first and replayed then."""
    database = folder / "burst.db"
    with provider(500, 20) as base:
        sync(base, database)
        wallets = wallets_of(database)
        change_all(base, wallets)
        with serving(base, database, "--no-replay") as url:
            began = time.perf_counter()
            statuses = post_all(url, wallets * 20, None)
            taken = time.perf_counter() - began
        command = [sys.executable, "-m", "nftsync", "replay", "--json", "--base-url", base]
        done = subprocess.run([*command, "-d", str(database)], capture_output=True, check=True)
        found = json.loads(done.stdout)
    print(
        f"10,000 webhooks on 500 changed wallets: taken in in {taken:.1f} s over one connection "
        f"({dict(statuses)}), replayed in {found['seconds']:.2f} s with {found['fetches']} reads "
        f"({found['fetches'] / found['seconds']:.0f} objects/s)"
    )


def percentiles(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    middle, late = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"median {middle * 1000:.0f} ms, p99 {late * 1000:.0f} ms, worst {ordered[-1]:.3f} s"


def configure(base: str, url: str) -> None:
    path = "/api/organization/v1/current-organization/webhook-config"
    settings = {"url": f"{url}/webhooks", "enabled": True, "sharedSecret": SECRET}
    call("PATCH", base + path, {**settings, "webhookTypes": ["nft"]})


def follow_transfers(base: str, database: Path, transfers: int) -> list[float]:
    """From asking for a transfer until the row of who got it has changed, in seconds."""
    wallets = wallets_of(database)
    waits = []
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        for _ in range(transfers):
            giver, taker = random.sample(wallets, 2)
            (before,) = connection.execute(
                "SELECT coalesce(max(change_id), 0) FROM balance_changes"
            ).fetchone()
            began = time.perf_counter()
            token = transfer(base, giver, taker)
            while not connection.execute(
                "SELECT 1 FROM balance_changes WHERE change_id > ? AND wallet_id = ?"
                " AND token_id = ?",
                (before, taker, token),
            ).fetchone():
                time.sleep(0.001)
            waits.append(time.perf_counter() - began)
    return waits


def freshness(folder: Path, transfers: int) -> None:
    database = folder / "fresh.db"
    with provider(500, 20) as base:
        sync(base, database)
        with serving(base, database) as url:
            configure(base, url)
            waits = follow_transfers(base, database, transfers)
    print(f"from a transfer to the changed row, {transfers} transfers: {percentiles(waits)}")


def beside_a_sync(folder: Path, wallets: int, per_second: float) -> None:
    """Webhooks at a steady rate for as long as a sync in another process lasts."""
    database = folder / "beside.db"
    with provider(wallets, 20) as base:
        sync(base, database)
        known = wallets_of(database)
        with serving(base, database) as url:
            found: list[Counter[int]] = []
            stop = threading.Event()

            def send() -> None:
                while not stop.is_set():
                    found.append(post_all(url, random.choices(known, k=100), per_second))

            sender = threading.Thread(target=send)
            sender.start()
            # Into a fresh copy of nothing: every wallet's rows are written anew.
            with closing(sqlite3.connect(database)) as connection:
                connection.execute("UPDATE wallets SET body_sha256 = NULL, etag = NULL")
                connection.commit()
            result = sync(base, database)
            stop.set()
            sender.join()
    statuses = sum(found, Counter())
    print(
        f"{per_second:.0f} webhooks/s beside a sync of {wallets:,} wallets in another process "
        f"({result['seconds']} s, {result['status']}): answers {dict(statuses)}"
    )


def beside_own_sync(folder: Path, transfers: int) -> None:
    """Transfers followed while the same process syncs at a rate limit."""
    database = folder / "own.db"
    with provider(2_000, 20) as base:
        sync(base, database)
        with serving(base, database, "--sync-every", "1s", "--rate-limit", "50") as url:
            configure(base, url)
            waits = follow_transfers(base, database, transfers)
    print(f"while serve syncs at 50 requests/s, {transfers} transfers: {percentiles(waits)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transfers", type=int, default=200)
    parser.add_argument("--wallets", type=int, default=5_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        burst(folder)
        freshness(folder, given.transfers)
        beside_a_sync(folder, given.wallets, 200)
        beside_own_sync(folder, given.transfers)


if __name__ == "__main__":
    main()
