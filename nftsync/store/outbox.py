"""Outbox of messages to destinations."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, NamedTuple, TypeAlias

from nftsync.store.database import as_json, over_keys
from nftsync.times import shifted

#: `refused`: uses up an attempt. `down`: the destination is unreachable; uses up none.
AttemptResult: TypeAlias = Literal["sent", "refused", "down"]

_HOUR = 3_600
#: Seconds between attempts. If the last attempt is refused, the message is dead.
RETRIES = (5, 300, 1_800, *(hours * _HOUR for hours in (2, 5, 10, 14, 20, 24)))
_LONGEST_SPREAD = 1.2

#: Longer than any wait; a later due time comes from a wrong clock.
_LONGEST_WAIT = timedelta(hours=30)

#: A key that conflicts with every key.
ANY_KEY = "*"


class Message(NamedTuple):
    """A new message. Messages that share a key are sent in order; `*` matches every key."""

    message_id: str
    rule: str
    destination: str
    body: bytes
    keys: list[str]


class ClaimedMessage(NamedTuple):
    """A claimed message."""

    number: int
    message_id: str
    rule: str
    body: bytes
    attempts: int


class Settled(NamedTuple):
    """The outcome of an attempt; after `down`, the message is due again at `due_at`."""

    message: ClaimedMessage
    result: AttemptResult
    error: str | None = None
    due_at: str | None = None


def database_id(connection: sqlite3.Connection) -> str:
    """Return the id that a database shares with its copies."""
    return str(connection.execute("SELECT database_id FROM mirror_state").fetchone()[0])


def add(connection: sqlite3.Connection, messages: Sequence[Message], at: str) -> int:
    """Store new messages; return their number, without those stored before."""
    return connection.executemany(
        "INSERT OR IGNORE INTO messages (message_id, rule, destination, body, keys, created_at,"
        " next_attempt_at, scheduled_at, state) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?6, 'pending')",
        [(*message[:4], as_json(message.keys), at) for message in messages],
    ).rowcount


_FREE = "state IN ('pending', 'failed') AND waits_for IS NULL"
#: Messages due by ?2, and those that a wrong clock has scheduled later than any wait: longer than
#: their own longest wait (?3, by attempts) if that clock was ahead, or than all waits (?4).
_IS_DUE = (
    "next_attempt_at <= ?2",
    "scheduled_at > ?2 AND (state = 'pending' OR next_attempt_at > ?3 ->> attempts)",
    "next_attempt_at > ?4",
)


def due_messages(
    connection: sqlite3.Connection, destination: str, at: str, count: int
) -> list[int]:
    """Return due messages, by number, without unsent earlier messages that share a key."""
    waits = [shifted(at, timedelta(seconds=seconds * _LONGEST_SPREAD)) for seconds in (0, *RETRIES)]
    values = (destination, at, as_json(waits), shifted(at, _LONGEST_WAIT))
    chosen: dict[int, None] = {}
    for is_due in _IS_DUE:
        rows = connection.execute(
            f"SELECT message_no FROM messages WHERE destination = ?1 AND {_FREE} AND {is_due}"
            f" ORDER BY {is_due.partition(' ')[0]}, message_no LIMIT ?5",
            (*values, count),
        )
        chosen |= dict.fromkeys(number for (number,) in rows.fetchall())
    return list(chosen)[:count]


def claim(
    connection: sqlite3.Connection, lease_no: int, numbers: Sequence[int]
) -> list[ClaimedMessage]:
    """Claim messages that no other sender has claimed."""
    rows = over_keys(
        connection,
        "UPDATE messages SET state = 'running', lease_no = ?2"
        f" WHERE message_no IN (SELECT value FROM json_each(?1)) AND {_FREE}"
        " RETURNING message_no, message_id, rule, body, attempts",
        numbers,
        lease_no,
    )
    return [ClaimedMessage(*row) for row in sorted(rows.fetchall())]


_SETTLE = """
    UPDATE messages SET state = ?3, attempts = ?4, next_attempt_at = ?5, last_error = ?6,
        finished_at = ?7, scheduled_at = ?8, lease_no = NULL
    WHERE message_no = ?1 AND state = 'running' AND lease_no = ?2
"""


def settle(
    connection: sqlite3.Connection, lease_no: int, settled: Sequence[Settled], at: str
) -> Counter[str]:
    """Settle claimed messages; return their number by new state."""
    states: Counter[str] = Counter()
    for message, result, error, due_at in settled:
        state, attempts, next_at = "done", message.attempts + 1, None
        if result == "down":
            state, attempts, next_at = "pending", message.attempts, due_at
        elif result == "refused" and message.attempts >= len(RETRIES):
            state = "dead"
        elif result == "refused":
            spread = random.uniform(0.8, _LONGEST_SPREAD)  # noqa: S311 - spreads load
            wait = timedelta(seconds=RETRIES[message.attempts] * spread)
            state, next_at = "failed", shifted(at, wait)
        finished = at if state in {"done", "dead"} else None
        values = (message.number, lease_no, state, attempts, next_at, error, finished, at)
        states[state] += connection.execute(_SETTLE, values).rowcount
    return states


def make_due(connection: sqlite3.Connection, destination: str, at: str) -> None:
    connection.execute(
        "UPDATE messages SET next_attempt_at = ?2 WHERE destination = ?1 AND state = 'pending'"
        " AND next_attempt_at > ?2",
        (destination, at),
    )


def store_outage(connection: sqlite3.Connection, destination: str, reason: str, at: str) -> None:
    """Store that a destination is down; an outage keeps its start."""
    connection.execute(
        "INSERT INTO outages (destination, since, reason) VALUES (?, ?, ?)"
        # The clock may have been ahead.
        " ON CONFLICT DO UPDATE SET since = min(since, excluded.since), reason = excluded.reason",
        (destination, at, reason),
    )


def end_outage(connection: sqlite3.Connection, destination: str) -> None:
    connection.execute("DELETE FROM outages WHERE destination = ?", (destination,))


def outage_of(connection: sqlite3.Connection, destination: str) -> tuple[str, str] | None:
    query = "SELECT since, reason FROM outages WHERE destination = ?"
    outage: tuple[str, str] | None = connection.execute(query, (destination,)).fetchone()
    return outage


def stop_destination(
    connection: sqlite3.Connection, destination: str, reason: str, at: str
) -> None:
    connection.execute(
        "INSERT OR IGNORE INTO stopped_destinations (destination, stopped_at, reason)"
        " VALUES (?, ?, ?)",
        (destination, at, reason),
    )


def restart_destination(connection: sqlite3.Connection, destination: str) -> None:
    connection.execute("DELETE FROM stopped_destinations WHERE destination = ?", (destination,))


def stopped_destinations(connection: sqlite3.Connection) -> dict[str, str]:
    query = "SELECT destination, reason FROM stopped_destinations ORDER BY 1"
    return dict(connection.execute(query).fetchall())
