"""Planner of messages about changes, states and webhooks.

One transaction stores messages and advances the cursor, so several processes may plan.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from nftsync.alerts import Forward, WatchRule
from nftsync.columnar.source import Source, reading
from nftsync.errors import InputError
from nftsync.store.cursors import (
    EVERY_RULE,
    add_cursors,
    advance_cursor,
    cursor_of,
    started_rules,
    waits,
)
from nftsync.store.history import first_row
from nftsync.store.mirror import Mirror
from nftsync.store.outbox import Message, add, database_id
from nftsync.store.watch_states import States, compare_states, mark_reported, store_states
from nftsync.times import now
from nftsync.watch.events import SINGLE, Events, messages_of
from nftsync.watch.rules import Position, Scope, changes_of
from nftsync.watch.states import state_events, states_now

_log = logging.getLogger("nftsync.watch")

#: Changes without a message after which the cursor is stored; each plan reads fewer ones again.
_LONGEST_UNSTORED = 1_000
#: Seconds after which a cursor without messages is stored, too, to show that its rule is not late.
_STORE_AFTER = 60.0
#: Changes that are planned together, which bounds memory; 100,000 at once are one digest.
_MOST = 200_000
#: How many times larger a part may grow to have both sides of its first transfer.
_MOST_GROWTH = 4
#: How long changes may wait, in seconds, because each plan ends between the sides of a transfer.
_LONGEST_APART = 600.0
#: Webhooks per transaction.
_WEBHOOKS = 500
#: Resource types of `nft`: the ones with built-in routes. The provider documents no mapping.
_NFT_TYPES = {"token", "nft", "wallet"}


_NEWEST = """
    SELECT (SELECT coalesce(max(change_id), 0) FROM balance_change_rows),
        (SELECT coalesce(max(change_id), 0) FROM token_change_rows),
        (SELECT coalesce(max(webhook_no), 0) FROM webhooks)
"""
_FORWARDED = """
    SELECT webhook_id, resource_type, resource_id, body FROM webhooks
    WHERE webhook_no > ? AND webhook_no <= ? AND state <> 'quarantined' AND body IS NOT NULL
    ORDER BY webhook_no
