"""History queries: the state at a time."""

from __future__ import annotations

import sqlite3
import warnings
from datetime import timedelta

from nftsync.errors import InputError, NftsyncWarning, StoreError
from nftsync.store.database import Queryable
from nftsync.times import MOMENT, shifted, up_to_now

#: The last time of each log; times never decrease.
_OBSERVED = """
    SELECT (SELECT observed_at FROM balance_change_rows ORDER BY change_id DESC LIMIT 1),
        (SELECT observed_at FROM token_change_rows ORDER BY change_id DESC LIMIT 1),
        (SELECT observed_at FROM wallet_state_rows ORDER BY state_id DESC LIMIT 1)
"""
#: Other stored times, from small tables.
_READ = "SELECT (SELECT max(finished_at) FROM sync_runs), (SELECT max(synced_at) FROM wallets)"


def last_observed(database: Queryable) -> str | None:
    """Return the last time in the logs, or None if they are empty."""
    return max((time for time in database.execute(_OBSERVED).fetchone() if time), default=None)


def first_row(
    database: Queryable, table: str, moment: str, *, later: bool, key: str = "change_id"
) -> int:
    """Find the lowest key of a log from a time on (`later`: after it); above all if none."""
    low, high = database.execute(
        # Two queries, because SQLite scans the table if one query asks for both ends.
        f"SELECT (SELECT min({key}) FROM {table}), (SELECT max({key}) FROM {table})"
    ).fetchone()
    if low is None:
        return 0
    high += 1
    next_row = f"SELECT {key}, observed_at FROM {table} WHERE {key} >= ? ORDER BY {key} LIMIT 1"
    while low < high:
        middle = (low + high) // 2
        number, time_of_row = database.execute(next_row, (middle,)).fetchone()
        if time_of_row > moment or (time_of_row == moment and not later):
            high = middle
        else:
            low = number + 1
    return int(low)


def known_time(database: Queryable, moment: str) -> str:
    """Return a time (the present for the end of today), or raise InputError if it is future."""

    def latest() -> str | None:
        times = (last_observed(database), *database.execute(_READ).fetchone())
        return max((time for time in times if time), default=None)

    return up_to_now(moment, latest)


# Partial states ----------------------------------------------------------------------------------


def begin_span(
    connection: sqlite3.Connection, run_id: int, at: str, *, changed: bool = True
) -> None:
    """Record that the state is partial from a time on; see `schema.sql`.

    Unless `changed`, the state at the last stored time stays whole, even if the clock was set back.
    """
    if not changed:
        at = max(at, shifted(last_observed(connection) or at, MOMENT))
    connection.execute(
        "INSERT INTO partial_spans (run_id, began_at) SELECT ?1, ?2 WHERE NOT EXISTS"
        " (SELECT 1 FROM partial_spans WHERE run_id = ?1 AND ended_at > '9999')",
        (run_id, at),
    )


def last_begin(connection: sqlite3.Connection) -> str | None:
    """Return the last begin of the spans that have not ended; later changes are not before it."""
    query = "SELECT max(began_at) FROM partial_spans WHERE ended_at > '9999'"
    at: str | None = connection.execute(query).fetchone()[0]
    return at


#: A sync before ?2 that was cut off, if all wallets that answer have been read since it began.
_MADE_UP_FOR = """
    EXISTS (SELECT 1 FROM sync_runs r JOIN sync_runs later ON later.run_id = ?2
        WHERE r.run_id = partial_spans.run_id AND r.kind = 'sync' AND r.run_id < ?2
        AND (later.reads_all OR NOT EXISTS (SELECT 1 FROM wallets
            WHERE tracked AND status IN ('ok', 'incomplete') AND sequence < r.first_sequence)))
"""


def end_span(connection: sqlite3.Connection, run_id: int, *, made_up_for: bool = False) -> None:
    """Record that a run has stored all its changes.

    `made_up_for`: so have the syncs that were cut off before it, if it read their wallets again.
    """
    which = f"(run_id = ?2 OR {_MADE_UP_FOR})" if made_up_for else "run_id = ?2"
    connection.execute(
        "UPDATE partial_spans SET ended_at = max(began_at, ?1)"
        f" WHERE ended_at > '9999' AND {which}",
        (last_observed(connection) or "", run_id),
    )


