"""Rules, planner and senders on the simulated machine, with destinations that fail."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from nftsync.alerts import Destination, Forward, WatchRule
from nftsync.provider.config import ClientConfig
from nftsync.store.mirror import Mirror
from nftsync.store.outbox import restart_destination
from nftsync.watch import planner, rules, sender, service
from nftsync.watch.delivery import Outgoing, SendResult
from nftsync.watch.service import WatchConfig
from tests.kit.reported import (
    changes_of,
    check_moves,
    check_once,
    check_received,
    events_of,
    messages_of,
)
from tests.kit.serve_process import query
from tests.model import simulated
from tests.model.stand_ins import Event, Executor, Thread

RULES = [
    WatchRule(name="moves", on=["sent", "received"], to=["steady", "failing"]),
    WatchRule(name="amounts", on=["amount"], to=["failing"]),
    WatchRule(name="metadata", on=["metadata"], to=["steady"]),
]
FORWARDS = [Forward(name="all", to=["failing"])]


class Delivery:
    """Replacement of the connection to a destination."""

    watching: Watching

    def __init__(self, destination: Destination, _: ClientConfig) -> None:
        self._name = destination.name
        self._stopped = Event()

    def send(self, outgoing: Outgoing) -> SendResult:
        rng = self.watching.rng
        if self._stopped.wait(rng.choice([0.01, 0.1, 15.0]) * rng.random()):
            return SendResult("down", "stopped")
        outcome = self._attempt(outgoing)
        if self._stopped.wait(0.05 * rng.random()):
            return SendResult("down", "stopped")
        return outcome

    def _attempt(self, outgoing: Outgoing) -> SendResult:
        rng = self.watching.rng
        luck = rng.random() / (self.watching.trouble[self._name] or 1e-9)
        if luck < 0.4:
            return SendResult("down", "no connection", rng.choice([None, 2.0]))
        if luck < 0.6:
            return SendResult("refused", "HTTP 500")
        if luck < 0.605:
            return SendResult("gone", "HTTP 410")
        self.watching.received[self._name].append((outgoing.message_id, outgoing.body))
        # The response is lost.
        return SendResult("down", "no answer") if luck < 1.0 else SendResult("sent")

    def abort(self) -> None:
        self._stopped.set()

    close = abort


def wait(
    futures: Iterable[Future[Any]], timeout: float, _: str
) -> tuple[set[Future[Any]], set[Future[Any]]]:
    """Wait for the first of some futures, on the machine."""
    running = set(futures)
    simulated.MACHINE.pause(lambda: any(future.done() for future in running), timeout)
    done = {future for future in running if future.done()}
    return done, running - done


#: Replacements while a machine is installed. No digest leaves out what must be compared.
STAND_INS: list[tuple[Any, str, Any]] = [
    (service, "open_delivery", Delivery),
    (sender, "ThreadPoolExecutor", Executor),
    (sender, "wait", wait),
    (service, "_POLL", 2.0),  # for fewer steps
    (service, "_PLAN", 2.0),
    (planner, "SINGLE", 1_000_000),
    (planner, "changes_of", partial(rules.changes_of, shown=1_000_000)),
]


class Watching:
    """The alerts of one seed.

    Attributes:
        received: messages that destinations received, in order.
        trouble: the chance that an attempt fails.
    """

    def __init__(self, database: Path, rng: random.Random) -> None:
        self.database, self.rng = database, rng
        self.received: dict[str, list[tuple[str, bytes]]] = {"steady": [], "failing": []}
        self.trouble = {"steady": 0.02, "failing": 0.3}
        Delivery.watching = self
        self.config = WatchConfig(
            rules={rule.name: rule for rule in RULES},
            forwards={forward.name: forward for forward in FORWARDS},
            destinations={name: Destination(name=name, kind="webhook") for name in self.received},
            network=ClientConfig(base_url="http://destinations.example", proxy=""),
        )
        with Mirror(database) as mirror:  # rules begin with the first change
            planner.Planner(mirror, RULES, FORWARDS)

    def start(self, stopped: Any) -> list[Thread]:
        """Start the threads of a `serve`."""
        given = (self.database, self.config)
        threads = [
            Thread(service.plan_continuously, (*given, stopped)),
            *(Thread(service.send_continuously, (*given, name, stopped)) for name in self.received),
        ]
        for thread in threads:
            thread.start()
        return threads

    def calm(self) -> None:
        """Repair all destinations, and end the waits."""
        self.trouble = dict.fromkeys(self.received, 0.0)
        with Mirror(self.database) as mirror, mirror.transaction() as transaction:
            for name in self.received:
                restart_destination(transaction.connection, name)
            transaction.connection.execute(
                "UPDATE messages SET next_attempt_at = '2000-01-01T00:00:00.000000Z'"
                " WHERE state IN ('pending', 'running', 'failed')"
            )

    def is_drained(self) -> bool:
        states = "SELECT 1 FROM messages WHERE state NOT IN ('done', 'dead') LIMIT 1"
        return not query(self.database, states)

    def check_end(self) -> Counter[str]:
        """Check that each change was reported once to each destination, in order, with one id."""
        messages = messages_of(self.database)
        figures = Counter({"messages": len(messages)})
        for name, arrived in self.received.items():
            ours = [one for one in messages if one.destination == name and one.state != "dead"]
            check_received(ours, [one for one in arrived if one[0] in {x.message_id for x in ours}])
            figures["messages received again"] += len(arrived) - len(ours)
        changes = changes_of(self.database)
        amounts = [one.change_id for one in changes if one.old and one.new]
        rows = query(self.database, "SELECT change_id FROM token_changes")
        renamed = [change_id for (change_id,) in rows]
        for rule, name in ((x.name, to) for x in RULES for to in x.to):
            events, _ = events_of(one for one in messages if one[2:4] == (rule, name))
            if rule == "moves":
                check_moves(changes, events, 0)
            else:
                expected = amounts if rule == "amounts" else renamed
                check_once(expected, events, itemgetter("change_id"), 0)
        return figures
