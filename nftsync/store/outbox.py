"""Outbox of messages to destinations."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from nftsync.store.database import over_keys
from nftsync.times import shifted

#: `refused`: uses up an attempt. `down`: the destination is unreachable; uses up none.
Result: TypeAlias = Literal["sent", "refused", "down"]

_HOUR = 3_600
#: Seconds between attempts. If the last attempt is refused, the message is dead.
RETRIES = (5, 300, 1_800, *(hours * _HOUR for hours in (2, 5, 10, 14, 20, 24)))

#: Longer than any wait; a later due time comes from a wrong clock.
_LONGEST_WAIT = timedelta(hours=30)

#: A key that conflicts with every key.
ANY_KEY = "*"
_UNSENT = "state IN ('pending', 'failed', 'running')"


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
    result: Result
    error: str | None = None
    due_at: str | None = None


def database_id(connection: sqlite3.Connection) -> str:
    """Return the id that a database shares with its copies."""
    return str(connection.execute("SELECT database_id FROM mirror_state").fetchone()[0])


def add(connection: sqlite3.Connection, messages: Sequence[Message], at: str) -> int:
    """Store new messages; return their number, without those stored before."""
    return connection.executemany(
        "INSERT OR IGNORE INTO messages (message_id, rule, destination, body, keys, created_at,"
        " next_attempt_at, state) VALUES (?, ?, ?, ?, ?, ?, ?, 'pending')",
        [
            (*message[:4], msgspec.json.encode(message.keys).decode(), at, at)
            for message in messages
        ],
    ).rowcount


#: Number of oldest messages to search first; then the first of each distinct `keys`.
_OLDEST = 1_000
_IS_DUE = "state <> 'running' AND (next_attempt_at <= ?2 OR next_attempt_at > ?3)"
_IN_ORDER = f"""
    SELECT message_no, keys, {_IS_DUE} FROM messages
    WHERE destination = ?1 AND {_UNSENT} ORDER BY message_no LIMIT {_OLDEST}
"""
_OF_KEYS = f"FROM messages INDEXED BY unsent_keys WHERE destination = ?1 AND {_UNSENT}"
_FIRST_OF_KEYS = f"""
    WITH RECURSIVE distinct_keys (value) AS (
        SELECT min(keys) {_OF_KEYS}
        UNION ALL
        SELECT (SELECT min(keys) {_OF_KEYS} AND keys > value) FROM distinct_keys
        WHERE value IS NOT NULL
    )
    SELECT message_no, keys, {_IS_DUE} FROM messages WHERE message_no IN (
        SELECT (SELECT min(message_no) {_OF_KEYS} AND keys = value) FROM distinct_keys
    ) ORDER BY message_no
"""


def due_messages(
    connection: sqlite3.Connection, destination: str, at: str, count: int
) -> list[int]:
    """Return due messages, by number, without unsent earlier messages that share a key."""
    values = (destination, at, shifted(at, _LONGEST_WAIT))
    chosen, searched = _free(connection.execute(_IN_ORDER, values), count)
    if len(chosen) < count and searched == _OLDEST:
        chosen, _ = _free(connection.execute(_FIRST_OF_KEYS, values), count)
    return chosen


def _free(rows: sqlite3.Cursor, count: int) -> tuple[list[int], int]:
    """Return the result of `due_messages`, and the number of searched rows."""
    chosen: list[int] = []
    blocked: set[str] = set()
    searched = 0
    for number, stored, is_due in rows:
        searched += 1
        keys = msgspec.json.decode(stored)
        is_free = not (ANY_KEY in keys and blocked) and blocked.isdisjoint(keys)
        if is_due and is_free:
            chosen.append(number)
        blocked.update(keys)
        if ANY_KEY in blocked or len(chosen) == count:
            break
    rows.close()
    return chosen, searched


def claim(
    connection: sqlite3.Connection, lease_no: int, numbers: Sequence[int]
) -> list[ClaimedMessage]:
    """Claim messages that no other sender has claimed."""
    rows = over_keys(
        connection,
        "UPDATE messages SET state = 'running', lease_no = ?2"
        " WHERE message_no IN (SELECT value FROM json_each(?1)) AND state IN ('pending', 'failed')"
        " RETURNING message_no, message_id, rule, body, attempts",
        numbers,
        lease_no,
    )
    return [ClaimedMessage(*row) for row in sorted(rows.fetchall())]


_SETTLE = """
    UPDATE messages SET state = ?3, attempts = ?4, next_attempt_at = ?5, last_error = ?6,
        finished_at = ?7, lease_no = NULL
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
            spread = random.uniform(0.8, 1.2)  # noqa: S311 - spreads load
            wait = timedelta(seconds=RETRIES[message.attempts] * spread)
            state, next_at = "failed", shifted(at, wait)
        finished = at if state in {"done", "dead"} else None
        values = (message.number, lease_no, state, attempts, next_at, error, finished)
        states[state] += connection.execute(_SETTLE, values).rowcount
    return states


def make_due(connection: sqlite3.Connection, destination: str, at: str) -> None:
    """Make all pending messages to a destination due."""
    connection.execute(
        "UPDATE messages SET next_attempt_at = ?2 WHERE destination = ?1 AND state = 'pending'"
        " AND next_attempt_at > ?2",
        (destination, at),
    )


def stop_destination(
    connection: sqlite3.Connection, destination: str, reason: str, at: str
) -> None:
    """Stop a destination until `restart_destination`."""
    connection.execute(
        "INSERT OR IGNORE INTO stopped_destinations (destination, stopped_at, reason)"
        " VALUES (?, ?, ?)",
        (destination, at, reason),
    )


def restart_destination(connection: sqlite3.Connection, destination: str) -> None:
    """Allow messages to a destination again."""
    connection.execute("DELETE FROM stopped_destinations WHERE destination = ?", (destination,))


def stopped_destinations(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the stopped destinations with the reasons."""
    query = "SELECT destination, reason FROM stopped_destinations ORDER BY 1"
    return dict(connection.execute(query).fetchall())
