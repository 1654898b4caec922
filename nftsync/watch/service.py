"""Planning and sending, in `serve` or once; previews of rules."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from nftsync.alerts import Destination, Forward, WatchRule
from nftsync.columnar.source import reading
from nftsync.errors import InputError
from nftsync.provider.config import ClientConfig
from nftsync.provider.webhooks import HEADER, sign
from nftsync.settings import Settings
from nftsync.settings.alerts import open_destination_settings
from nftsync.store.cursors import late_rules, rule_problems
from nftsync.store.database import explained
from nftsync.store.mirror import Mirror
from nftsync.store.outbox import Message, database_id, restart_destination, stopped_destinations
from nftsync.store.writer import keep_running
from nftsync.times import now
from nftsync.watch.channel import SendResult
from nftsync.watch.delivery import open_delivery
from nftsync.watch.events import Body, Events, message_id, messages_of
from nftsync.watch.planner import Planner, newest, position_at, start_cursors
from nftsync.watch.rules import Position, Scope, changes_of
from nftsync.watch.sender import MessageSender
from nftsync.watch.states import state_events_now, states_now
from nftsync.watch.texts import outgoing

_log = logging.getLogger("nftsync.watch")

#: Seconds to wait for the other side of a transfer.
_SETTLE = 3.0
#: Seconds between checks of states, plans, and searches for due messages; and before a restart.
_STATES, _PLAN, _POLL, _RESTART = 10.0, 1.0, 0.5, 5.0
#: The rule of messages about destinations.
_REPORTS = "destinations"


class WatchConfig(NamedTuple):
    """Rules, forwards and destinations; `settle` delays reports, in seconds."""

    rules: Mapping[str, WatchRule]
    forwards: Mapping[str, Forward]
    destinations: Mapping[str, Destination]
    network: ClientConfig
    webhook_secret: str | None = None
    settle: float = _SETTLE

    @property
    def all_rules(self) -> list[WatchRule | Forward]:
        return [*self.rules.values(), *self.forwards.values()]

    def __repr__(self) -> str:
        return f"WatchConfig({', '.join([*self.rules, *self.forwards])})"


def watch_config(settings: Settings) -> WatchConfig:
    network = ClientConfig(
        base_url="https://destinations.invalid",
        proxy=settings.proxy,
        proxy_source=settings.sources["proxy"],
        ca_file=str(settings.ca_file) if settings.ca_file else None,
    )
    destinations = open_destination_settings(
        settings.destinations, settings.watch, settings.forward
    )
    secret = settings.webhook_secret
    return WatchConfig(settings.watch, settings.forward, destinations, network, secret)


def check_rule(database: Path, rule: WatchRule | Forward) -> None:
    """Check a rule's names and progress; InputError states the problem."""
    if not database.exists():
        return
    with reading(database) as source:
        if isinstance(rule, WatchRule):
            Scope.of(rule, source)
        late = late_rules(source.cursor.connection, [rule], now())
        if late:
            raise InputError(late[rule.name])


# In `serve` --------------------------------------------------------------------------------------


def start_rules(database: Path, config: WatchConfig) -> None:
    with explained(database), Mirror(database) as mirror:
        start_cursors(mirror, config.all_rules)


def plan_continuously(database: Path, config: WatchConfig, stopped: threading.Event) -> None:
    def plan(mirror: Mirror) -> None:
        planner = Planner(mirror, config.rules.values(), config.forwards.values())
        positions: deque[tuple[float, Position]] = deque()
        ready = position = planner.newest()
        states_at = 0.0
        while not stopped.wait(_PLAN):
            moment, before = time.monotonic(), ready
            if (newer := planner.newest()) != position:
                position = newer
                positions.append((moment + config.settle, position))
            while positions and positions[0][0] <= moment:
                ready = positions.popleft()[1]
            ready = ready._replace(webhook_no=position.webhook_no)
            if ready != before or moment >= states_at:
                states_at = moment + _STATES
                planner.plan(ready)

    _restarting(database, stopped, plan)


