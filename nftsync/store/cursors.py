"""Cursors of rules and forwards: how far each has processed the changes and webhooks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec

from nftsync.alerts import Forward, WatchRule
from nftsync.text import lasting
from nftsync.times import age_seconds

#: In place of a rule's name, for states of the rules themselves; no rule can have this name.
EVERY_RULE = "*"
#: A rule is late if changes have waited this long in addition to its own delays, in seconds.
_LATE = 3_600.0
_LONGEST_QUIET = timedelta(days=1)

_Rules = Sequence[WatchRule | Forward]
_PAUSED = "SELECT subject, data FROM watch_states WHERE rule = ? AND ended_at IS NULL ORDER BY 1"
_FIRST = "(SELECT {1} FROM {0} WHERE {2} > c.{3} ORDER BY {2} LIMIT 1)"
#: The times of a rule's first unprocessed changes, or of a forward's first webhook.
_FIRST_TIMES = {
    WatchRule: (
        _FIRST.format("balance_change_rows", "observed_at", "change_id", "change_id"),
        _FIRST.format("token_change_rows", "observed_at", "change_id", "token_change_id"),
    ),
    Forward: (_FIRST.format("webhooks", "received_at", "webhook_no", "webhook_no"),),
}


def started_rules(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT rule FROM watch_cursors").fetchall()}


def add_cursors(
    connection: sqlite3.Connection, rules: Iterable[str], position: Sequence[int]
) -> None:
    """Start rules without a cursor at a position: a change, a token's change and a webhook."""
    connection.executemany(
        "INSERT OR IGNORE INTO watch_cursors"
        " (rule, change_id, token_change_id, webhook_no, version) VALUES (?, ?, ?, ?, 0)",
        [(rule, *position) for rule in sorted(rules)],
    )


def cursor_of(connection: sqlite3.Connection, rule: str) -> tuple[int, int, int, int]:
    query = "SELECT change_id, token_change_id, webhook_no, version FROM watch_cursors"
    cursor: tuple[int, int, int, int]
    cursor = connection.execute(f"{query} WHERE rule = ?", (rule,)).fetchone()
    return cursor


def advance_cursor(
    connection: sqlite3.Connection, rule: str, position: Sequence[int], version: int
) -> bool:
    """Move a rule's cursor of this version; return False if another process has moved it."""
    moved = connection.execute(
        "UPDATE watch_cursors SET change_id = ?, token_change_id = ?, webhook_no = ?,"
        " version = version + 1 WHERE rule = ? AND version = ?",
        (*position, rule, version),
    )
    return moved.rowcount > 0


def paused_rules(connection: sqlite3.Connection, rules: _Rules) -> dict[str, str]:
    rows = connection.execute(_PAUSED, (EVERY_RULE,)).fetchall()
    names = {rule.name for rule in rules}
    return {name: msgspec.json.decode(data)["reason"] for name, data in rows if name in names}


def waits(connection: sqlite3.Connection, rules: _Rules, at: str) -> dict[str, float]:
    """Return the seconds that changes have waited for each rule, beyond its own delays."""
    seconds = {}
    for rule in rules:
        query = f"SELECT {', '.join(_FIRST_TIMES[type(rule)])} FROM watch_cursors c WHERE rule = ?"
        times = connection.execute(query, (rule.name,)).fetchone() or ()
        own = timedelta(0)
        if isinstance(rule, WatchRule):
            own = rule.digest + (_LONGEST_QUIET if rule.quiet else own)
        oldest = min(filter(None, times), default=at)
        seconds[rule.name] = max(0.0, age_seconds(oldest, at) - own.total_seconds())
    return seconds


def late_rules(connection: sqlite3.Connection, rules: _Rules, at: str) -> dict[str, str]:
    return {
        name: f"changes have waited for {lasting(seconds)}; run `nftsync serve` or `nftsync watch`"
        for name, seconds in waits(connection, rules, at).items()
        if seconds > _LATE
    }


def rule_problems(connection: sqlite3.Connection, rules: _Rules, at: str) -> dict[str, str]:
    paused = {name: f"paused: {why}" for name, why in paused_rules(connection, rules).items()}
    return late_rules(connection, rules, at) | paused
