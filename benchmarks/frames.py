"""Frames, in comparison with `pandas.read_sql`: 1,000,000 balances, and the same after a year.

50,000 wallets each hold 20 of 500,000 tokens. Then 52 weekly syncs each find 2 % of the balances
changed.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pandas as pd

from benchmarks.commands import query
from benchmarks.figure import Figure
from benchmarks.weekly_syncs import add_weeks
from nftsync import frames
from nftsync.store.contracts import name_new_tokens
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
            f"ipfs://bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi/{number}.png",
            f"https://example.com/token/{number}", number % 1000, 1000, chance.choice(WORDS),
            seen, seen, number,
        )  # fmt: skip


def listed_tokens(
    known: int, each: int, known_then: int, chance: random.Random
) -> tuple[list[int], int]:
    """Return the numbers of the `each` tokens that a wallet lists, and of all tokens known then.

    The wallet lists some tokens first, and others that wallets listed shortly before. `known_then`
    is the number of known tokens after it, if its list is long enough.
    """
    new = min(max(known_then - known, each - known), each)
    recent = range(max(1, known + 1 - 50 * each), known + 1)
    return [*chance.sample(recent, each - new), *range(known + 1, known + new + 1)], known + new


def fill(
    path: Path, wallets: int, each: int, tokens: int, read_at: tuple[int, ...] = (6_000,)
) -> None:
    """Create a database with `each` balances per wallet, and wallet states at some seconds."""
    chance = random.Random(7)
    connection = open_store(path)
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "INSERT INTO tokens (token_id, organization_id, contract_address, blockchain_token_id,"
        " name, description, image, external_url, edition_id, total_edition, creator_name,"
        " first_seen_at, updated_at, token_no, sequence, changed_sequence)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 1)",
        token_rows(tokens, chance),
    )
    name_new_tokens(connection, 0, tokens)
    connection.executemany(
        "INSERT INTO wallets (wallet_id, label, first_seen_at, synced_at, status, wallet_no)"
        " VALUES (?, ?, ?, ?, 'ok', ?)",
        (
            (uuid(chance), f"wallet {number}", moment(0), moment(10_000), number)
            for number in range(1, wallets + 1)
        ),
    )
    rows: list[tuple[int, int, str, str]] = []
    known = 0
    for wallet in range(1, wallets + 1):
        seen = moment(6_000 + wallet // 50)
        listed, known = listed_tokens(known, each, tokens * wallet // wallets, chance)
        rows += [(wallet, one, str(chance.choice((1, 1, 1, 2, 5, 100))), seen) for one in listed]
    connection.executemany(
        "INSERT INTO balance_change_rows"
        " (wallet_no, token_no, new_amount, observed_at, baseline) VALUES (?, ?, ?, ?, 1)",
        rows,
    )
    connection.executemany(
        "INSERT INTO balance_rows VALUES (?1, ?2, ?3, ?4, ?5, ?4)",
        ((*row, moment(0)) for row in sorted(rows)),
    )
    connection.executemany(
        "INSERT INTO wallet_state_rows"
        " (wallet_no, first_read_at, last_read_at, reads, body_sha256, observed_at)"
        " VALUES (?, ?, ?, 1, '', ?)",
        (
            (wallet, moment(at), moment(at + 100), moment(at + 1))
            for at in read_at
            for wallet in range(1, wallets + 1)
        ),
    )
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


def read_sql(path: Path) -> pd.DataFrame:
    with closing(sqlite3.connect(path)) as connection:
        return pd.read_sql("SELECT * FROM holdings", connection)


def measured(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
        del result
    return statistics.median(times)


#: Calls to measure, of a database and one of its wallets.
TIMED: dict[str, Callable[[Path, str], object]] = {
    "holdings": lambda path, _: frames.holdings(path),
    "read_sql": lambda path, _: read_sql(path),
    "one wallet": lambda path, one: frames.holdings(path, wallet=one),
    "as_of the end": lambda path, _: frames.holdings(path, as_of="today"),
    "as_of the start": lambda path, _: frames.holdings(path, as_of="2026-01-20"),
}
CALLS = 3


def timed(name: str, path: Path) -> float:
    """Return the median seconds of some calls, one after the other."""
    last = "SELECT wallet_id FROM wallets ORDER BY wallet_no DESC LIMIT 1"
    one = str(query(path, last)[0][0])
    frames.holdings(path, wallet=one)  # the time of imports does not count
    return measured(lambda: TIMED[name](path, one), CALLS)


def apart(name: str, path: Path) -> float:
    """Run `timed` in a process of its own.

    In one process, a call would pay for memory that the call before it released.
    """
    command = [sys.executable, "-m", "benchmarks.frames", name, str(path)]
    return float(subprocess.check_output(command))


def figures(*, small: bool = False) -> list[Figure]:
    """Measure; about 10 minutes."""
    wallets, tokens, weeks, rounds = (50, 500, 3, 1) if small else (50_000, 500_000, 52, 3)
    with tempfile.TemporaryDirectory() as folder:
        path, year = Path(folder) / "frames.db", Path(folder) / "year.db"
        fill(path, wallets, 20, tokens)
        shutil.copyfile(path, year)
        add_weeks(year, weeks, 0.02)
        grown = (year.stat().st_size - path.stat().st_size) / (wallets * 20)
        cases = [(name, path) for name in TIMED]
        cases += [(name, year) for name in TIMED if name != "read_sql"]
        times: dict[tuple[str, Path], list[float]] = {case: [] for case in cases}
        for _ in range(rounds):
            for name, database in cases:
                measure = timed if small and times[cases[0]] else apart
                times[name, database].append(measure(name, database))
    took = {case: statistics.median(seconds) for case, seconds in times.items()}
    now, later, pandas = took["holdings", path], took["holdings", year], took["read_sql", path]
    single = max(took["one wallet", path], took["one wallet", year])
    one = "`frames.holdings(wallet=…)`"
    past, after = "`frames.holdings(as_of=…)`", f"after {weeks} weekly syncs, 2 % changed each"
    return [
        Figure(
            "`frames.holdings`, 1,000,000 balances",
            f"{now:.2f} s",
            f"{pandas / now:.1f} times as fast as `pandas.read_sql`",
            "at least 2.5",
            pandas / now >= 2.5,
        ),
        Figure(one, f"{single * 1000:.0f} ms", "", "under 50 ms", single < 0.05),
        _as_of(past, took["as_of the start", path], now),
        _as_of(f"{past}, {after}", took["as_of the end", year], later),
        _as_of(f"{past} of the start, {after}", took["as_of the start", year], later),
        Figure(f"growth of the database {after}", f"{grown:.0f} bytes per balance"),
    ]


def _as_of(metric: str, seconds: float, holdings: float) -> Figure:
    ratio = seconds / holdings
    compared, listed = f"{ratio:.2f} × `holdings`", "of the start" not in metric
    return Figure(metric, f"{seconds:.2f} s", compared, "at most 3", ratio <= 3, listed)


if __name__ == "__main__":
    print(timed(sys.argv[1], Path(sys.argv[2])))
