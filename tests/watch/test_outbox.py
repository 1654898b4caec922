"""The outbox: any workers on any clock, and real senders to destinations that fail."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from nftsync.alerts import Destination
from nftsync.provider.config import ClientConfig
from nftsync.sandbox.consumer import Slow
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from nftsync.store import leases, outbox
from nftsync.store.mirror import Mirror
from nftsync.store.queues import OUTBOX
from nftsync.store.requeue import requeue
from nftsync.times import now, shifted
from nftsync.watch.service import WatchConfig, send_continuously
from tests.kit.serve_process import query
from tests.kit.waiting import wait_until
from tests.kit.webhook_receiver import Receiver

DESTINATIONS = ("ops", "log")
WORKERS = st.integers(0, 1)
KEYS = st.lists(st.sampled_from(["a", "b", "c", "*"]), min_size=1, max_size=2, unique=True)
RESULTS = st.sampled_from(["sent", "sent", "refused", "down"])


class Worker:
    """What a sender believes; its lease may have been taken from it unnoticed."""

    def __init__(self) -> None:
        self.lease: int | None = None
        self.seen: list[int] = []
        self.attempts: list[tuple[int, outbox.ClaimedMessage]] = []  # with the leases of the claims


class Outbox(RuleBasedStateMachine):
    """The outbox of one database with two workers, in simulated time."""

    empty: Path

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.mirror = Mirror(Path(shutil.copy(self.empty, self._folder.name)), write_gap=0.0)
        self.at = now()
        self.workers = [Worker(), Worker()]
        self.added: dict[int, tuple[str, list[str]]] = {}
        self.delivered: list[int] = []
        self.was_dead: set[int] = set()
        self.holders: dict[int, int] = {}  # leases of claimed messages

    def teardown(self) -> None:
        self.drain()
        self.mirror.close()
        self._folder.cleanup()

    def write(self, step: Callable[..., Any], *arguments: Any) -> Any:
        with self.mirror.transaction() as transaction:
            return step(transaction.connection, *arguments)

    def states(self) -> dict[int, tuple[str, int | None]]:
        rows = self.mirror.connection.execute("SELECT message_no, state, lease_no FROM messages")
        return {number: (state, lease) for number, state, lease in rows.fetchall()}

    def valid_leases(self) -> set[int]:
        rows = self.mirror.connection.execute(
            "SELECT lease_no FROM leases WHERE expires_at >= ?", (self.at,)
        )
        return {number for (number,) in rows.fetchall()}

    @rule(destination=st.sampled_from(DESTINATIONS), keys=KEYS)
    def add(self, destination: str, keys: list[str]) -> None:
        number = len(self.added) + 1
        new = outbox.Message(f"msg_{number}", "moves", destination, b"{}", keys)
        self.write(outbox.add, [new, new], self.at)
        self.added[number] = destination, keys

    @rule(worker=WORKERS, destination=st.sampled_from(DESTINATIONS), count=st.integers(1, 3))
    def see(self, worker: int, destination: str, count: int) -> None:
        """Read which messages are due; the claim may come much later."""
        self.workers[worker].seen = outbox.due_messages(
            self.mirror.connection, destination, self.at, count
        )

    @rule(worker=WORKERS)
    def claim(self, worker: int) -> None:
        who = self.workers[worker]
        if who.lease not in self.valid_leases():
            who.lease = self.write(leases.take_lease, self.at)
        before, valid = self.states(), self.valid_leases()
        claimed = self.write(outbox.claim, who.lease, who.seen)
        for message in claimed:
            assert before[message.number][0] in {"pending", "failed"}
            assert self.holders.get(message.number) not in valid
            self.holders[message.number] = who.lease
        assert {message.number for message in claimed} <= set(who.seen)
        who.seen = []
        who.attempts += [(who.lease, message) for message in claimed]

    @precondition(lambda self: any(worker.attempts for worker in self.workers))
    @rule(data=st.data(), result=RESULTS, seconds=st.sampled_from([1, 30, 7_200]))
    def end_attempt(self, data: st.DataObject, result: outbox.AttemptResult, seconds: int) -> None:
        worker = data.draw(st.sampled_from([one for one in self.workers if one.attempts]))
        attempt = worker.attempts.pop(data.draw(st.integers(0, len(worker.attempts) - 1)))
        self._end(*attempt, result, seconds)

    def _end(
        self, lease: int, message: outbox.ClaimedMessage, result: outbox.AttemptResult, seconds: int
    ) -> None:
        if result == "sent":
            self.delivered.append(message.number)
        due_at = shifted(self.at, timedelta(seconds=seconds))
        settled = outbox.Settled(message, result, "no", due_at)
        states = self.write(outbox.settle, lease, [settled], self.at)
        if states["dead"]:
            self.was_dead.add(message.number)
        if self.holders.get(message.number) == lease:
            del self.holders[message.number]

    @rule(destination=st.sampled_from(DESTINATIONS))
    def race(self, destination: str) -> None:
        """Both workers see the same messages, and claim them."""
        for worker in (0, 1):
            self.see(worker, destination, 2)
        for worker in (0, 1):
            self.claim(worker)

    @precondition(lambda self: self.workers[0].attempts)
    @rule(destination=st.sampled_from(DESTINATIONS))
    def stall(self, destination: str) -> None:
        """A worker stalls; the other takes its messages over before the first one ends."""
        self.pass_time(60)
        self.take_back()
        self.see(1, destination, 3)
        self.claim(1)
        self._end(*self.workers[0].attempts.pop(), "down", 1)
        self.pass_time(1)
        self.race(destination)

    @rule(worker=WORKERS)
    def renew(self, worker: int) -> None:
        who = self.workers[worker]
        if who.lease is not None and not self.write(leases.renew_lease, who.lease, self.at):
            who.lease = None

    @rule(worker=WORKERS)
    def end_lease(self, worker: int) -> None:
        who = self.workers[worker]
        if who.lease is not None:
            self.write(leases.end_lease, who.lease)
        who.lease = None

    @rule()
    def take_back(self) -> None:
        self.write(leases.take_back_expired, self.at)

    @rule(destination=st.sampled_from(DESTINATIONS))
    def recover(self, destination: str) -> None:
        self.write(outbox.make_due, destination, self.at)

    @rule(seconds=st.sampled_from([1, 15, 60, 10_000, -5]))
    def pass_time(self, seconds: int) -> None:
        self.at = shifted(self.at, timedelta(seconds=seconds))

    @precondition(lambda self: self.added)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.added)))
        for _ in requeue(self.mirror, OUTBOX, [number], lambda _: pytest.fail("no webhook")):
            """It is done in steps."""

    @precondition(lambda self: self.added)
    @rule(data=st.data())
    def refuse_the_last_time(self, data: st.DataObject) -> None:
        """A message has but one attempt left."""
        number = data.draw(st.sampled_from(sorted(self.added)))
        with self.mirror.transaction() as transaction:
            transaction.connection.execute(
                "UPDATE messages SET attempts = ? WHERE message_no = ? AND state = 'failed'",
                (len(outbox.RETRIES), number),
            )

    @invariant()
    def none_is_lost(self) -> None:
        states = self.states()
        assert states.keys() == self.added.keys()
        for number, (state, lease) in states.items():
            assert (lease is not None) == (state == "running")
            assert state != "done" or number in self.delivered
            assert state != "dead" or number in self.was_dead

    @invariant()
    def first_deliveries_are_in_order(self) -> None:
        firsts = list(dict.fromkeys(self.delivered))
        for place, later in enumerate(firsts):
            destination, keys = self.added[later]
            for number in range(1, later):
                other, others = self.added[number]
                shares = "*" in {*keys, *others} or not set(keys).isdisjoint(others)
                if other == destination and shares and number not in self.was_dead:
                    assert number in firsts[:place], (number, later, firsts)

    def drain(self) -> None:
        """Each message is delivered in the end, whatever the workers left behind."""
        for _ in range(4 * len(self.added) + 4):
            self.pass_time(100_000)
            self.take_back()
            lease = self.write(leases.take_lease, self.at)
            for destination in DESTINATIONS:
                numbers = outbox.due_messages(self.mirror.connection, destination, self.at, 8)
                for message in self.write(outbox.claim, lease, numbers):
                    self._end(lease, message, "sent", 0)
        assert {state for state, _ in self.states().values()} <= {"done", "dead"}
        self.none_is_lost()
        self.first_deliveries_are_in_order()


def test_messages_are_first_delivered_in_order_and_none_is_lost(tmp_path: Path) -> None:
    Mirror(tmp_path / "empty.db").close()
    Outbox.empty = tmp_path / "empty.db"
    run_state_machine_as_test(Outbox, settings=settings(max_examples=15, stateful_step_count=40))


# Real senders ------------------------------------------------------------------------------------


def config_of(**urls: str) -> WatchConfig:
    network = ClientConfig(base_url="https://destinations.invalid", proxy="")
    destinations = {
        name: Destination(name=name, kind="webhook", url=url) for name, url in urls.items()
    }
    return WatchConfig({}, {}, destinations, network)


def store(database: Path, *messages: tuple[str, str, str]) -> None:
    """Store messages; each has a destination, an id and a key."""
    with Mirror(database) as mirror, mirror.transaction() as transaction:
        new = [
            outbox.Message(
                name, "moves", to, json.dumps({"type": name, "data": {}}).encode(), [key]
            )
            for to, name, key in messages
        ]
        outbox.add(transaction.connection, new, now())


@contextmanager
def sending(database: Path, config: WatchConfig, *names: str) -> Iterator[None]:
    """Run the senders of some or all destinations, as `serve` does."""
    stopped = threading.Event()
    threads = [
        threading.Thread(target=send_continuously, args=(database, config, name, stopped))
        for name in names or config.destinations
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def row_of(database: Path, message_id: str) -> dict[str, Any]:
    names = ("state", "attempts", "next_attempt_at", "last_error")
    statement = f"SELECT {', '.join(names)} FROM messages WHERE message_id = ?"
    return dict(zip(names, query(database, statement, message_id)[0], strict=True))


def received(server: SandboxServer, name: str) -> list[str]:
    return [record["headers"]["webhook-id"] for record in server.consumers.records(name)]


def reports(server: SandboxServer, name: str) -> set[tuple[str, str]]:
    bodies = [json.loads(record["body"]) for record in server.consumers.records(name)]
    return {
        (body["type"], body["data"]["destination"])
        for body in bodies
        if body["type"].startswith("destination.")
    }


FAULTS: dict[str, Any] = {
    "refusing": [500],
    "gone": 410,
    "busy": [Slow(retry_after=3_600)],
    "moved": ["redirect"],
    "hanging": ["hang"],
    "broken": ["close"],
    "dying": [500],
    "healthy": [],
}


def test_a_destination_that_fails_delays_no_other_and_loses_nothing(tmp_path: Path) -> None:
    database = tmp_path / "nftsync.db"
    with SandboxServer(World()) as server:
        server.consumers.script(FAULTS)
        config = config_of(**{name: f"{server.url}/sandbox/consumer/{name}" for name in FAULTS})
        store(database, *((to, f"msg_{to}_{n}", "wallet 1") for n in range(3) for to in FAULTS))
        query(database, "UPDATE messages SET attempts = 9 WHERE message_id = 'msg_dying_0'")
        expected = {("destination.stopped", "gone"), ("destination.failed", "dying")}
        quiet = [name for name in FAULTS if name not in {"gone", "dying"}]
        # Reports of one destination must not meet the faults of another.
        with ExitStack() as stack:
            stack.enter_context(sending(database, config, *quiet))
            for name in quiet:
                wait_until(partial(received, server, name))
            for name in ("dying", "gone"):
                stack.enter_context(sending(database, config, name))
                wait_until(partial(received, server, name))
            wait_until(lambda: reports(server, "healthy") >= expected)
            wait_until(lambda: {"msg_healthy_2", "msg_dying_2"} <= done(database))
            for name in ("broken", "refusing", "moved", "busy"):
                wait_until(partial(is_settled, database, f"msg_{name}_0"))
            store(database, ("hanging", "msg_other", "wallet 2"))
            wait_until(lambda: "msg_other" in done(database))
            assert row_of(database, "msg_hanging_0")["state"] == "running"  # it still waits
        first = {name: row_of(database, f"msg_{name}_0") for name in FAULTS}
        told = {name: list(row.values())[:2] for name, row in first.items()}
        assert told.pop("broken") in (["pending", 0], ["done", 1])  # its pause of 5 s may be over
        assert told.pop("refusing") in (["failed", 1], ["done", 2])
        assert told.pop("moved") in (["failed", 1], ["done", 2])
        assert told == {
            "gone": ["pending", 0],
            "busy": ["pending", 0],
            "hanging": ["pending", 0],
            "dying": ["dead", 10],
            "healthy": ["done", 1],
        }
        assert str(first["busy"]["next_attempt_at"]) > shifted(now(), timedelta(minutes=50))
        assert "HTTP 500" in str(first["dying"]["last_error"])
        assert received(server, "redirected") == []
        for name in FAULTS:
            ids = [one for one in received(server, name) if one.startswith(f"msg_{name}")]
            assert list(dict.fromkeys(ids)) == [f"msg_{name}_{n}" for n in range(3)][: len({*ids})]
        stopped = query(database, "SELECT destination FROM stopped_destinations")
        assert stopped == [("gone",)]
        assert query(database, "SELECT * FROM leases") == []


def is_settled(database: Path, message_id: str) -> bool:
    return bool(row_of(database, message_id)["state"] != "running")


def is_done(database: Path, message_id: str) -> bool:
    return message_id in done(database)


def done(database: Path) -> set[str]:
    return {
        name for (name,) in query(database, "SELECT message_id FROM messages WHERE state = 'done'")
    }


def test_a_message_that_always_fails_is_counted_while_others_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 503 may mean that the destination is down, or that it cannot take this message."""
    database = tmp_path / "nftsync.db"
    with Receiver() as receiver:
        receiver.answer = lambda got, _: 503 if got.headers["webhook-id"] == "msg_bad" else 200
        config = config_of(ops=receiver.url)
        store(database, ("ops", "msg_bad", "wallet 0"), ("ops", "msg_next", "wallet 0"))
        again = "UPDATE messages SET next_attempt_at = created_at WHERE message_id = 'msg_bad'"
        good = 0
        monkeypatch.setattr("nftsync.watch.sender._FIRST_PAUSE", 0.05)
        with sending(database, config):
            for attempts in (1, 2):
                while row_of(database, "msg_bad")["attempts"] < attempts:
                    good += 1
                    store(database, ("ops", f"msg_{good}", f"wallet {good}"))
                    wait_until(partial(is_done, database, f"msg_{good}"))
                query(database, again)
        assert good < 20
        assert row_of(database, "msg_next")["state"] == "pending"  # it must come after the bad one


