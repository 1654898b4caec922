"""Measures `nftsync.frames` against `pandas.read_sql`, also after a year.

    python -m benchmarks.frames                      # 50,000 wallets x 20, 500,000 tokens
    python -m benchmarks.frames --wallets 5000 --tokens 50000 --later-changes 100000

With `--database FILE` the database is kept there and used again by the next run. `figures` measures
what has a target.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pandas as pd

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
    """Choose what a wallet lists, in numbers as a sync gives them: in the order of first sight.

    Some of its tokens are seen here first; the others are among those seen shortly before.

    Args:
        known: tokens that earlier wallets listed.
        each: how many this one lists.
        known_then: how many are to be known after it, as far as its list allows that.
        chance: what chooses.

    Returns:
        The numbers of the tokens, and how many are known now.
    """
    new = min(max(known_then - known, each - known), each)
    recent = range(max(1, known + 1 - 50 * each), known + 1)
    return [*chance.sample(recent, each - new), *range(known + 1, known + new + 1)], known + new


def fill(
    path: Path,
    wallets: int,
    each: int,
    tokens: int,
    later: int,
    read_at: Sequence[int] = (6_000, 20_000, 40_000),
) -> None:
    """Make a database.

    Args:
        path: where; nothing is there yet.
        wallets: how many.
        each: balances of each.
        tokens: how many, held or not.
        later: changes of balances, after all were first seen.
        read_at: when each wallet's states were read, in seconds.
    """
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
    held: dict[tuple[int, int], list[str]] = {}
    log = []
    known = 0
    for wallet in range(1, wallets + 1):
        seen = moment(6_000 + wallet // 50)
        listed, known = listed_tokens(known, each, tokens * wallet // wallets, chance)
        for token in listed:
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


def last_wallet(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT wallet_id FROM wallets ORDER BY wallet_no DESC LIMIT 1"
        return str(connection.execute(query).fetchone()[0])


def measured(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
        del result
    return statistics.median(times)


#: What is timed, by name; each is given a database and one of its wallets.
TIMED: dict[str, Callable[[Path, str], object]] = {
    "holdings": lambda path, _: frames.holdings(path),
    "read_sql": lambda path, _: read_sql(path),
    "one wallet": lambda path, one: frames.holdings(path, wallet=one),
    "as_of the end": lambda path, _: frames.holdings(path, as_of="today"),
    "as_of the start": lambda path, _: frames.holdings(path, as_of="2026-01-20"),
}
TIMED_LATER = ("holdings", "one wallet", "as_of the end", "as_of the start")
CALLS = 3


def timed(name: str, path: Path) -> float:
    """The median seconds of some calls, one after the other."""
    one = last_wallet(path)
    frames.holdings(path, wallet=one)  # imports are another figure
    return measured(lambda: TIMED[name](path, one), CALLS)


def apart(name: str, path: Path) -> float:
    """`timed`, in a process of its own.

    In one process they would share memory: what one gives back to the system, the next has to get
    from there again, which here takes as long as half the work.
    """
    command = [sys.executable, "-m", "benchmarks.frames", "--time", name]
    done = subprocess.run(
        [*command, "--database", str(path)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def in_turn(
    cases: list[tuple[str, Path]], rounds: int, *, small: bool
) -> dict[tuple[str, Path], float]:
    """The median seconds of each case; every round measures all, a small one but the first here."""
    times: dict[tuple[str, Path], list[float]] = {case: [] for case in cases}
    for _ in range(rounds):
        for name, path in cases:
            measure = timed if small and times[cases[0]] else apart
            times[name, path].append(measure(name, path))
    return {case: statistics.median(each) for case, each in times.items()}


def compared(
    what: str, seconds: tuple[float, float], other: str, *, least: float = 0, most: float = 0
) -> Figure:
    """How often another's seconds, or how much of them, with the least or most it should be."""
    own, others = seconds
    if least:
        ratio = others / own
        words, target, met = f"{ratio:.1f} times as fast as", f"at least {least}", ratio >= least
    else:
        ratio = own / others
        words, target, met = f"{ratio:.2f} times the time of", f"at most {most:g}", ratio <= most
    return Figure(what, f"{own:.2f} s", f"{words} {other}", target, met)


def figures(*, small: bool = False) -> list[Figure]:
    """Measure what has a target: 1,000,000 balances of 50,000 wallets, then a year of weekly syncs.

    Args:
        small: 1,000 balances, three weeks, and one round.
    """
    wallets, tokens, weeks, rounds = (50, 500, 3, 1) if small else (50_000, 500_000, 52, 3)
    with tempfile.TemporaryDirectory() as folder:
        path, year = Path(folder) / "frames.db", Path(folder) / "year.db"
        fill(path, wallets, 20, tokens, later=0, read_at=(6_000,))
        shutil.copyfile(path, year)
        add_weeks(year, weeks, 0.02)
        grown = (year.stat().st_size - path.stat().st_size) / (wallets * 20)
        after = f"after {weeks} weekly syncs, 2 % changed each"
        found = figures_of(path, year, rounds, after, small=small)
    return [
        *found,
        Figure(f"growth of this database in {weeks} weeks", f"{grown:.0f} bytes/balance"),
    ]


def figures_of(path: Path, year: Path, rounds: int, after: str, *, small: bool) -> list[Figure]:
    """Measure two databases in turn.

    Args:
        path: one that was synced once.
        year: the same with a history since.
        rounds: how often.
        after: what that history is, in words.
        small: most of it in this process.
    """
    cases = [(name, path) for name in TIMED] + [(name, year) for name in TIMED_LATER]
    took = in_turn(cases, rounds, small=small)
    now, later = took["holdings", path], took["holdings", year]
    single = max(took["one wallet", path], took["one wallet", year])
    return [
        compared(
            "`frames.holdings`", (now, took["read_sql", path]), "`pandas.read_sql`", least=2.5
        ),
        Figure("`holdings(wallet=)`", f"{single * 1000:.0f} ms", "", "under 50 ms", single < 0.05),
        compared("`holdings(as_of=)`", (took["as_of the start", path], now), "`holdings`", most=3),
        *(
            compared(
                f"`holdings(as_of=)` {when} {after}",
                (took[name, year], later),
                "`holdings`",
                most=3,
            )
            for when, name in (
                ("of the end,", "as_of the end"),
                ("of the start,", "as_of the start"),
            )
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wallets", type=int, default=50_000)
    parser.add_argument("--per-wallet", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=500_000)
    parser.add_argument("--later-changes", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--database", type=Path, help="keep the database here, or use it again")
    parser.add_argument("--time", choices=TIMED, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.time:
        print(timed(given.time, given.database))
        return
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
            "holdings(as_of=) after them all": lambda: frames.holdings(path, as_of="today"),
            "holdings(wallet=, as_of=)": lambda: frames.holdings(path, wallet=one, as_of="today"),
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
