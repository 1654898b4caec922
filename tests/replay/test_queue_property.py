"""Any workers, on any clock: the guarantees of the inbox as a queue, after every step."""

import tempfile
from collections import Counter, defaultdict
from datetime import timedelta
from pathlib import Path

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

from nftsync.provider.webhooks import read_webhook
from nftsync.store import inbox, leases
from nftsync.store.inbox import MOST_ATTEMPTS, Delivery, ObjectKey, Settlement, store
from nftsync.store.mirror import Mirror
from nftsync.times import shifted
from tests.kit.database import begun
from tests.kit.inbox import ORGANIZATION, body_of
from tests.kit.provider import uuid
from tests.replay.world import THEIRS, in_time

_FEW = 3  # rows that one transaction marks; the real figure would need thousands of webhooks
OBJECTS = [ObjectKey(kind, uuid(number)) for kind in ("Wallet", "Token") for number in (1, 2)]
ORGANIZATIONS = [ORGANIZATION, THEIRS]
WORKERS = st.integers(0, 1)
WAITING = {"pending", "failed"}
ENDED = {"done", "dead", "unrouted", "quarantined"}
#: The states that may follow each.
NEXT = {
    "pending": {"running"},
    "running": {"pending", "failed", *ENDED},
    "failed": {"running"},
    **{state: set() for state in ENDED},
}


def delivery(number, key, organization):
    names = {"resourceType": key.resource_type, "resourceId": key.resource_id}
    body = body_of(number, organizationId=organization, **names)
    return Delivery(body, read_webhook(body, None))


def key_of(row):
    return ObjectKey(row["resource_type"], row["resource_id"])


class Worker:
    """State of a worker, whose lease may have expired."""

    def __init__(self):
        self.lease, self.claimed = None, {}  # number of webhooks by object


