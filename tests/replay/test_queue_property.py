"""Any workers, on any clock: what the inbox promises as a queue holds after every step.

Of the outbox, that leases end for its messages, too.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from nftsync.store import WebhookState, inbox, leases
from nftsync.store.inbox import MOST_ATTEMPTS, ObjectKey, Settlement, store
from nftsync.store.mirror import Mirror
from nftsync.times import shifted
from tests.kit.provider import uuid
from tests.replay.world import OURS, THEIRS, Place, delivery, in_time

_FEW = 3  # rows that one transaction marks; the real figure would need thousands of webhooks
OBJECTS = [ObjectKey(kind, uuid(number)) for kind in ("Wallet", "Token") for number in (1, 2)]
WORKERS = st.integers(0, 1)
WAITING = {"pending", "failed"}
#: The states that may follow each.
NEXT = {
    "pending": {"running"},
    "running": {"pending", "done", "failed", "dead", "unrouted", "quarantined"},
    "failed": {"running", "pending"},
    **{state: {"pending"} for state in ("done", "dead", "unrouted", "quarantined")},
}
OUTCOMES: list[WebhookState] = ["done", "failed", "pending", "unrouted"]

Row = dict[str, Any]


class Worker:
    """State of a worker, whose lease may have expired."""

    def __init__(self) -> None:
        self.lease: int | None = None
        self.claimed: dict[ObjectKey, int] = {}  # webhooks by object


class Queue(RuleBasedStateMachine):
    """The inbox of one database, with simulated time."""

    empty: Path

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.mirror = Mirror(Path(shutil.copy(self.empty, self._folder.name)), write_gap=0.0)
        self.connection = self.mirror.connection
        self.at = "2026-01-01T00:00:00.000000Z"
        self.workers = [Worker(), Worker()]
        self.stored = 0
        self.before: dict[int, Row] = {}
        self.requeued: set[int] = set()

    def teardown(self) -> None:
        self.mirror.close()
        self._folder.cleanup()

    def write(self, step: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        with self.mirror.transaction() as transaction:
            return step(transaction.connection, *arguments, **named)

    def rows(self) -> dict[int, Row]:
        cursor = self.connection.execute("SELECT * FROM webhooks")
        names = [column[0] for column in cursor.description]
        found = [dict(zip(names, row, strict=True)) for row in cursor]
        return {row["webhook_no"]: row for row in found}

    def live(self) -> set[int]:
        """The leases that are."""
        return {number for (number,) in self.connection.execute("SELECT lease_no FROM leases")}

    def running(self) -> dict[ObjectKey, set[int | None]]:
        """The leases under which webhooks of each object are running."""
        found: dict[ObjectKey, set[int | None]] = {}
        for row in self.rows().values():
            if row["state"] == "running":
                found.setdefault(_key(row), set()).add(row["lease_no"])
        return found

    def due_since(self) -> dict[ObjectKey, str]:
        """Return the due time of each object without running webhooks."""
        found: dict[ObjectKey, str] = {}
        for row in self.rows().values():
            since = row["next_attempt_at"]
            if row["state"] in WAITING and since <= self.at:
                found[_key(row)] = min(found.get(_key(row), since), since)
        return {key: since for key, since in found.items() if key not in self.running()}

    # What happens -------------------------------------------------------------------------------

    @initialize()
    def some_are_there(self) -> None:
        self.come(OBJECTS[0], 5, OURS)
        self.come(OBJECTS[1], 1, OURS)
        self.connection.executemany(
            "INSERT INTO messages (message_id, rule, destination, created_at, keys, state)"
            " VALUES (?, 'moves', 'ops', ?, '[]', 'pending')",
            [(f"msg_{number}", self.at) for number in range(2 * _FEW)],
        )

    @rule(
        key=st.sampled_from(OBJECTS), count=st.integers(1, 5), org=st.sampled_from([OURS, THEIRS])
    )
    def come(self, key: ObjectKey, count: int, org: str) -> None:
        numbers = range(self.stored, self.stored + count)
        self.stored += count
        self.write(store, [delivery(number, *key, org) for number in numbers], self.at)

    @rule(seconds=st.sampled_from([0.001, 3.0, 10.0, 25.0, 6_000.0, -1.0, -30.0, -20_000.0]))
    def time_passes(self, seconds: float) -> None:
        self.at = self.after(seconds)

    def after(self, seconds: float) -> str:
        return shifted(self.at, timedelta(seconds=seconds))

    @rule(number=WORKERS, of_ours=st.booleans())
    def claim(self, number: int, of_ours: bool) -> None:
        worker = self.workers[number]
        keys = inbox.due_objects(self.connection, self.at, self.at, 3)
        assert not set(keys) & self.running().keys()
        due = self.due_since()
        assert [due[key] for key in keys if key in due] == sorted(due.values())[:3]
        more, going_on = bool(keys), False
        while more:
            lease = self._hold(worker)
            claimed = self.write(
                inbox.claim,
                *(lease, keys, self.at, self.at),
                organization_id=OURS if of_ours else None,
                going_on=going_on,
                most=_FEW,
            )
            held = [row for row in self.rows().values() if row["lease_no"] == lease]
            for key, webhook_id in claimed.claims.items():
                of_key = {row["webhook_id"] for row in held if _key(row) == key}
                worker.claimed[key] = len(of_key)
                assert webhook_id in of_key
            keys = [key for key in keys if key in worker.claimed]
            more, going_on = claimed.more and bool(keys), True

    @rule(number=WORKERS, first=st.integers(1, 2 * _FEW))
    def send(self, number: int, first: int) -> None:
        """A worker claims pending messages, as a sender does."""
        lease = self._hold(self.workers[number])
        self.connection.execute(
            "UPDATE messages SET state = 'running', lease_no = ?"
            " WHERE state = 'pending' AND message_no >= ?",
            (lease, first),
        )

    def sent_under(self) -> set[int | None]:
        """The leases of running messages; no other message has one."""
        query = "SELECT state = 'running', lease_no FROM messages"
        rows = self.connection.execute(query).fetchall()
        assert all(running == (lease is not None) for running, lease in rows)
        return {lease for running, lease in rows if running}

    def _hold(self, worker: Worker) -> int:
        if worker.lease is None or not self.write(leases.renew_lease, worker.lease, self.at):
            worker.claimed.clear()
            worker.lease = self.write(leases.take_lease, self.at)
        return worker.lease or 0

    @rule(
        number=WORKERS,
        outcomes=st.dictionaries(
            st.sampled_from(OBJECTS),
            st.tuples(st.sampled_from(OUTCOMES), st.sampled_from([None, 5.0])),
            min_size=2,
        ),
        recheck=st.booleans(),
    )
    def acknowledge(
        self,
        number: int,
        outcomes: dict[ObjectKey, tuple[WebhookState, float | None]],
        recheck: bool,
    ) -> None:
        worker = self.workers[number]
        if worker.lease is None:
            return
        alive = worker.lease in self.live()
        before = self.rows()
        left = [
            Settlement(
                *(key, state, "why", None if later is None else self.after(later)),
                webhook_id=next((row["webhook_id"] for row in before.values()), None),
                look_again_at=self.at if recheck else None,
            )
            for key, (state, later) in outcomes.items()
        ]
        settled: Counter[str] = Counter()
        while left:
            counts, left = self.write(
                inbox.acknowledge, worker.lease, left, self.at, None, most=_FEW
            )
            assert sum(counts.values()) <= _FEW
            settled.update(counts)
        if alive:
            assert settled.total() == sum(worker.claimed.pop(key, 0) for key in outcomes)
        # The rest has an expired lease, which a worker that renews first would notice.
        changed = [n for n, row in self.rows().items() if row != before[n]]
        assert all(before[n]["lease_no"] == worker.lease for n in changed)

    @rule(number=WORKERS, gives_up=st.booleans())
    def vanish(self, number: int, gives_up: bool) -> None:
        lease = self.workers[number].lease
        self.workers[number] = Worker()
        if gives_up and lease is not None:
            more = self.write(leases.end_lease, lease, most=_FEW)
            while more:
                more = self.write(leases.take_back_expired, self.at, most=_FEW) == _FEW
            assert lease not in self.sent_under()

    @rule()
    def take_back(self) -> None:
        while leases.has_expired(self.connection, self.at):
            assert self.write(leases.take_back_expired, self.at, most=_FEW) <= _FEW
        assert all(numbers <= self.live() for numbers in self.running().values())
        assert self.sent_under() <= self.live()

    @precondition(lambda self: self.before)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.before)))
        if self.before[number]["state"] not in {"pending", "running"}:
            self.connection.execute(
                "UPDATE webhooks SET state = 'pending', attempts = 0, next_attempt_at = ?,"
                " finished_at = NULL, lease_no = NULL WHERE webhook_no = ?",
                (self.at, number),
            )
            self.requeued.add(number)

    @precondition(lambda self: self.stored > 12)
    @rule()
    def drain(self) -> None:
        """One worker alone processes everything."""
        for number in range(2):
            self.vanish(number, gives_up=False)
        for _ in range(2 + MOST_ATTEMPTS):
            self.time_passes(3 * 3_600.0)
            self.take_back()
            self.claim(0, of_ours=False)
            self.states_follow_the_picture_and_attempts_only_grow()
            for key in list(self.workers[0].claimed):
                self.acknowledge(0, {key: ("done", None)}, recheck=False)
            self.states_follow_the_picture_and_attempts_only_grow()
        left = {row["state"] for row in self.rows().values()}
        assert left <= {"done", "dead", "unrouted", "quarantined"}

    # What always holds --------------------------------------------------------------------------

    @invariant()
    def states_follow_the_picture_and_attempts_only_grow(self) -> None:
        assert all(len(numbers) == 1 for numbers in self.running().values())
        after = self.rows()
        assert self.before.keys() <= after.keys()
        for number, row in after.items():
            self._check(self.before.get(number), row, requeued=number in self.requeued)
        self.before, self.requeued = after, set()

    def _check(self, before: Row | None, row: Row, *, requeued: bool) -> None:
        state, waits = row["state"], row["state"] in WAITING | {"running"}
        assert (row["next_attempt_at"] is not None) == waits
        assert (row["finished_at"] is None) == waits
        assert (row["lease_no"] is not None) == (state == "running")
        assert (row["attempts"] >= MOST_ATTEMPTS) or state != "dead"
        if before is None:
            assert state == "pending"
            return
        ways = NEXT[before["state"]]  # within one step, a webhook may run and be settled
        assert state in {before["state"], *ways} or ("running" in ways and state in NEXT["running"])
        if not requeued:
            counts = state in {"done", "failed", "dead"} and before["state"] == "running"
            assert row["attempts"] - before["attempts"] == int(counts)


def _key(row: Row) -> ObjectKey:
    return ObjectKey(row["resource_type"], row["resource_id"])


def test_the_inbox_keeps_its_promises_whatever_workers_and_clocks_do(empty: Path) -> None:
    Queue.empty = empty
    few = settings(
        max_examples=15,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Queue, settings=few)


def test_of_two_workers_that_saw_an_object_due_one_claims_it(place: Place) -> None:
    """Also where more of it has come between."""
    at = "2026-01-01T00:00:00.000000Z"
    with Mirror(place.database, write_gap=0.0) as mirror:
        claims = []
        for number in range(2):
            with mirror.transaction() as transaction:
                store(transaction.connection, [delivery(number, *OBJECTS[0], OURS)], at)
                lease = leases.take_lease(transaction.connection, at)
                claimed = inbox.claim(transaction.connection, lease, OBJECTS[:1], at, at)
            claims.append(list(claimed.claims))
        assert claims == [OBJECTS[:1], []]


def test_work_grows_with_a_long_backlog_and_not_with_its_square(place: Place) -> None:
    key = ObjectKey("Wallet", uuid(1))

    def work(count: int) -> int:
        at = in_time(0)
        place.receive("Wallet", *[uuid(1)] * count, at=at)
        done = 0

        def count_work() -> None:
            nonlocal done
            done += 1

        with Mirror(place.database) as mirror, mirror.transaction() as transaction:
            connection = transaction.connection
            connection.set_progress_handler(count_work, 100)
            lease = leases.take_lease(connection, at)
            inbox.claim(connection, lease, inbox.due_objects(connection, at, at, 512), at, at)
            inbox.acknowledge(connection, lease, [Settlement(key, "done")], at, None)
            connection.set_progress_handler(None, 100)
        return done

    assert 8 * work(250) > work(1_000)
    assert place.states() == {"done": 1_250}
