"""Leases of workers: the right to claimed webhooks and messages.

A lease's number is the fencing token: claimed rows are `running` under that number, and only a
worker whose number is in `leases` may acknowledge them. Any worker removes expired leases, and
returns their rows to `pending`.
"""

from __future__ import annotations

import sqlite3
from datetime import timedelta

from nftsync.store.history import end_span
from nftsync.store.queues import QUEUES
from nftsync.times import shifted

#: Time until a lease expires unless renewed.
_LASTS = timedelta(seconds=20)

#: Maximum rows that one transaction marks; about 50 ms.
ROWS_AT_ONCE = 4_000

#: Leases that expired before ?1, the current time, or expire after ?2, set by a wrong clock.
_EXPIRED = "(expires_at < ?1 OR expires_at > ?2)"

#: Running rows of a queue whose lease has ended.
_LEFT_BEHIND = (
    "SELECT {0.number} FROM {0.table} WHERE state = 'running'"
    " AND coalesce(lease_no, 0) NOT IN (SELECT lease_no FROM leases)"
)


def take_lease(connection: sqlite3.Connection, at: str) -> int:
    """Start a lease; return its number, the fencing token."""
    row = connection.execute("INSERT INTO leases (expires_at) VALUES (?)", (shifted(at, _LASTS),))
    return row.lastrowid or 0


def renew_lease(
    connection: sqlite3.Connection, lease_no: int, at: str, *, run_id: int | None = None
) -> bool:
    """Renew a lease and its run; return False if it has expired and been removed."""
    done = connection.execute(
        "UPDATE leases SET expires_at = ?, run_id = ? WHERE lease_no = ?",
        (shifted(at, _LASTS), run_id, lease_no),
    )
    return done.rowcount == 1


def end_lease(connection: sqlite3.Connection, lease_no: int, *, most: int = ROWS_AT_ONCE) -> bool:
    """End a lease, and release its rows; return whether `take_back_expired` may find more."""
    connection.execute("DELETE FROM leases WHERE lease_no = ?", (lease_no,))
    return _release(connection, most) == most


def has_expired(connection: sqlite3.Connection, at: str) -> bool:
    """Return whether `take_back_expired` has work to do, without writing."""
    left_behind = " OR ".join(f"EXISTS ({_LEFT_BEHIND.format(queue)})" for queue in QUEUES)
    (expired,) = connection.execute(
        f"SELECT EXISTS (SELECT 1 FROM leases WHERE {_EXPIRED}) OR {left_behind}",
        (at, shifted(at, 2 * _LASTS)),
    ).fetchone()
    return bool(expired)


def take_back_expired(connection: sqlite3.Connection, at: str, *, most: int = ROWS_AT_ONCE) -> int:
    """Remove expired leases, interrupt their runs, and release up to `most` rows; return these."""
    expired = connection.execute(
        f"DELETE FROM leases WHERE {_EXPIRED} RETURNING run_id", (at, shifted(at, 2 * _LASTS))
    ).fetchall()
    connection.executemany(
        "UPDATE sync_runs SET status = 'interrupted', finished_at = ?"
        " WHERE run_id = ? AND kind = 'replay' AND status = 'running'",
        [(at, run_id) for (run_id,) in expired],
    )
    for (run_id,) in expired:
        end_span(connection, run_id)
    return _release(connection, most)


def end_all_leases(connection: sqlite3.Connection) -> None:
    """End all leases in a copy of a database, possibly of an earlier version."""
    connection.execute("DELETE FROM leases")
    _release(connection, -1)
    if any(connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'partial_spans'")):
        query = "SELECT run_id FROM partial_spans JOIN sync_runs USING (run_id)"
        for row in connection.execute(f"{query} WHERE kind = 'replay'").fetchall():
            end_span(connection, *row)


def _release(connection: sqlite3.Connection, most: int) -> int:
    released = 0
    for queue in QUEUES:
        released += connection.execute(
            f"UPDATE {queue.table} SET state = 'pending', lease_no = NULL"
            f" WHERE {queue.number} IN ({_LEFT_BEHIND.format(queue)} LIMIT ?)",
            (most - released,),  # a negative limit is none
        ).rowcount
    return released
