"""The history of a database: where a time begins in a log, and the latest time stored."""

from __future__ import annotations

import sqlite3
from datetime import timedelta

from nftsync.times import begun, shifted

#: The last times in the logs, in which they never decrease.
_OBSERVED = """
    SELECT (SELECT observed_at FROM balance_change_rows ORDER BY change_id DESC LIMIT 1),
        (SELECT observed_at FROM token_change_rows ORDER BY change_id DESC LIMIT 1),
        (SELECT observed_at FROM wallet_state_rows ORDER BY state_id DESC LIMIT 1)
"""
#: Other times that were stored, of few rows.
_READ = "SELECT (SELECT max(finished_at) FROM sync_runs), (SELECT max(synced_at) FROM wallets)"


def last_observed(database: sqlite3.Connection | sqlite3.Cursor) -> str | None:
    """The last time in the logs, in the stored form; None: they are empty."""
    return max((time for time in database.execute(_OBSERVED).fetchone() if time), default=None)


def first_row(
    database: sqlite3.Connection | sqlite3.Cursor,
    table: str,
    moment: str,
    *,
    later: bool,
    key: str = "change_id",
) -> int:
    """Find where in a log a time begins: logs have no index by time.

    Times never decrease from one row to the next, so this bisects over the key.

    Args:
        database: an open one, whose rows are tuples.
        table: the log, of changes or of states.
        moment: a time in the stored form.
        later: begin with the first row after the time, else with the first at or after it.
        key: what numbers its rows.

    Returns:
        A number that all rows from that time on reach, and none before does.
    """
    low, high = database.execute(
        # Two queries: SQLite looks both ends up in its tree, but scans for both in one.
        f"SELECT (SELECT min({key}) FROM {table}), (SELECT max({key}) FROM {table})"
    ).fetchone()
    if low is None:
        return 0
    high += 1
    next_row = f"SELECT {key}, observed_at FROM {table} WHERE {key} >= ? ORDER BY {key} LIMIT 1"
    while low < high:
        middle = (low + high) // 2
        number, seen = database.execute(next_row, (middle,)).fetchone()
        if seen > moment or (seen == moment and not later):
            high = middle
        else:
            low = number + 1
    return int(low)


def known_time(database: sqlite3.Connection | sqlite3.Cursor, moment: str) -> str:
    """Make sure that a time is not still to come, by our clock or by that of what was stored.

    Args:
        database: an open one, whose rows are tuples.
        moment: a time as `parse_time` returns it.

    Returns:
        The time; of a day that has begun but not ended, the present in place of its end.

    Raises:
        InputError: it is still to come.
    """

    def latest() -> str | None:
        times = (last_observed(database), *database.execute(_READ).fetchone())
        return max((time for time in times if time), default=None)

    return begun(moment, latest)


#: So far clocks may be apart without anything to be said.
_CLOCKS_APART = timedelta(minutes=5)


def ahead_of(database: sqlite3.Connection | sqlite3.Cursor, clock: str) -> str | None:
    """What is to be said where stored times are ahead of the clock by some minutes; else None.

    Args:
        database: an open one, whose rows are tuples.
        clock: the current time, in the stored form.
    """
    last = last_observed(database)
    if last is None or last <= shifted(clock, _CLOCKS_APART):
        return None
    return (
        f"the last change is stored as of {last[:19]}Z, and this clock says {clock[:19]}Z: it is"
        " behind, or the one that stored that was ahead. Times in the log never decrease, so until"
        " then all changes are stored as of that one moment, and --as-of shows none of them for an"
        " earlier one; what is held now is right. If this clock is right, begin afresh with another"
        " --database, and keep this one for what was before"
    )
