"""Leases: a worker's right to the webhooks that it has claimed.

A worker holds one lease, which it renews; its number is the fencing token. What it claims is
`running` under that number, and can be acknowledged only while that number is in `leases`. A lease
that was not renewed in time is taken away by whoever claims next, and its webhooks go back to
`pending`.
"""

from __future__ import annotations

import sqlite3
from datetime import timedelta

from nftsync.times import shifted

__all__ = [
    "ROWS_AT_ONCE",
    "end_lease",
    "has_expired",
    "renew_lease",
    "take_back_expired",
    "take_lease",
]

#: How long a lease lasts without being renewed.
_LASTS = timedelta(seconds=20)

#: Rows that one transaction marks at most; about 50 ms.
ROWS_AT_ONCE = 4_000

#: Of ?1, the current time, and ?2, later than any lease lasts: one that does was given by a clock
#: that was wrong.
_EXPIRED = "(expires_at < ?1 OR expires_at > ?2)"

#: Webhooks that are running under a lease that is no more.
_LEFT_BEHIND = (
    "SELECT webhook_no FROM webhooks WHERE state = 'running'"
    " AND coalesce(lease_no, 0) NOT IN (SELECT lease_no FROM leases)"
)


def take_lease(connection: sqlite3.Connection, at: str) -> int:
    """Begin a lease; returns its number, the fencing token."""
    row = connection.execute("INSERT INTO leases (expires_at) VALUES (?)", (shifted(at, _LASTS),))
    return row.lastrowid or 0


def renew_lease(
    connection: sqlite3.Connection, lease_no: int, at: str, *, run_id: int | None = None
) -> bool:
    """Make a lease last from now on; False when it has been taken away.

    Args:
        connection: in a write transaction.
        lease_no: the lease.
        at: the current time.
        run_id: the run under way, to be closed as interrupted should the worker vanish.
    """
    done = connection.execute(
        "UPDATE leases SET expires_at = ?, run_id = ? WHERE lease_no = ?",
        (shifted(at, _LASTS), run_id, lease_no),
    )
    return done.rowcount == 1


def end_lease(connection: sqlite3.Connection, lease_no: int, *, most: int = ROWS_AT_ONCE) -> bool:
    """Give a lease up, and back what is still running under it.

    Returns:
        Whether there may be more to give back, with `take_back_expired`.
    """
    connection.execute("DELETE FROM leases WHERE lease_no = ?", (lease_no,))
    return _release(connection, most) == most


def has_expired(connection: sqlite3.Connection, at: str) -> bool:
    """Tell, without writing, whether there is something to take back."""
    (found,) = connection.execute(
        f"SELECT EXISTS (SELECT 1 FROM leases WHERE {_EXPIRED}) OR EXISTS ({_LEFT_BEHIND})",  # noqa: S608
        (at, shifted(at, 2 * _LASTS)),
    ).fetchone()
    return bool(found)


def take_back_expired(connection: sqlite3.Connection, at: str, *, most: int = ROWS_AT_ONCE) -> int:
    """End the leases of workers that have vanished, and close their runs.

    Returns:
        How many webhooks wait again; as many as `most` means that there may be more.
    """
    expired = connection.execute(
        f"DELETE FROM leases WHERE {_EXPIRED} RETURNING run_id",  # noqa: S608
        (at, shifted(at, 2 * _LASTS)),
    ).fetchall()
    connection.executemany(
        "UPDATE sync_runs SET status = 'interrupted', finished_at = ?"
        " WHERE run_id = ? AND kind = 'replay' AND status = 'running'",
        [(at, run_id) for (run_id,) in expired],
    )
    return _release(connection, most)


def _release(connection: sqlite3.Connection, most: int) -> int:
    return connection.execute(
        "UPDATE webhooks SET state = 'pending', lease_no = NULL"  # noqa: S608
        f" WHERE webhook_no IN ({_LEFT_BEHIND} LIMIT ?)",
        (most,),
    ).rowcount
