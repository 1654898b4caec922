"""States that begin and end, such as a stale wallet. Writes run in the caller's transaction."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from nftsync.alerts import WatchRule
from nftsync.store.database import as_json, named_rows
from nftsync.store.history import ahead_of
from nftsync.times import shifted
from nftsync.watch.events import Event
from nftsync.watch.rules import Scope

#: A disk with less free space is low, in bytes.
_LEAST_FREE = 1_000_000_000
#: Replay is paused if a webhook has been pending for longer.
_LONGEST_PENDING = timedelta(minutes=10)

#: A kind of state and its subject: a wallet's id, or blank.
Key: TypeAlias = tuple[str, str]
States: TypeAlias = dict[Key, dict[str, Any]]


class StateChanges(NamedTuple):
    """States that began or ended since the last check."""

    began: States
    ended: list[Key]


_WALLETS = """
    SELECT wallet_id AS subject, wallet_id, label AS wallet_label, wallet_group, synced_at, status,
        error
    FROM wallets
    WHERE tracked AND (:wallets IS NULL OR wallet_no IN (SELECT value FROM json_each(:wallets)))
        AND """
_WEBHOOKS = """
    SELECT '' AS subject, count(*) AS webhooks, min(received_at) AS oldest_received_at
    FROM webhooks WHERE """
#: Queries of each kind's subjects and data.
_QUERIES = {
    "wallet_stale": f"{_WALLETS} coalesce(synced_at, first_seen_at) < :stale ORDER BY wallet_no",
    "wallet_failed": f"{_WALLETS} status = 'failed' ORDER BY wallet_no",
    "sync_failed": """
        SELECT '' AS subject, run_id, status, finished_at, error FROM (
            SELECT * FROM sync_runs WHERE kind = 'sync' AND reads_all AND finished_at IS NOT NULL
            ORDER BY run_id DESC LIMIT 1)
        WHERE status = 'failed'
    """,
    "removals_held": """
        SELECT '' AS subject, count(*) AS removals, min(observed_at) AS oldest_observed_at
        FROM removal_rows
        WHERE held AND (:wallets IS NULL OR wallet_no IN (SELECT value FROM json_each(:wallets)))
        GROUP BY subject
    """,
    "webhook_dead": f"{_WEBHOOKS} state = 'dead' GROUP BY subject",
    # Pruning its body ends what cannot be requeued.
    "webhook_quarantined": f"{_WEBHOOKS} state = 'quarantined' AND body NOTNULL GROUP BY subject",
    "replay_paused": f"{_WEBHOOKS} state = 'pending' AND received_at < :pending GROUP BY subject",
}


def states_now(
    connection: sqlite3.Connection, database: Path, rule: WatchRule, scope: Scope, at: str
) -> States:
    """Return the current states of a rule, with their data."""
    values = {
        "wallets": None if scope.wallets is None else as_json(scope.wallets),
        "stale": shifted(at, -rule.max_age),
        "pending": shifted(at, -_LONGEST_PENDING),
    }
    states: States = {}
    for kind in rule.on:
        if kind in _QUERIES:
            rows = named_rows(connection.execute(_QUERIES[kind], values))
            states |= {(kind, row.pop("subject")): row for row in rows}
    if "disk_low" in rule.on and (free := shutil.disk_usage(database.parent).free) < _LEAST_FREE:
        states["disk_low", ""] = {"free_bytes": free}
    if "clock_ahead" in rule.on and (warning := ahead_of(connection, at)) is not None:
        states["clock_ahead", ""] = {"warning": warning}
    return states


# Stored states -----------------------------------------------------------------------------------

_LASTING = "SELECT kind, subject FROM watch_states WHERE rule = ? AND ended_at IS NULL"


def compare_states(connection: sqlite3.Connection, rule: str, states: States) -> StateChanges:
    """Compare the current states with the stored ones."""
    stored = {(kind, subject) for kind, subject in connection.execute(_LASTING, (rule,)).fetchall()}
    began = {key: data for key, data in states.items() if key not in stored}
    return StateChanges(began, sorted(stored - states.keys()))


def store_states(connection: sqlite3.Connection, rule: str, changes: StateChanges, at: str) -> None:
    """Store which states began and ended."""
    # With a new version of the cursor, no other process deletes an unreported end.
    connection.execute("UPDATE watch_cursors SET version = version + 1 WHERE rule = ?", (rule,))
    connection.executemany(
        "INSERT OR IGNORE INTO watch_states (rule, kind, subject, data, began_at)"
        " VALUES (?, ?, ?, ?, ?)",
        [(rule, *key, as_json(data), at) for key, data in changes.began.items()],
    )
    connection.executemany(
        "UPDATE watch_states SET ended_at = ?"
        " WHERE rule = ? AND kind = ? AND subject = ? AND ended_at IS NULL",
        [(at, rule, *key) for key in changes.ended],
    )


_REPORTABLE = """
    SELECT kind, subject, data, began_at, ended_at, reported_at FROM watch_states
    WHERE rule = ?1 AND (reported_at IS NULL OR ended_at IS NOT NULL OR reported_at < ?2)
    ORDER BY state_no
"""


def state_events(connection: sqlite3.Connection, rule: WatchRule, at: str) -> Iterator[Event]:
    """Yield unreported starts and ends, and lasting states to report again."""
    again = "" if rule.repeat is None else shifted(at, -rule.repeat)
    rows = connection.execute(_REPORTABLE, (rule.name, again)).fetchall()
    for kind, subject, stored, began, ended, reported in rows:
        data = {"since": began, **msgspec.json.decode(stored)}
        moments = {"began": began} if reported is None else {}
        if ended is not None:
            moments["ended"] = ended
        elif reported is not None and rule.repeat is not None:
            moments["lasts"] = shifted(reported, rule.repeat)
        for state, moment in moments.items():
            identity = f"{kind} {subject} {began} {state} {moment}"
            yield _event(kind, subject, moment, identity, {"state": state, **data})


def state_events_now(states: States, at: str) -> Iterator[Event]:
    """Yield current states as if they had just begun."""
    for (kind, subject), data in states.items():
        yield _event(kind, subject, at, "", {"state": "began", "since": at, **data})


def _event(kind: str, subject: str, at: str, identity: str, data: dict[str, Any]) -> Event:
    return Event(kind.replace("_", "."), at, identity, (f"{kind} {subject}",), data)


def mark_reported(connection: sqlite3.Connection, rule: WatchRule, at: str) -> None:
    """Mark the events of `state_events` as reported; `at` must be the same."""
    again = "" if rule.repeat is None else shifted(at, -rule.repeat)
    connection.execute(
        "DELETE FROM watch_states WHERE rule = ? AND ended_at IS NOT NULL", (rule.name,)
    )
    connection.execute(
        "UPDATE watch_states SET reported_at = ?1"
        " WHERE rule = ?2 AND (reported_at IS NULL OR reported_at < ?3)",
        (at, rule.name, again),
    )
