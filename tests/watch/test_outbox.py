"""The outbox: any workers on any clock, and senders to destinations that fail."""

import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

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
from tests.kit.database import begun
from tests.kit.serve_process import query
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE

HOUR = timedelta(hours=1)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "nftsync.db"


class Queue:
    """An outbox, and what of it must be due."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror, self.at = mirror, now()
        self.added: dict[int, tuple[str, list[str]]] = {}
        self.ended: set[int] = set()

    def write(self, step: Callable[..., Any], *arguments: Any) -> Any:
        with self.mirror.transaction() as transaction:
            return step(transaction.connection, *arguments)

    def add(self, destination: str, keys: list[str]) -> None:
        number = len(self.added) + 1
        new = outbox.Message(f"msg_{number}", "moves", destination, b"{}", keys)
        self.write(outbox.add, [new, new], self.at)
        self.added[number] = destination, keys

    def free(self, destination: str) -> list[int]:
        """Return messages that share no key with an earlier unsent one to the destination."""
        found, earlier = [], list[set[str]]()
        for number, (to, keys) in self.added.items():
            if to == destination and number not in self.ended:
                if not any("*" in {*keys, *others} or others & {*keys} for others in earlier):
                    found.append(number)
                earlier.append({*keys})
        return found

    def due(self, destination: str) -> list[int]:
        return outbox.due_messages(self.mirror.connection, destination, self.at, 99)

    def end(self, number: int, result: Any) -> None:
        """Let one of two workers that saw a message make an attempt; the other does nothing."""
        ours, other = (self.write(leases.take_lease, self.at) for _ in range(2))
        (message,) = self.write(outbox.claim, ours, [number])
        assert self.write(outbox.claim, other, [number]) == []
        settled = [outbox.Settled(message, result, "no", self.at)]
        assert self.write(outbox.settle, other, settled, self.at).total() == 0
        (state,) = self.write(outbox.settle, ours, settled, self.at).elements()
        is_last = message.attempts >= len(outbox.RETRIES)
        refused = "dead" if is_last else "failed"
        assert state == {"sent": "done", "down": "pending", "refused": refused}[result]
        if state in {"done", "dead"}:
            self.ended.add(number)


@pytest.mark.parametrize("seed", range(12))
def test_a_message_is_due_once_no_earlier_unsent_one_shares_a_key(database, seed):
    rng = random.Random(seed)
    with Mirror(begun(database), write_gap=0.0) as mirror:
        queue = Queue(mirror)
        for _ in range(60):
            luck = rng.random()
            to = rng.choice(["ops", "log"])
            if luck < 0.4:
                queue.add(to, rng.sample("abc*", rng.choice([1, 2])))
            elif luck < 0.5 and queue.ended:
                number = rng.choice([*queue.ended])
                list(requeue(mirror, OUTBOX, [number], lambda _: pytest.fail("no webhook")))
                queue.ended.discard(number)
            elif due := queue.due(to):
                number = rng.choice(due)
                mirror.connection.execute(
                    "UPDATE messages SET attempts = ? WHERE message_no = ?",
                    (rng.choice([0, len(outbox.RETRIES)]), number),
                )
                queue.end(number, rng.choice(["sent", "sent", "refused", "down"]))
            queue.at = shifted(queue.at, 30 * HOUR)
            for each in ("ops", "log"):
                assert sorted(queue.due(each)) == queue.free(each)


def store(database: Path, *messages: tuple[str, str, str]) -> None:
    """Store messages; each has a destination, an id and a key."""
    with Mirror(database) as mirror, mirror.transaction() as transaction:
        bodies = (json.dumps({"type": name, "data": {}}).encode() for _, name, _ in messages)
        new = [
            outbox.Message(name, "moves", to, body, [key])
            for (to, name, key), body in zip(messages, bodies, strict=True)
        ]
        outbox.add(transaction.connection, new, now())


def row_of(database: Path, message_id: str) -> tuple[Any, ...]:
    """Return a message's state, attempts and last error."""
    columns = "state, attempts, last_error"
    (row,) = query(database, f"SELECT {columns} FROM messages WHERE message_id = ?", message_id)
    return row


