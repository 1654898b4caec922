"""A year of weekly syncs: the rows that `nftsync sync` writes, added to a database at once."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nftsync.store.schema import open_store
from nftsync.times import format_time

_FIRST = datetime(2026, 2, 1, tzinfo=UTC)
_ROWS_AT_ONCE = 500  # with the same time, as in one transaction


def add_weeks(path: Path, weeks: int, share: float) -> None:
    """Sync all wallets of a database once a week, each time with a share of changed balances."""
    chance = random.Random(13)
    with closing(open_store(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        held = connection.execute("SELECT wallet_no, token_no, amount FROM balance_rows").fetchall()
        amounts = {(wallet, token): amount for wallet, token, amount in held}
        pairs = list(amounts)
        for week in range(weeks):
            changed = sorted(chance.sample(pairs, int(len(pairs) * share)))
            _sync(connection, changed, amounts, week)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _sync(
    connection: sqlite3.Connection,
    changed: list[tuple[int, int]],
    amounts: dict[tuple[int, int], str],
    week: int,
) -> None:
    started = _FIRST + timedelta(weeks=week)
    log, states = [], {}
    for number, (wallet, token) in enumerate(changed):
        seen = format_time(started + timedelta(seconds=number // _ROWS_AT_ONCE))
        old = amounts[wallet, token]
        new = amounts[wallet, token] = str(int(old) + 1)
        log.append((wallet, token, old, new, seen, week))
        digest = hashlib.sha256(f"{wallet} {week}".encode()).hexdigest()
        states[wallet] = (wallet, seen, seen, digest, week, seen)
    connection.execute(
        "UPDATE wallet_state_rows SET last_read_at = ?, reads = reads + 1 WHERE state_id IN"
        " (SELECT max(state_id) FROM wallet_state_rows GROUP BY wallet_no)",
        (format_time(started),),
    )
    connection.execute("UPDATE wallets SET synced_at = ?", (format_time(started),))
    connection.executemany(
        "UPDATE balance_rows SET amount = ?, updated_at = ? WHERE wallet_no = ? AND token_no = ?",
        ((new, seen, wallet, token) for wallet, token, _, new, seen, _ in log),
    )
    connection.executemany(
        "INSERT INTO balance_change_rows"
        " (wallet_no, token_no, old_amount, new_amount, observed_at, baseline, run_id)"
        " VALUES (?, ?, ?, ?, ?, 0, ?)",
        log,
    )
    connection.executemany(
        "INSERT INTO wallet_state_rows"
        " (wallet_no, first_read_at, last_read_at, reads, body_sha256, run_id, observed_at)"
        " VALUES (?, ?, ?, 1, ?, ?, ?)",
        states.values(),
    )
