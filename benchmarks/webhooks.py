"""Webhooks through commands: how soon the mirror follows, and how long webhooks wait.

Four trials: replay of a backlog on many changed wallets and tokens; replay of many webhooks on few
changed wallets; from a transfer to the changed row; and webhooks at a steady rate to a `serve`
during a first sync of the same database by another process. The sandbox is the provider.
"""

from __future__ import annotations

import json
import random
import sqlite3
import statistics
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

from benchmarks.commands import (
    SECRET,
    call,
    copied,
    post_all,
    query,
    result,
    sandbox,
    serving,
    sync,
    wallets_of,
    webhook,
)
from benchmarks.figure import Figure

TARGET = 400


def transfer(base: str, sender: str, receiver: str) -> str:
    """Transfer one of a wallet's tokens; return the token."""
    with urlopen(f"{base}/v1/wallets/{sender}/nft-balances") as response:
        token = random.choice(json.load(response)["nftTokenBalances"])["tokenId"]
    ids = {"fromWalletId": sender, "toWalletId": receiver, "tokenId": token, "amount": 1}
    call("POST", f"{base}/sandbox/transfer", ids)
    return str(token)


def change_all(base: str, wallets: list[str]) -> None:
    """Transfer a token from every second wallet to the next one."""
    for sender, receiver in zip(wallets[::2], wallets[1::2], strict=True):
        transfer(base, sender, receiver)


def store(base: str, database: Path, objects: list[tuple[str, str]]) -> None:
    """Send webhooks to a receiver that does not replay them."""
    with serving(base, database, "--no-replay") as url:
        post_all(url, [webhook(*names) for names in objects])


def replay(base: str, database: Path, webhooks: int) -> dict[str, float]:
    values = result("replay", "--base-url", base, "-d", database)
    if values["done"] != webhooks:
        raise SystemExit(f"not all webhooks were replayed: {values}")
    return values


def backlog(folder: Path, wallets: int, tokens: int, rounds: int) -> float:
    """Replay two webhooks on each changed object; return the median of the objects per second."""
    database, rates = folder / "backlog.db", []
    with sandbox(wallets, 20) as base:
        sync(base, database)
        changed = wallets_of(database)
        change_all(base, changed)
        rows = query(database, "SELECT token_id FROM tokens ORDER BY token_id LIMIT ?", tokens)
        for (token,) in rows:
            call("POST", f"{base}/sandbox/tokens/{token}", {"metadata": {"name": f"Now {token}"}})
        objects = [("Wallet", wallet) for wallet in changed] + [("Token", row[0]) for row in rows]
        random.shuffle(objects)
        store(base, database, 2 * objects)
        for _ in range(rounds):
            values = replay(base, copied(database, folder / "copy.db"), 2 * len(objects))
            rates.append(values["fetches"] / values["seconds"])
    return statistics.median(rates)


def burst(folder: Path, webhooks: int, wallets: int) -> dict[str, float]:
    """Replay many webhooks on few changed wallets."""
    database = folder / "burst.db"
    with sandbox(wallets, 20) as base:
        sync(base, database)
        known = wallets_of(database)
        change_all(base, known)
        store(base, database, [("Wallet", wallet) for wallet in known] * (webhooks // wallets))
        return replay(base, database, webhooks)


def configure(base: str, url: str) -> None:
    """Let the sandbox send its webhooks to a receiver."""
    path = "/api/organization/v1/current-organization/webhook-config"
    settings = {"url": f"{url}/webhooks", "enabled": True, "sharedSecret": SECRET}
    call("PATCH", base + path, settings | {"webhookTypes": ["nft"]})


def freshness(folder: Path, transfers: int, wallets: int) -> list[float]:
    """Return the seconds from each transfer's request to the receiving wallet's changed row."""
    database, waits = folder / "fresh.db", []
    change = "SELECT 1 FROM balance_changes WHERE change_id > ? AND wallet_id = ? AND token_id = ?"
    with sandbox(wallets, 20) as base:
        sync(base, database)
        known = wallets_of(database)
        with (
            serving(base, database) as url,
            closing(sqlite3.connect(database, isolation_level=None)) as connection,
        ):
            configure(base, url)
            for _ in range(transfers):
                sender, receiver = random.sample(known, 2)
                newest = "SELECT coalesce(max(change_id), 0) FROM balance_changes"
                (before,) = connection.execute(newest).fetchone()
                began = time.perf_counter()
                token = transfer(base, sender, receiver)
                while not connection.execute(change, (before, receiver, token)).fetchone():
                    time.sleep(0.001)
                waits.append(time.perf_counter() - began)
    return waits


def during_a_first_sync(folder: Path, wallets: int, webhooks: int) -> list[float]:
    """Return the seconds until the response to each webhook, 50 per second."""
    database = folder / "first.db"
    with sandbox(wallets, 20) as base, serving(base, database) as url:
        with urlopen(f"{base}/sandbox/wallets") as response:
            ids = random.choices(json.load(response), k=webhooks)
        syncing = threading.Thread(target=sync, args=(base, database))
        syncing.start()
        waits = post_all(url, [webhook("Wallet", wallet) for wallet in ids], 50)
        syncing.join()
    return waits


def percentiles(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    median, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"median {median * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, worst {ordered[-1]:.3f} s"


def figures(*, small: bool = False) -> list[Figure]:
    """Run the trials; about 4 minutes."""
    wallets, tokens, rounds = (20, 10, 1) if small else (3_000, 1_000, 3)
    webhooks, transfers, objects = (200, 5, 20) if small else (10_000, 200, 500)
    synced, sent = (20, 20) if small else (5_000, 200)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rate = backlog(folder, wallets, tokens, rounds)
        replayed = burst(folder, webhooks, objects)
        waits = freshness(folder, transfers, objects)
        answers = during_a_first_sync(folder, synced, sent)
    return [
        Figure(
            f"replay of {wallets + tokens:,} changed objects, two webhooks on each",
            f"{rate:,.0f} objects/s",
            target=f"at least {TARGET}",
            met=rate >= TARGET,
        ),
        Figure(
            f"replay of {webhooks:,} webhooks on {objects} changed wallets",
            f"{replayed['fetches']} reads in {replayed['seconds']:.2f} s",
        ),
        Figure(f"from a transfer to the changed row, {transfers} times", percentiles(waits)),
        Figure(
            f"wait for the reply to {sent} webhooks during a first sync of {synced:,} wallets",
            percentiles(answers),
        ),
    ]