class Queue(RuleBasedStateMachine):
    """The inbox of one database, with simulated time."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.mirror = Mirror(begun(Path(self.folder.name, "nftsync.db")), write_gap=0.0)
        self.connection = self.mirror.connection
        self.at = "2026-01-01T00:00:00.000000Z"
        self.workers = [Worker(), Worker()]
        self.stored, self.before = 0, {}

    def teardown(self):
        self.mirror.close()
        self.folder.cleanup()

    def write(self, step, *arguments, **named):
        with self.mirror.transaction() as transaction:
            return step(transaction.connection, *arguments, **named)

    def rows(self):
        cursor = self.connection.execute("SELECT * FROM webhooks")
        names = [column[0] for column in cursor.description]
        found = [dict(zip(names, row, strict=True)) for row in cursor]
        return {row["webhook_no"]: row for row in found}

    def live(self):
        """Return the leases that exist."""
        return {number for (number,) in self.connection.execute("SELECT lease_no FROM leases")}

    def running(self):
        """Return the leases under which webhooks of each object are running."""
        found = defaultdict(set)
        for row in self.rows().values():
            if row["state"] == "running":
                found[key_of(row)].add(row["lease_no"])
        return found

    def due_since(self):
        """Return the due time of each object without running webhooks."""
        found, running = {}, self.running()
        for row in self.rows().values():
            key, since = key_of(row), row["next_attempt_at"]
            if row["state"] in WAITING and since <= self.at and key not in running:
                found[key] = min(found.get(key, since), since)
        return found

    def after(self, seconds):
        return shifted(self.at, timedelta(seconds=seconds))

    def hold(self, worker):
        if worker.lease is None or not self.write(leases.renew_lease, worker.lease, self.at):
            worker.claimed.clear()
            worker.lease = self.write(leases.take_lease, self.at)
        return worker.lease

    @initialize()
    def some_are_there(self):
        self.come(OBJECTS[0], 5, ORGANIZATION)
        self.come(OBJECTS[1], 1, ORGANIZATION)

    @rule(key=st.sampled_from(OBJECTS), count=st.integers(1, 5), by=st.sampled_from(ORGANIZATIONS))
    def come(self, key, count, by):
        numbers = range(self.stored, self.stored + count)
        self.stored += count
        self.write(store, [delivery(number, key, by) for number in numbers], self.at)

    @rule(seconds=st.sampled_from([0.001, 3.0, 10.0, 25.0, 6_000.0, -1.0, -30.0, -20_000.0]))
    def time_passes(self, seconds):
        self.at = self.after(seconds)

    @rule(number=WORKERS, of_ours=st.booleans())
    def claim(self, number, of_ours):
        worker = self.workers[number]
        keys = inbox.due_objects(self.connection, self.at, self.at, 3)
        assert not set(keys) & self.running().keys()
        due = self.due_since()
        assert [due[key] for key in keys if key in due] == sorted(due.values())[:3]
        more, going_on = bool(keys), False
        while more:
            lease = self.hold(worker)
            claimed = self.write(
                inbox.claim,
                *(lease, keys, self.at, self.at),
                organization_id=ORGANIZATION if of_ours else None,
                going_on=going_on,
                most=_FEW,
            )
            held = [row for row in self.rows().values() if row["lease_no"] == lease]
            for key, webhook_id in claimed.claims.items():
                of_key = {row["webhook_id"] for row in held if key_of(row) == key}
                worker.claimed[key] = len(of_key)
                assert webhook_id in of_key
            keys = [key for key in keys if key in worker.claimed]
            more, going_on = claimed.more and bool(keys), True

    @rule(
        number=WORKERS,
        outcomes=st.dictionaries(
            st.sampled_from(OBJECTS),
            st.tuples(
                st.sampled_from(["done", "failed", "pending", "unrouted"]),
                st.sampled_from([None, 5.0]),
            ),
            min_size=2,
        ),
        recheck=st.booleans(),
    )
    def acknowledge(self, number, outcomes, recheck):
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
        settled = Counter()
        while left:
            arguments = (worker.lease, left, self.at, None)
            counts, left = self.write(inbox.acknowledge, *arguments, most=_FEW)
            assert sum(counts.values()) <= _FEW
            settled.update(counts)
        if alive:
            assert settled.total() == sum(worker.claimed.pop(key, 0) for key in outcomes)
        # The rest has an expired lease, which a worker that renews first would notice.
        changed = [n for n, row in self.rows().items() if row != before[n]]
        assert all(before[n]["lease_no"] == worker.lease for n in changed)

    @rule(number=WORKERS, gives_up=st.booleans())
    def vanish(self, number, gives_up):
        lease = self.workers[number].lease
        self.workers[number] = Worker()
        if gives_up and lease is not None:
            more = self.write(leases.end_lease, lease, most=_FEW)
            while more:
                more = self.write(leases.take_back_expired, self.at, most=_FEW) == _FEW

    @rule()
    def take_back(self):
        while leases.has_expired(self.connection, self.at):
            assert self.write(leases.take_back_expired, self.at, most=_FEW) <= _FEW
        assert all(numbers <= self.live() for numbers in self.running().values())

    @precondition(lambda self: self.stored > 12)
    @rule()
    def drain(self):
        """One worker alone processes everything."""
        for number in range(2):
            self.vanish(number, gives_up=False)
        for _ in range(2 + MOST_ATTEMPTS):
            self.time_passes(3 * 3_600.0)
            self.take_back()
            self.claim(0, of_ours=False)
            self.states_follow_each_other_and_attempts_only_grow()
            for key in list(self.workers[0].claimed):
                self.acknowledge(0, {key: ("done", None)}, recheck=False)
            self.states_follow_each_other_and_attempts_only_grow()
        assert {row["state"] for row in self.rows().values()} <= ENDED

    @invariant()
    def states_follow_each_other_and_attempts_only_grow(self):
        assert all(len(numbers) == 1 for numbers in self.running().values())
        after = self.rows()
        assert self.before.keys() <= after.keys()
        for number, row in after.items():
            self.check(self.before.get(number), row)
        self.before = after

    def check(self, before, row):
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
        counts = state in {"done", "failed", "dead"} and before["state"] == "running"
        assert row["attempts"] - before["attempts"] == int(counts)


def test_the_inbox_keeps_its_guarantees_whatever_workers_and_clocks_do():
    few = {"max_examples": 15, "stateful_step_count": 30, "deadline": None}
    checks = list(HealthCheck)
    run_state_machine_as_test(Queue, settings=settings(**few, suppress_health_check=checks))


def test_of_two_workers_that_saw_an_object_due_one_claims_it(place):
    """Also where more of it has come between."""
    at = "2026-01-01T00:00:00.000000Z"
    claims = []
    with Mirror(place.database, write_gap=0.0) as mirror:
        for number in range(2):
            with mirror.transaction() as transaction:
                connection = transaction.connection
                store(connection, [delivery(number, OBJECTS[0], ORGANIZATION)], at)
                lease = leases.take_lease(connection, at)
                claims.append([*inbox.claim(connection, lease, OBJECTS[:1], at, at).claims])
    assert claims == [OBJECTS[:1], []]


def test_work_grows_with_a_long_backlog_and_not_with_its_square(place):
    def work(count):
        at, steps = in_time(0), []
        place.receive("Wallet", *[uuid(1)] * count, at=at)
        with Mirror(place.database) as mirror, mirror.transaction() as transaction:
            connection = transaction.connection
            connection.set_progress_handler(lambda: steps.append(None), 100)
            lease = leases.take_lease(connection, at)
            inbox.claim(connection, lease, inbox.due_objects(connection, at, at, 512), at, at)
            done = [Settlement(OBJECTS[0], "done")]
            inbox.acknowledge(connection, lease, done, at, None)
            connection.set_progress_handler(None, 100)
        return len(steps)

    assert 8 * work(250) > work(1_000)
    assert place.states() == {"done": 1_250}
