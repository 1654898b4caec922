"""The outbox: any workers on any clock, and senders to destinations that fail."""

import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
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
from nftsync.watch.delivery import SendResult
from nftsync.watch.sender import MessageSender
from nftsync.watch.service import WatchConfig, send_continuously
from nftsync.watch.texts import Outgoing
from tests.kit.serve_process import query
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE

DESTINATIONS = ("ops", "log")
WORKERS = st.integers(0, 1)
KEYS = st.lists(st.sampled_from(["a", "b", "c", "*"]), min_size=1, max_size=2, unique=True)
RESULTS = st.sampled_from(["sent", "sent", "refused", "down"])


class Worker:
    """State of a sender, whose lease may have expired."""

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


# Senders ----------------------------------------------------------------------------------------

HOUR = timedelta(hours=1)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "nftsync.db"


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


def row_of(database: Path, message_id: str) -> tuple[Any, ...]:
    """Return a message's state, attempts and last error."""
    columns = "state, attempts, last_error"
    (row,) = query(database, f"SELECT {columns} FROM messages WHERE message_id = ?", message_id)
    return row


def done(database: Path) -> set[str]:
    rows = query(database, "SELECT message_id FROM messages WHERE state = 'done'")
    return {name for (name,) in rows}


@contextmanager
def sending(database: Path, config: WatchConfig, *names: str) -> Iterator[None]:
    """Run the senders of some destinations, as `serve` does."""
    stopped = threading.Event()
    threads = [
        threading.Thread(target=send_continuously, args=(database, config, name, stopped))
        for name in names
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


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


def test_a_destination_that_fails_delays_no_other_and_loses_nothing(database: Path) -> None:
    with SandboxServer(World()) as server:

        def received(name: str) -> list[str]:
            return [record["headers"]["webhook-id"] for record in server.consumers.records(name)]

        def reports() -> set[tuple[str, str]]:
            records = server.consumers.records("healthy")
            bodies = [json.loads(record["body"]) for record in records]
            return {(body["type"], body["data"].get("destination")) for body in bodies}

        server.consumers.script(FAULTS)
        destinations = {
            name: Destination(
                name=name, kind="webhook", url=f"{server.url}/sandbox/consumer/{name}"
            )
            for name in FAULTS
        }
        network = ClientConfig(base_url="https://destinations.invalid", proxy="")
        config = WatchConfig({}, {}, destinations, network)
        store(database, *((to, f"msg_{to}_{n}", "wallet 1") for n in range(3) for to in FAULTS))
        query(database, "UPDATE messages SET attempts = 9 WHERE message_id = 'msg_dying_0'")
        quiet = [name for name in FAULTS if name not in {"gone", "dying"}]
        # Reports of one destination must not meet the faults of another.
        with ExitStack() as stack:
            stack.enter_context(sending(database, config, *quiet))
            for name in quiet:
                wait_until(partial(received, name))
            for name in ("dying", "gone"):
                stack.enter_context(sending(database, config, name))
                wait_until(partial(received, name))
            expected = {("destination.stopped", "gone"), ("destination.failed", "dying")}
            wait_until(lambda: reports() >= expected)
            wait_until(lambda: {"msg_healthy_2", "msg_dying_2"} <= done(database))
            for name in ("broken", "refusing", "moved", "busy"):
                wait_until(lambda n=name: row_of(database, f"msg_{n}_0")[0] != "running")
            store(database, ("hanging", "msg_other", "wallet 2"))
            wait_until(lambda: "msg_other" in done(database))
            assert row_of(database, "msg_hanging_0")[0] == "running"
        first = {name: row_of(database, f"msg_{name}_0") for name in FAULTS}
        ends = {name: row[:2] for name, row in first.items()}
        assert ends.pop("broken") in (("pending", 0), ("done", 1))  # its pause of 5 s may be over
        assert ends.pop("refusing") in (("failed", 1), ("done", 2))
        assert ends.pop("moved") in (("failed", 1), ("done", 2))
        assert ends == {
            **dict.fromkeys(("gone", "busy", "hanging"), ("pending", 0)),
            "dying": ("dead", 10),
            "healthy": ("done", 1),
        }
        assert "HTTP 500" in first["dying"][2]
        assert received("redirected") == []
        for name in FAULTS:
            ids = [one for one in received(name) if one.startswith(f"msg_{name}")]
            assert list(dict.fromkeys(ids)) == [f"msg_{name}_{n}" for n in range(3)][: len({*ids})]
    stopped = query(database, "SELECT destination FROM stopped_destinations")
    assert stopped == [("gone",)]
    assert query(database, "SELECT * FROM leases") == []


class Answering:
    """A channel whose destination answers by message id."""

    def __init__(self, answer: Callable[[str], SendResult]) -> None:
        self.answer = answer
        self.aborted = threading.Event()
        self.is_closed = False

    def send(self, message: Outgoing) -> SendResult:
        return self.answer(message.message_id)

    def abort(self) -> None:
        self.aborted.set()

    def close(self) -> None:
        self.is_closed = True


@contextmanager
def sender_of(
    database: Path,
    answer: Callable[[str], SendResult],
    others: Callable[[str, str], list[outbox.Message]] = lambda _kind, _reason: [],
    first_pause: float = 5.0,
) -> Iterator[MessageSender]:
    """A sender to `ops`."""
    channel = Answering(answer)
    with Mirror(database) as mirror:
        sender = MessageSender(mirror, "ops", channel, others, first_pause=first_pause)
        with closing(sender):
            yield sender
    assert channel.is_closed


def send_all(database: Path, answer: Callable[[str], SendResult], **more: Any) -> None:
    """Make one attempt for each due message, like a run of `nftsync watch`."""
    with sender_of(database, answer, **more) as sender:
        while sender.step(5):
            """It makes its attempts."""


def test_a_message_that_always_fails_is_counted_while_others_succeed(database: Path) -> None:
    """A 503 may mean that the destination is down, or that it cannot take this message."""
    store(database, ("ops", "msg_bad", "wallet 0"), ("ops", "msg_next", "wallet 0"))
    unavailable, sent = SendResult("down", "HTTP 503"), SendResult("sent")
    good = 0

    def answer(name: str) -> SendResult:
        return unavailable if name == "msg_bad" else sent

    with sender_of(database, answer, first_pause=0.05) as sender:
        for attempts in (1, 2):
            while row_of(database, "msg_bad")[1] < attempts:
                good += 1
                store(database, ("ops", f"msg_{good}", f"wallet {good}"))
                while f"msg_{good}" not in done(database):
                    sender.step(0.05)
            query(database, "UPDATE messages SET next_attempt_at = created_at")
    assert good < 20
    assert row_of(database, "msg_next")[0] == "pending"  # it must come after the bad one


def test_a_message_that_some_recipients_refused_keeps_their_reason(database: Path) -> None:
    store(database, ("ops", "msg_0", "wallet 1"))
    send_all(database, lambda _: SendResult("sent", "mail: 550 no such user"))
    assert row_of(database, "msg_0") == ("done", 1, "mail: 550 no such user")


@pytest.mark.parametrize("hours", [1, 29])
@pytest.mark.parametrize("result", ["new", "down", "refused"])
def test_messages_are_due_after_the_clock_was_set_back(
    database: Path, hours: int, result: Any
) -> None:
    """They wait no longer than their state's longest wait, and so do later ones of the wallet."""
    store(database, ("ops", "msg_0", "wallet 1"), ("ops", "msg_1", "wallet 1"))
    if result != "new":
        send_all(database, lambda _: SendResult(result, "no"))
    with Mirror(database) as mirror:
        at = shifted(now(), -hours * HOUR)
        assert outbox.due_messages(mirror.connection, "ops", at, 8) == [1]
        # A message that waits by a right clock is not due.
        assert outbox.due_messages(mirror.connection, "ops", now(), 8) == [1] * (result == "new")


def test_a_search_for_due_messages_reads_no_waiting_ones(database: Path) -> None:
    """Of many failed messages none is due, and many later ones of one wallet wait for its first."""
    steps = []
    for count in (100, 3_000):
        names = [f"msg_{count}_{n}" for n in range(count)]
        store(database, *(("ops", name, f"wallet {name}") for name in names))
        query(
            database,
            "UPDATE messages SET state = 'failed', attempts = 5, next_attempt_at = ?",
            shifted(now(), 3 * HOUR),
        )
        store(database, *(("ops", f"{name}_later", f"wallet {names[0]}") for name in names))
        store(database, ("ops", f"msg_{count}_new", f"wallet {count}"))
        with Mirror(database) as mirror:
            counted: list[int] = []
            mirror.connection.set_progress_handler(lambda counted=counted: counted.append(1), 1)
            due = outbox.due_messages(mirror.connection, "ops", now(), 8)
            mirror.connection.set_progress_handler(None, 1)
        assert len(due) == 1
        query(database, "UPDATE messages SET state = 'done' WHERE message_no = ?", due[0])
        steps.append(len(counted))
    assert steps[1] < 2 * steps[0]


def test_an_outage_is_reported_also_during_a_long_retry_after(
    database: Path,
) -> None:
    """Also if no attempt ends any more; the report is one a day, and ends with the outage."""
    store(database, ("ops", "msg_0", "wallet 1"))
    reports: list[str] = []

    def others(kind: str, reason: str) -> list[outbox.Message]:
        reports.append(f"{kind}: {reason}")
        return [outbox.Message("msg_report", "destinations", "other", b"{}", ["destination"])]

    send_all(database, lambda _: SendResult("down", "HTTP 429", 86_400.0), others=others)
    assert reports == []
    query(database, "UPDATE outages SET since = ?", shifted(now(), -2 * HOUR))
    for _ in range(2):
        send_all(database, lambda _: pytest.fail("it asked to wait"), others=others)
    assert set(reports) == {"down: HTTP 429"}
    assert query(database, "SELECT destination, state FROM messages") == [
        ("ops", "pending"),
        ("other", "pending"),
    ]
    query(database, "UPDATE messages SET next_attempt_at = created_at")
    send_all(database, lambda _: SendResult("sent"), others=others)
    assert query(database, "SELECT * FROM outages") == []


def test_a_sender_whose_attempts_break_releases_its_messages(database: Path) -> None:
    """The defect ends its thread, whose owner ends `serve`; another process can send at once."""
    store(database, *(("ops", f"msg_{n}", f"wallet {n}") for n in range(2)))
    is_first = threading.Lock()
    channel = Answering(lambda _: SendResult("sent"))

    def breaks(_: str) -> SendResult:
        if not is_first.acquire(blocking=False):
            channel.aborted.wait(PATIENCE)
        raise LookupError("a defect")

    channel.answer = breaks
    with Mirror(database) as mirror:
        sender = MessageSender(mirror, "ops", channel, lambda _kind, _reason: [])
        with pytest.raises(LookupError):
            sender.step(PATIENCE)
        sender.close()
    assert channel.is_closed
    assert query(database, "SELECT DISTINCT state, attempts FROM messages") == [("pending", 0)]
    assert query(database, "SELECT * FROM leases") == []