def is_done(database: Path, *message_ids: str) -> bool:
    return all(row_of(database, name)[0] == "done" for name in message_ids)


@contextmanager
def sending(database: Path, config: WatchConfig, *names: str) -> Iterator[None]:
    """Run the senders of some destinations, as `serve` does."""
    stopped = threading.Event()
    with ThreadPoolExecutor(len(names)) as pool:
        ends = pool.map(lambda name: send_continuously(database, config, name, stopped), names)
        try:
            yield
        finally:
            stopped.set()
        assert [*ends] == [None] * len(names)


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


def test_a_destination_that_fails_delays_no_other_and_loses_nothing(database):
    with SandboxServer(World()) as server:

        def received(name: str) -> list[str]:
            return [record["headers"]["webhook-id"] for record in server.consumers.records(name)]

        def reports() -> set[tuple[str, str]]:
            records = server.consumers.records("healthy")
            bodies = [json.loads(record["body"]) for record in records]
            return {(body["type"], body["data"].get("destination")) for body in bodies}

        server.consumers.script(FAULTS)
        base = f"{server.url}/sandbox/consumer"
        destinations = {
            name: Destination(name=name, kind="webhook", url=f"{base}/{name}") for name in FAULTS
        }
        config = WatchConfig({}, {}, destinations, ClientConfig(base_url=base, proxy=""))
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
            wait_until(lambda: is_done(database, "msg_healthy_2", "msg_dying_2"))
            for name in ("broken", "refusing", "moved", "busy"):
                wait_until(lambda n=name: row_of(database, f"msg_{n}_0")[0] != "running")
            store(database, ("hanging", "msg_other", "wallet 2"))
            wait_until(lambda: is_done(database, "msg_other"))
            assert row_of(database, "msg_hanging_0")[0] == "running"
        first = {name: row_of(database, f"msg_{name}_0") for name in FAULTS}
        ends = {name: row[:2] for name, row in first.items()}
        # The pause of 5 s may be over.
        assert ends.pop("broken") in (("pending", 0), ("done", 1))
        assert {ends.pop("refusing"), ends.pop("moved")} <= {("failed", 1), ("done", 2)}
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
    assert query(database, "SELECT destination FROM stopped_destinations") == [("gone",)]
    assert query(database, "SELECT * FROM leases") == []


class Answering:
    """A channel whose destination answers by message id."""

    def __init__(self, answer: Callable[[str], SendResult]) -> None:
        self.answer = answer
        self.aborted, self.closed = threading.Event(), threading.Event()
        self.abort, self.close = self.aborted.set, self.closed.set

    def send(self, message: Outgoing) -> SendResult:
        return self.answer(message.message_id)


@contextmanager
def sender_of(
    database: Path, answer: Callable[[str], SendResult], others: Any = None, **more: Any
) -> Iterator[MessageSender]:
    """A sender to `ops`."""
    channel = Answering(answer)
    none = lambda _kind, _reason: []  # noqa: E731
    with Mirror(database) as mirror:
        with closing(MessageSender(mirror, "ops", channel, others or none, **more)) as sender:
            yield sender
        assert channel.aborted.is_set()
        assert channel.closed.is_set()


def send_all(database: Path, answer: Callable[[str], SendResult], others: Any = None) -> None:
    """Make one attempt for each due message, like a run of `nftsync watch`."""
    with sender_of(database, answer, others) as sender:
        while sender.step(5):
            """It makes its attempts."""