"""


def newest(connection: sqlite3.Connection) -> Position:
    return Position(*connection.execute(_NEWEST).fetchone())


def position_at(connection: sqlite3.Connection, since: str) -> Position:
    """Return the position before a time, but with the newest webhook."""
    change, token_change = (
        first_row(connection, feed, since, later=False) - 1
        for feed in ("balance_change_rows", "token_change_rows")
    )
    return Position(change, token_change, newest(connection).webhook_no)


def start_cursors(
    mirror: Mirror, rules: Iterable[WatchRule | Forward], since: str | None = None
) -> None:
    connection = mirror.connection
    if new := {rule.name for rule in rules} - started_rules(connection):
        with mirror.transaction():
            start = newest(connection) if since is None else position_at(connection, since)
            add_cursors(connection, new, start)


class Planner:
    """Planner of messages; new rules start at `since`, by default now."""

    def __init__(
        self,
        mirror: Mirror,
        rules: Iterable[WatchRule],
        forwards: Iterable[Forward],
        since: str | None = None,
        *,
        most: int = _MOST,
    ) -> None:
        self._mirror = mirror
        self._most = most
        self._rules = list(rules)
        self._forwards = list(forwards)
        self._all_rules: list[WatchRule | Forward] = [*self._rules, *self._forwards]
        self._wait_until: dict[str, float] = {}  # monotonic, as the clock may go back
        self._stored_at: dict[str, float] = {}  # monotonic
        self._database_id = database_id(mirror.connection)
        start_cursors(mirror, self._all_rules, since)

    def newest(self) -> Position:
        return newest(self._mirror.connection)

    def plan(self, until: Position, *, wait: bool = True) -> int:
        """Store the messages up to a position; return their number.

        Without `wait`, digests end now.
        """
        planned = 0
        paused: States = {}
        for rule in self._rules:
            try:
                more = True
                while more:
                    stored, more = self._plan_rule(rule, until, wait=wait)
                    planned += stored
            except InputError as error:  # a group or label was renamed or deleted
                paused["rule_paused", rule.name] = {"rule": rule.name, "reason": str(error)}
        planned += sum(self._plan_forward(forward, until) for forward in self._forwards)
        return planned + self._report_paused(paused)

    def _report_paused(self, paused: States) -> int:
        changes = compare_states(self._mirror.connection, EVERY_RULE, paused)
        if not any(changes):
            return 0
        for data in changes.began.values():
            _log.error("the rule %s is paused: %s", data["rule"], data["reason"])
        to = sorted({name for one in self._all_rules for name in one.to})
        rule, at, events = WatchRule(name=EVERY_RULE, on=[], to=to), now(), Events()
        with self._mirror.transaction() as transaction:
            connection = transaction.connection
            store_states(connection, EVERY_RULE, changes, at)
            events.add(state_events(connection, rule, at))
            messages = messages_of(self._database_id, EVERY_RULE, to, events.messages())
            added = add(connection, messages, at)
            mark_reported(connection, rule, at)
        return added

    def _plan_rule(self, rule: WatchRule, until: Position, *, wait: bool) -> tuple[int, bool]:
        """Return the number of messages, and whether parts are left."""
        at = now()
        with reading(self._mirror.connection) as source:
            connection = source.cursor.connection
            scope = Scope.of(rule, source)
            states = states_now(connection, self._mirror.path, rule, scope, at)
            began_or_ended = compare_states(connection, rule.name, states)
        if any(began_or_ended):  # also in quiet hours
            with self._mirror.transaction() as transaction:
                store_states(transaction.connection, rule.name, began_or_ended, at)
        if wait and time.monotonic() < self._wait_until.get(rule.name, 0.0):
            return 0, False
        with reading(self._mirror.connection) as source:
            start, version = self._cursor(source.cursor.connection, rule.name)
            events, part, end = self._next_part(source, rule, scope, start, until)
            events.add(state_events(source.cursor.connection, rule, at))
        more = end == part and any(one < last for one, last in zip(part, until, strict=True))
        if not events:
            is_due = time.monotonic() >= self._stored_at.get(rule.name, 0.0) + _STORE_AFTER
            passed = sum(end) - sum(start)
            if passed >= _LONGEST_UNSTORED or (passed and (more or not wait or is_due)):
                self._store(rule.name, end, version, [])
            return 0, more
        first_at = datetime.fromisoformat(events.first[0].at)
        if seconds := self._seconds_to_wait(rule, first_at, wait=wait):
            self._wait_until[rule.name] = time.monotonic() + seconds
            return 0, False
        # Quiet hours end with one digest, however few events it has.
        single = 1 if rule.quiet is not None and rule.quiet.until(first_at) else SINGLE
        messages = messages_of(self._database_id, rule.name, rule.to, events.messages(single))
        return self._store(rule.name, end, version, messages, reported=(rule, at)), more

    def _next_part(
        self, source: Source, rule: WatchRule, scope: Scope, start: Position, until: Position
    ) -> tuple[Events, Position, Position]:
        """Return events, the intended end, and the end, after both sides of the first transfer."""
        size = self._most
        while True:
            ends = (max(a, min(a + size, b)) for a, b in zip(start, until, strict=True))
            part, together = Position(*ends), size < _MOST_GROWTH * self._most
            events, end = changes_of(source, rule, scope, start, part, together=together)
            if start.change_id < end.change_id or end == part:
                return events, part, end
            if part.change_id == until.change_id:
                seconds = waits(source.cursor.connection, [rule], now())[rule.name]
                if seconds <= _LONGEST_APART:  # the other side is part of the next plan
                    return events, part, end
            size *= 2

    def _seconds_to_wait(self, rule: WatchRule, first_at: datetime, *, wait: bool) -> float:
        moment = datetime.now(UTC)
        if rule.quiet is not None and (end := rule.quiet.until(moment)) is not None:
            return (end - moment).total_seconds()
        left = first_at + rule.digest - moment
        # If more than the digest's time is left, the clock was ahead.
        return left.total_seconds() if wait and timedelta(0) < left <= rule.digest else 0.0

    def _plan_forward(self, forward: Forward, until: Position) -> int:
        planned = 0
        while True:
            start, version = self._cursor(self._mirror.connection, forward.name)
            last = min(until.webhook_no, start.webhook_no + _WEBHOOKS)
            if last <= start.webhook_no:
                return planned
            rows = self._mirror.connection.execute(_FORWARDED, (start.webhook_no, last)).fetchall()
            types = {name.lower() for name in forward.types} or {"*"}
            types |= _NFT_TYPES if "nft" in types else set()
            contents = (
                (webhook_id, body, [f"{kind} {resource_id}"])
                for webhook_id, kind, resource_id, body in rows
                if not types.isdisjoint(("*", kind.lower()))
            )
            messages = messages_of(self._database_id, forward.name, forward.to, contents)
            position = start._replace(webhook_no=last)
            planned += self._store(forward.name, position, version, messages)

    def _cursor(self, connection: sqlite3.Connection, name: str) -> tuple[Position, int]:
        *ids, version = cursor_of(connection, name)
        return Position(*ids), version

    def _store(
        self,
        name: str,
        position: Position,
        version: int,
        messages: Sequence[Message],
        reported: tuple[WatchRule, str] | None = None,
    ) -> int:
        with self._mirror.transaction() as transaction:
            connection = transaction.connection
            if not advance_cursor(connection, name, position, version):
                return 0
            self._stored_at[name] = time.monotonic()
            added = add(connection, messages, now())
            if reported is not None:
                mark_reported(connection, *reported)
        return added