def whole_time(database: Queryable, moment: str) -> str:
    """Return the time of the last whole state up to a time; warn if that is earlier."""
    whole, run, unended = moment, "", False
    query = (
        "SELECT began_at, kind || ' ' || run_id, kind = 'sync' AND ended_at > '9999'"
        " FROM partial_spans JOIN sync_runs USING (run_id)"
        " WHERE ended_at > ?1 AND began_at <= ?1 ORDER BY began_at LIMIT 1"
    )
    while (span := database.execute(query, (whole,)).fetchone()) is not None:
        whole, run = shifted(span[0], -MOMENT), run or span[1]
        unended = unended or bool(span[2])
    if run:
        advice = " If no sync is running, complete it: `nftsync sync --resume`" if unended else ""
        warnings.warn(
            f"{moment} is within {run}, which had stored only some of its changes; this is the last"
            f" whole state before it, of {whole}.{advice}",
            NftsyncWarning,
            stacklevel=1,  # Python shows a warning once per line and text
        )
    return whole


#: The time of the first read, by a condition on rows.
FIRST_READ = """
    SELECT min(at) FROM (
        SELECT * FROM (SELECT observed_at AS at FROM wallet_state_rows {which}
            ORDER BY state_id LIMIT 1)
        UNION ALL
        SELECT * FROM (SELECT observed_at FROM balance_change_rows {which}
            ORDER BY change_id LIMIT 1))
"""
#: The end of the spans around a time; a sync may have read empty wallets before its span.
_SPANS_END = (
    "SELECT max(ended_at) FROM partial_spans JOIN sync_runs USING (run_id) WHERE ended_at > ?1"
    " AND iif(kind = 'sync', min(began_at, started_at), began_at) <= ?1"
)
#: Why a database has no history.
_NO_HISTORY = (
    "no balances are known yet; see `nftsync status`, and read the wallets: `nftsync sync`"
)


def history_begin(database: Queryable) -> str | None:
    """Return the time of the first whole state, or None if there is none yet."""
    begin: str | None = None
    (later,) = database.execute(FIRST_READ.format(which="")).fetchone()
    while later is not None:
        begin = later
        (later,) = database.execute(_SPANS_END, (begin,)).fetchone()
    return None if begin is None or begin > "9999" else begin


def from_history(database: Queryable, start: str, effect: str = "") -> str:
    """Return a time, or the begin of the history if that is later, with a warning."""
    begin = history_begin(database)
    if begin is None or start < begin:
        note = f"the history begins at {begin}; earlier holdings and movements are unknown{effect}"
        warnings.warn(note if begin else _NO_HISTORY, NftsyncWarning, stacklevel=1)
    return max(start, begin or start)


def period_start(database: Queryable, start: str, end: str | None) -> str:
    """Return the start of a period, as `from_history` does; raise if it has no history."""
    if (begin := history_begin(database)) is None:
        raise StoreError(_NO_HISTORY)
    if end is not None and end < begin:
        raise InputError(
            f"the period ends before the history, which begins at {begin[:19]}Z; choose a later end"
        )
    return from_history(database, start, ", so the period begins there")


#: Difference of clocks that causes no warning.
_CLOCKS_APART = timedelta(minutes=5)


def ahead_of(database: Queryable, clock: str) -> str | None:
    """Return a warning if stored times are minutes ahead of the clock, or None."""
    last = last_observed(database)
    if last is None or last <= shifted(clock, _CLOCKS_APART):
        return None
    return (
        f"the last change is stored as of {last[:19]}Z, but this clock says {clock[:19]}Z. This"
        " clock is behind, or an earlier one was ahead. Times in the change feed never decrease."
        " Until this clock reaches that time, all changes get that one time, and --as-of does not"
        " show them for earlier times."
        " Current holdings are correct. If this clock is right, start over with another --database,"
        " and keep this one for its history"
    )