def test_a_destination_that_is_down_for_an_hour_is_reported_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "nftsync.db"
    monkeypatch.setattr("nftsync.watch.sender._REPORT_AFTER", 0.0)
    monkeypatch.setattr("nftsync.watch.sender._FIRST_PAUSE", 0.1)
    with SandboxServer(World()) as server:
        server.consumers.script({"down": Slow(retry_after=0)})
        config = config_of(
            **{name: f"{server.url}/sandbox/consumer/{name}" for name in ("down", "healthy")}
        )
        store(database, ("down", "msg_0", "wallet 1"), ("down", "msg_1", "wallet 2"))
        with sending(database, config):
            wait_until(lambda: reports(server, "healthy") == {("destination.down", "down")})
            server.consumers.script({"down": None})
            wait_until(lambda: {"msg_0", "msg_1"} <= done(database))
        assert query(database, "SELECT max(attempts) FROM messages") == [(1,)]
        assert len(received(server, "healthy")) == 1


def test_a_busy_destination_is_asked_later_and_uses_up_no_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "nftsync.db"
    monkeypatch.setattr("nftsync.watch.sender._FIRST_PAUSE", 0.05)
    with SandboxServer(World()) as server:
        busy = Slow(retry_after=1)
        server.consumers.script({"ops": [None, None, busy, None, busy, None, busy, None]})
        store(database, *(("ops", f"msg_{n}", f"wallet {n}") for n in range(9)))
        with sending(database, config_of(ops=f"{server.url}/sandbox/consumer/ops")):
            wait_until(lambda: len(done(database)) == 9)
        assert query(database, "SELECT max(attempts) FROM messages") == [(1,)]
        assert len(received(server, "ops")) == 12
