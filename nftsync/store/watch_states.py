"""Stored states of rules: which began, which ended, and which destinations know of."""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple, TypeAlias

from nftsync.alerts import WatchRule
from nftsync.store.database import as_json
from nftsync.times import shifted

#: A kind of state and its subject: a wallet's id, or blank.
StateKey: TypeAlias = tuple[str, str]
States: TypeAlias = dict[StateKey, dict[str, Any]]


class StateChanges(NamedTuple):
    """States that began or ended since the last check."""

    began: States
    ended: list[StateKey]


def compare_states(connection: sqlite3.Connection, rule: str, states: States) -> StateChanges:
    query = "SELECT kind, subject FROM watch_states WHERE rule = ? AND ended_at IS NULL"
    stored = {(kind, subject) for kind, subject in connection.execute(query, (rule,)).fetchall()}
    began = {key: data for key, data in states.items() if key not in stored}
    return StateChanges(began, sorted(stored - states.keys()))


def store_states(connection: sqlite3.Connection, rule: str, changes: StateChanges, at: str) -> None:
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


def reportable_states(
    connection: sqlite3.Connection, rule: WatchRule, at: str
) -> list[tuple[Any, ...]]:
    """Return the states with an unreported start or end, and those to report again."""
    return connection.execute(
        "SELECT kind, subject, data, began_at, ended_at, reported_at FROM watch_states"
        " WHERE rule = ?1 AND (reported_at IS NULL OR ended_at IS NOT NULL OR reported_at < ?2)"
        " ORDER BY state_no",
        (rule.name, _reported_before(rule, at)),
    ).fetchall()


def mark_reported(connection: sqlite3.Connection, rule: WatchRule, at: str) -> None:
    """Mark the states of `reportable_states` as reported; `at` must be the same."""
    connection.execute(
        "DELETE FROM watch_states WHERE rule = ? AND ended_at IS NOT NULL", (rule.name,)
    )
    connection.execute(
        "UPDATE watch_states SET reported_at = ?1"
        " WHERE rule = ?2 AND (reported_at IS NULL OR reported_at < ?3)",
        (at, rule.name, _reported_before(rule, at)),
    )


def _reported_before(rule: WatchRule, at: str) -> str:
    return "" if rule.repeat is None else shifted(at, -rule.repeat)
