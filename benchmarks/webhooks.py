"""Webhooks through a real `serve`: how soon the mirror follows, also beside a sync.

Five trials: a backlog of webhooks on many changed wallets and tokens, replayed; many webhooks on
few changed objects, taken in and then replayed; from a transfer to the changed row; webhooks at a
steady rate beside a sync in another process; and while `serve` itself syncs at a rate limit. The
provider is the sandbox, in a process of its own.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import socket
import sqlite3
import statistics
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

from benchmarks.figure import Figure
from nftsync.provider.webhooks import HEADER, read_webhook, sign
from nftsync.store import inbox
from nftsync.store.database import connect_writer
from nftsync.store.schema import open_store
from nftsync.times import now

SECRET = "a-secret-for-benchmarks"
TARGET = 400


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
    open_store(database).close()  # once here: a new one needs slow imports
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


def webhook(resource_type: str, resource_id: str) -> bytes:
    """A webhook's body."""
    return json.dumps(
        {
            "organizationId": str(uuid.UUID(int=1)),
            "action": "update",
            "id": str(uuid.UUID(int=random.getrandbits(128), version=4)),
            "resourceId": resource_id,
            "resourceType": resource_type,
            "createdAtUtc": "2026-01-31T12:00:00.1234567+00:00",
            "changes": None,
        }
    ).encode()


def post_all(
    url: str, wallets: list[str], per_second: float | None, waits: list[float] | None = None
) -> Counter[int]:
    """Send a webhook for each wallet in turn; the statuses, by how often they came.

    Args:
        waits: gets the seconds until each answer.
    """
    statuses: Counter[int] = Counter()
    began = time.monotonic()
    with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)) as link:
        for number, wallet in enumerate(wallets):
            if per_second is not None:
                time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            body = webhook("Wallet", wallet)
            headers = {HEADER: sign(SECRET, body), "Content-Type": "application/json"}
            sent = time.perf_counter()
            link.request("POST", "/webhooks", body, headers)
            answer = link.getresponse()
            answer.read()
            statuses[answer.status] += 1
            if waits is not None:
                waits.append(time.perf_counter() - sent)
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


def edit(base: str, token: str) -> None:
    """Change a token's metadata."""
    call("POST", f"{base}/sandbox/tokens/{token}", {"metadata": {"name": f"Now {token}"}})


def put_in(database: Path, bodies: list[bytes]) -> None:
    """Store webhooks as the receiver does, a hundred at a time."""
    with closing(connect_writer(database)) as connection:
        for start in range(0, len(bodies), 100):
            deliveries = [
                inbox.Delivery(body, read_webhook(body, None))
                for body in bodies[start : start + 100]
            ]
            connection.execute("BEGIN IMMEDIATE")
            inbox.store(connection, deliveries, now())
            connection.execute("COMMIT")


def fill_backlog(base: str, database: Path, wallets: int, tokens: int) -> None:
    """Change wallets and tokens of a mirror's provider, with two webhooks on each in its inbox."""
    sync(base, database)
    changed = wallets_of(database)[:wallets]
    change_all(base, changed)
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(
            "SELECT token_id FROM tokens ORDER BY token_id LIMIT ?", (tokens,)
        ).fetchall()
    for (token,) in rows:
        edit(base, token)
    objects = [("Wallet", wallet) for wallet in changed] + [("Token", row[0]) for row in rows]
    random.shuffle(objects)
    put_in(database, [webhook(*each) for each in objects * 2])


def replay(base: str, database: Path) -> dict[str, float]:
    """Work off what waits in the inbox."""
    command = [sys.executable, "-m", "nftsync", "replay", "--json", "--base-url", base]
    done = subprocess.run([*command, "-d", str(database)], capture_output=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def backlog(folder: Path, wallets: int, tokens: int, rounds: int) -> float:
    """Objects a second, of a backlog with two webhooks on each: the median of some rounds."""
    database = folder / "backlog.db"
    rates = []
    with provider(wallets, 20) as base:
        fill_backlog(base, database, wallets, tokens)
        for turn in range(rounds):
            copy = folder / f"backlog-{turn}.db"
            with closing(sqlite3.connect(database)) as old, closing(sqlite3.connect(copy)) as new:
                old.backup(new)
            found = replay(base, copy)
            if found["done"] != 2 * (wallets + tokens):
                raise SystemExit(f"the replay did not go well: {found}")
            rates.append(found["fetches"] / found["seconds"])
    return statistics.median(rates)


def burst(folder: Path, webhooks: int, objects: int) -> dict[str, float]:
    """Many webhooks on some changed wallets, stored first and replayed then."""
    database = folder / "burst.db"
    with provider(objects, 20) as base:
        sync(base, database)
        wallets = wallets_of(database)
        change_all(base, wallets)
        with serving(base, database, "--no-replay") as url:
            began = time.perf_counter()
            statuses = post_all(url, wallets * (webhooks // len(wallets)), None)
            taken = time.perf_counter() - began
        found = replay(base, database)
    if statuses != {200: webhooks}:
        raise SystemExit(f"the receiver answered {dict(statuses)}")
    return found | {"taken_in": taken}


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


def freshness(folder: Path, transfers: int, wallets: int) -> list[float]:
    """How long each of some transfers took to show, in seconds."""
    database = folder / "fresh.db"
    with provider(wallets, 20) as base:
        sync(base, database)
        with serving(base, database) as url:
            configure(base, url)
            return follow_transfers(base, database, transfers)


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


def figures(*, small: bool = False) -> list[Figure]:
    """Objects a second from the inbox, reads for many webhooks, and how soon a change is there.

    Args:
        small: a quick run, only to see that it works.
    """
    wallets, tokens, rounds = (20, 10, 1) if small else (3_000, 1_000, 3)
    webhooks, transfers, objects = (200, 5, 20) if small else (10_000, 200, 500)
    with tempfile.TemporaryDirectory() as name:
        rate = backlog(Path(name), wallets, tokens, rounds)
        found = burst(Path(name), webhooks, objects)
        waits = freshness(Path(name), transfers, objects)
    return [
        Figure(
            f"replay of {wallets + tokens:,} changed objects, two webhooks on each",
            f"{rate:,.0f} objects/s",
            target=f"at least {TARGET}",
            met=rate >= TARGET,
        ),
        Figure(
            f"replay of {webhooks:,} webhooks on {objects} changed wallets",
            f"{found['fetches']} reads in {found['seconds']:.2f} s",
        ),
        Figure(f"from a transfer to the changed row, {transfers} times", percentiles(waits)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transfers", type=int, default=200)
    parser.add_argument("--wallets", type=int, default=5_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rate = backlog(folder, 3_000, 1_000, 3)
        print(f"a backlog of 4,000 changed objects, two webhooks on each: {rate:.0f} objects/s")
        found = burst(folder, 10_000, 500)
        print(
            "10,000 webhooks on 500 changed wallets: taken in in "
            f"{found['taken_in']:.1f} s over one connection, replayed in {found['seconds']:.2f} s "
            f"with {found['fetches']} reads"
        )
        waits = freshness(folder, given.transfers, 500)
        print(f"from a transfer to the changed row: {percentiles(waits)}")
        beside_a_sync(folder, given.wallets, 200)
        beside_own_sync(folder, given.transfers)


if __name__ == "__main__":
    main()