def send_continuously(
    database: Path, config: WatchConfig, name: str, stopped: threading.Event
) -> None:
    def send(mirror: Mirror) -> None:
        with _sender(mirror, config, name) as sender:
            while not stopped.is_set():
                if not sender.step(_POLL):
                    stopped.wait(_POLL)

    _restarting(database, stopped, send)


def _restarting(database: Path, stopped: threading.Event, work: Callable[[Mirror], None]) -> None:
    def run() -> None:
        with explained(database), Mirror(database) as mirror:
            work(mirror)

    on_error = partial(_log.error, "database trouble: %s")
    keep_running(
        database, stopped, run, on_error, due=lambda failures: _RESTART if failures else 0.0
    )


@contextmanager
def _sender(mirror: Mirror, config: WatchConfig, name: str) -> Iterator[MessageSender]:
    shared_id = database_id(mirror.connection)

    def others(kind: str, reason: str) -> list[Message]:
        at = now()
        data = {"destination": name, "reason": reason}
        body = msgspec.json.encode({"type": f"destination.{kind}", "timestamp": at, "data": data})
        identity = f"{name} {kind} {at[:10]}"  # at most one a day
        receivers = [other for other in config.destinations if other != name]
        return messages_of(
            shared_id, _REPORTS, receivers, [(identity, body, [f"destination {name}"])]
        )

    def headers(rule: str, body: bytes) -> dict[str, str]:
        forward = config.forwards.get(rule)
        if forward is None or not forward.original_signature or not config.webhook_secret:
            return {}
        return {HEADER: sign(config.webhook_secret, body)}

    delivery = open_delivery(config.destinations[name], config.network)
    with closing(MessageSender(mirror, name, delivery, others, headers)) as sender:
        yield sender


# Once --------------------------------------------------------------------------------------------


def watch_once(
    database: Path, config: WatchConfig, stopped: threading.Event, since: str | None = None
) -> tuple[Counter[str], dict[str, str], dict[str, str]]:
    """Plan, and send all due messages.

    Returns counts by new state, and problems of destinations and of rules.
    """
    with explained(database), ExitStack() as stack:
        mirror = stack.enter_context(Mirror(database))
        planner = Planner(mirror, config.rules.values(), config.forwards.values(), since)
        counts = Counter(planned=planner.plan(planner.newest(), wait=False))
        senders = {
            name: stack.enter_context(_sender(stack.enter_context(Mirror(database)), config, name))
            for name in config.destinations
        }
        busy = True
        while busy and not stopped.is_set():
            steps = [sender.step(_POLL / len(senders)) for sender in senders.values()]
            busy = any(steps)
        unreachable = stopped_destinations(mirror.connection)
        problems = rule_problems(mirror.connection, config.all_rules, now())
    for sender in senders.values():
        counts += sender.counts
    unreachable |= {name: sender.down for name, sender in senders.items() if sender.down}
    return counts, unreachable, problems


def send_test(database: Path, config: WatchConfig, name: str) -> SendResult:
    """Send a test message; on success, restart a stopped destination."""
    body: Body = {"type": "test", "timestamp": now(), "data": {"destination": name}}
    identity = message_id("", "test", name, body["timestamp"])
    with closing(open_delivery(config.destinations[name], config.network)) as delivery:
        outcome = delivery.send(outgoing(identity, msgspec.json.encode(body), {}))
    if outcome.result == "sent" and database.exists():
        with Mirror(database) as mirror, mirror.transaction() as transaction:
            restart_destination(transaction.connection, name)
    return outcome


def preview(database: Path, rule: WatchRule, since: str, shown: int) -> Events:
    """Return the first `shown` changes (0: all) and lasting states of a rule."""
    with reading(database) as source:
        connection = source.cursor.connection
        start, end = position_at(connection, since), newest(connection)
        scope = Scope.of(rule, source)
        events, _ = changes_of(source, rule, scope, start, end, shown or sys.maxsize)
        events.add(state_events_now(states_now(connection, database, rule, scope, now()), now()))
    return events