def test_a_message_that_always_fails_is_counted_while_others_succeed(database):
    """A 503 may mean that the destination is down, or that it cannot take this message."""
    store(database, ("ops", "msg_bad", "wallet 0"), ("ops", "msg_next", "wallet 0"))
    unavailable, sent = SendResult("down", "HTTP 503"), SendResult("sent")
    good = 0
    with sender_of(
        database, lambda name: unavailable if name == "msg_bad" else sent, first_pause=0.05
    ) as sender:
        for attempts in (1, 2):
            while row_of(database, "msg_bad")[1] < attempts:
                good += 1
                store(database, ("ops", f"msg_{good}", f"wallet {good}"))
                while not is_done(database, f"msg_{good}"):
                    sender.step(0.05)
            query(database, "UPDATE messages SET next_attempt_at = created_at")
    assert good < 20
    assert row_of(database, "msg_next")[0] == "pending"  # it must come after the bad one


def test_a_message_that_some_recipients_refused_keeps_their_reason(database):
    store(database, ("ops", "msg_0", "wallet 1"))
    send_all(database, lambda _: SendResult("sent", "mail: 550 no such user"))
    assert row_of(database, "msg_0") == ("done", 1, "mail: 550 no such user")


@pytest.mark.parametrize("hours", [1, 29])
@pytest.mark.parametrize("result", ["new", "down", "refused"])
def test_messages_are_due_after_the_clock_was_set_back(database, hours, result):
    """They wait no longer than their state's longest wait, and so do later ones of the wallet."""
    store(database, ("ops", "msg_0", "wallet 1"), ("ops", "msg_1", "wallet 1"))
    if result != "new":
        send_all(database, lambda _: SendResult(result, "no"))
    with Mirror(database) as mirror:
        at = shifted(now(), -hours * HOUR)
        assert outbox.due_messages(mirror.connection, "ops", at, 8) == [1]
        # A message that waits by a right clock is not due.
        assert outbox.due_messages(mirror.connection, "ops", now(), 8) == [1] * (result == "new")


def test_a_search_for_due_messages_reads_no_waiting_ones(database):
    """Of many failed messages none is due, and many later ones of one wallet wait for its first."""
    steps = []
    for count in (100, 3_000):
        names = [f"msg_{count}_{n}" for n in range(count)]
        store(database, *(("ops", name, f"wallet {name}") for name in names))
        later = "UPDATE messages SET state = 'failed', attempts = 5, next_attempt_at = ?"
        query(database, later, shifted(now(), 3 * HOUR))
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


def test_an_outage_is_reported_also_during_a_long_retry_after(database):
    """Also if no attempt ends any more; the report is one a day, and ends with the outage."""
    store(database, ("ops", "msg_0", "wallet 1"))
    reports: list[str] = []

    def others(kind: str, reason: str) -> list[outbox.Message]:
        reports.append(f"{kind}: {reason}")
        return [outbox.Message("msg_report", "destinations", "other", b"{}", ["destination"])]

    send_all(database, lambda _: SendResult("down", "HTTP 429", 86_400.0), others)
    assert reports == []
    query(database, "UPDATE outages SET since = ?", shifted(now(), -2 * HOUR))
    for _ in range(2):
        send_all(database, lambda _: pytest.fail("it asked to wait"), others)
    assert set(reports) == {"down: HTTP 429"}
    pending = [("ops", "pending"), ("other", "pending")]
    assert query(database, "SELECT destination, state FROM messages") == pending
    query(database, "UPDATE messages SET next_attempt_at = created_at")
    send_all(database, lambda _: SendResult("sent"), others)
    assert query(database, "SELECT * FROM outages") == []


def test_a_sender_whose_attempts_break_releases_its_messages(database):
    """The defect ends its thread, whose owner ends `serve`; another process can send at once."""
    store(database, *(("ops", f"msg_{n}", f"wallet {n}") for n in range(2)))
    is_first, ended = threading.Lock(), threading.Event()

    def breaks(_: str) -> SendResult:
        if not is_first.acquire(blocking=False):
            ended.wait(PATIENCE)
        raise LookupError("a defect")

    with sender_of(database, breaks) as sender:
        with pytest.raises(LookupError):
            sender.step(PATIENCE)
        ended.set()
    assert query(database, "SELECT DISTINCT state, attempts FROM messages") == [("pending", 0)]
    assert query(database, "SELECT * FROM leases") == []
