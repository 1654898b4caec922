"""Measures `nftsync.frames` against `pandas.read_sql` on a synthetic database.

    python benchmarks/frames.py                      # 50,000 wallets x 20, 500,000 tokens
    python benchmarks/frames.py --wallets 5000 --tokens 50000 --later-changes 100000

With `--database FILE` the database is kept there and used again by the next run.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pandas as pd

from nftsync import frames
from nftsync.store.schema import open_store
from nftsync.times import format_time

START = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = ("gold", "silver", "dragon", "pixel", "moon", "ape", "cyber", "art", "wave", "stone")


def moment(seconds: float) -> str:
    return format_time(START + timedelta(seconds=seconds))


def uuid(chance: random.Random) -> str:
    return str(UUID(int=chance.getrandbits(128), version=4))


def token_rows(count: int, chance: random.Random) -> Iterator[tuple[object, ...]]:
    contracts = [f"0x{chance.getrandbits(160):040x}" for _ in range(200)]
    organization = uuid(chance)
    for number in range(1, count + 1):
        description = " ".join(chance.choices(WORDS, k=15))[:80].ljust(80, ".")
        seen = moment(number / 100)
        yield (
            uuid(chance), organization, contracts[number % 200], str(number),
            f"{chance.choice(WORDS)} #{number}", description,
            f"ipfs://bafybeigdyrzt5sfp7udm7hu76uh7y26nf3/{number}.png",
            f"https://example.com/token/{number}", number % 1000, 1000, chance.choice(WORDS),
            seen, seen, number,
        )  # fmt: skip


def fill(path: Path, wallets: int, each: int, tokens: int, later: int) -> None:
    chance = random.Random(7)
    connection = open_store(path)
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "INSERT INTO tokens (token_id, organization_id, contract_address, blockchain_token_id,"
        " name, description, image, external_url, edition_id, total_edition, creator_name,"
        " first_seen_at, updated_at, token_no, ticket, changed_ticket)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 1)",
        token_rows(tokens, chance),
    )
    connection.executemany(
        "INSERT INTO wallets (wallet_id, label, first_seen_at, synced_at, status, wallet_no)"
        " VALUES (?, ?, ?, ?, 'ok', ?)",
        (
            (uuid(chance), f"wallet {number}", moment(0), moment(10_000), number)
            for number in range(1, wallets + 1)
        ),
    )
    held: dict[tuple[int, int], list[str]] = {}
    log = []
    for wallet in range(1, wallets + 1):
        seen = moment(6_000 + wallet // 50)
        for token in chance.sample(range(1, tokens + 1), each):
            amount = str(chance.choice((1, 1, 1, 2, 5, 100)))
            held[wallet, token] = [amount, seen, seen]
            log.append((wallet, token, None, amount, seen, 1))
    pairs = list(held)
    for number in range(later):
        pair = pairs[chance.randrange(len(pairs))]
        seen = moment(20_000 + number // 20)
        new = str(chance.choice((0, 1, 2, 3)))
        old = held[pair][0]
        if new != old:
            held[pair] = [new, seen, seen]
        log.append((*pair, old, new, seen, 0))
    connection.executemany(
        "INSERT INTO balance_change_rows"
        " (wallet_no, token_no, old_amount, new_amount, observed_at, baseline)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        log,
    )
    connection.executemany(
        "INSERT INTO balance_rows VALUES (?, ?, ?, ?, ?, ?)",
        (
            (*pair, amount, None if amount == "0" else since, moment(0), updated)
            for pair, (amount, since, updated) in sorted(held.items())
        ),
    )
    connection.executemany(
        "INSERT INTO wallet_state_rows"
        " (wallet_no, first_read_at, last_read_at, reads, body_sha256, observed_at)"
        " VALUES (?, ?, ?, 1, '', ?)",
        (
            (wallet, moment(at), moment(at + 100), moment(at + 1))
            for at in (6_000, 20_000, 40_000)
            for wallet in range(1, wallets + 1)
        ),
    )
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


def measured(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
        del result
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wallets", type=int, default=50_000)
    parser.add_argument("--per-wallet", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=500_000)
    parser.add_argument("--later-changes", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--database", type=Path, help="keep the database here, or use it again")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.database or Path(folder) / "frames.db"
        if not path.exists():
            print("filling the database …", file=sys.stderr)
            fill(path, given.wallets, given.per_wallet, given.tokens, given.later_changes)
        connection = sqlite3.connect(path)
        one = connection.execute(
            "SELECT wallet_id FROM wallets ORDER BY wallet_no DESC LIMIT 1"
        ).fetchone()[0]
        contract = connection.execute("SELECT contract_address FROM tokens LIMIT 1").fetchone()[0]
        last = connection.execute("SELECT max(change_id) FROM balance_change_rows").fetchone()[0]
        cases: dict[str, Callable[[], object]] = {
            "read_sql('select * from holdings')": lambda: pd.read_sql(
                "SELECT * FROM holdings", connection
            ),
            "holdings()": lambda: frames.holdings(path),
            "holdings(wallet=)": lambda: frames.holdings(path, wallet=one),
            "holdings(contract=)": lambda: frames.holdings(path, contract=contract),
            "holdings(as_of=) before the later changes": lambda: frames.holdings(
                path, as_of=moment(15_000)
            ),
            "holdings(as_of=) after them all": lambda: frames.holdings(path, as_of="2027-01-01"),
            "holdings(wallet=, as_of=)": lambda: frames.holdings(
                path, wallet=one, as_of="2027-01-01"
            ),
            "tokens()": lambda: frames.tokens(path),
            "changes()": lambda: frames.changes(path),
            "changes(after=) of 10 rows": lambda: frames.changes(path, after=last - 10),
            "collections()": lambda: frames.collections(path),
        }
        base = 0.0
        print(f"{'what':44}{'seconds':>10}{'read_sql / it':>15}")
        for name, work in cases.items():
            seconds = measured(work, given.repeats)
            base = base or seconds
            print(f"{name:44}{seconds:>10.3f}{base / seconds:>14.1f}x", flush=True)
        connection.close()


if __name__ == "__main__":
    main()
