"""Cursors of rules and forwards: how far each has processed the changes and webhooks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
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

_PAUSED = """
    SELECT subject, data FROM watch_states
    WHERE rule = ? AND kind = 'rule_paused' AND ended_at IS NULL ORDER BY subject
"""
#: The times of the first unprocessed changes, and of the first webhook.
_WAITING = """
    SELECT
        (SELECT min(observed_at) FROM balance_change_rows WHERE change_id = (
            SELECT min(change_id) FROM balance_change_rows WHERE change_id > c.change_id)),
        (SELECT min(observed_at) FROM token_change_rows WHERE change_id = (
            SELECT min(change_id) FROM token_change_rows WHERE change_id > c.token_change_id)),
        (SELECT min(received_at) FROM webhooks WHERE webhook_no = (
            SELECT min(webhook_no) FROM webhooks WHERE webhook_no > c.webhook_no))
    FROM watch_cursors c WHERE rule = ?
"""


def paused_rules(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the paused rules with the reasons."""
    rows = connection.execute(_PAUSED, (EVERY_RULE,)).fetchall()
    return {name: msgspec.json.decode(data)["reason"] for name, data in rows}


def waits(
    connection: sqlite3.Connection, rules: Iterable[WatchRule | Forward], at: str
) -> dict[str, float]:
    """Return how many seconds changes have waited for each rule, without its own delays."""
    seconds = {}
    for rule in rules:
        times = connection.execute(_WAITING, (rule.name,)).fetchone() or (None,) * 3
        own = timedelta(0)
        if isinstance(rule, WatchRule):
            times = times[:2]
            own = rule.digest + (_LONGEST_QUIET if rule.quiet else own)
        else:
            times = times[2:]
        oldest = min(filter(None, times), default=at)
        seconds[rule.name] = max(0.0, age_seconds(oldest, at) - own.total_seconds())
    return seconds


def late_rules(
    connection: sqlite3.Connection, rules: Iterable[WatchRule | Forward], at: str
) -> dict[str, str]:
    """Return the rules for which changes have waited for too long, with a text."""
    return {
        name: f"changes have waited for {lasting(seconds)}; run `nftsync serve` or `nftsync watch`"
        for name, seconds in waits(connection, rules, at).items()
        if seconds > _LATE
    }


def rule_problems(
    connection: sqlite3.Connection, rules: Iterable[WatchRule | Forward], at: str
) -> dict[str, str]:
    """Return why rules are late or paused, by name."""
    paused = {name: f"paused: {why}" for name, why in paused_rules(connection).items()}
    return late_rules(connection, rules, at) | paused
