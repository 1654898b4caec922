"""The queue beside clocks that were wrong, long backlogs, and workers that lost their lease."""

from __future__ import annotations

from datetime import timedelta

import pytest
from provider import wallet
from replay_world import Place, body

from nftsync.provider.webhooks import read_webhook
from nftsync.store import queue, runs
from nftsync.store.inbox import Delivery, store
from nftsync.store.mirror import Mirror
from nftsync.store.queue import ObjectKey, Settlement
from nftsync.times import shifted

AT = "2026-01-01T12:00:00.000000Z"
KEY = ObjectKey("Wallet", wallet(1))


def moved(**by: float) -> str:
    return shifted(AT, timedelta(**by))


@pytest.fixture
def mirror(place: Place):
    with Mirror(place.database, write_gap=0.0) as mirror:
        yield mirror


def put(mirror: Mirror, count: int, at: str, *, key: ObjectKey = KEY, first: int = 0) -> None:
    bodies = [body(first + number, *key) for number in range(count)]
    with mirror.transaction() as transaction:
        store(
            transaction.connection, [Delivery(raw, read_webhook(raw, None)) for raw in bodies], at
        )


def take_all(mirror: Mirror, at: str) -> tuple[int, int]:
    """Claim all that is due; the lease, and how many webhooks."""
    keys = queue.due_objects(mirror.connection, at, at, 512)
    with mirror.transaction() as transaction:
        lease = runs.take_lease(transaction.connection, at)
    more, going_on = bool(keys), False
    while more:
        with mirror.transaction() as transaction:
            claimed = queue.claim(transaction.connection, lease, keys, at, at, going_on=going_on)
        more, going_on = claimed.more, True
    held = mirror.connection.execute("SELECT count(*) FROM webhooks WHERE lease_no = ?", (lease,))
    return lease, held.fetchone()[0]


def test_what_is_put_off_waits_even_if_it_was_received_by_a_clock_that_was_ahead(
    mirror: Mirror,
) -> None:
    put(mirror, 1, moved(minutes=50))
    lease, _ = take_all(mirror, AT)
    later = Settlement(KEY, "pending", due_at=moved(seconds=5))
    with mirror.transaction() as transaction:
        queue.acknowledge(transaction.connection, lease, [later], AT, None)
    assert take_all(mirror, moved(seconds=1))[1] == 0
    lease, webhooks = take_all(mirror, moved(seconds=6))
    assert webhooks == 1
    with mirror.transaction() as transaction:
        failed = Settlement(KEY, "failed", "no")
        queue.acknowledge(transaction.connection, lease, [failed], moved(seconds=6), None)
    assert take_all(mirror, moved(seconds=7))[1] == 0


def test_what_a_clock_that_was_ahead_has_made_due_late_is_due(mirror: Mirror) -> None:
    """It was received then, or waits for longer than any wait that is set."""
    for number, state in enumerate(["pending", "pending", "failed"]):
        put(mirror, 1, moved(days=300) if number == 0 else moved(hours=-1), first=number)
        mirror.connection.execute(
            "UPDATE webhooks SET state = ?, next_attempt_at = ? WHERE webhook_no = ?",
            (state, moved(days=300), number + 1),
        )
    assert take_all(mirror, AT)[1] == 3


def test_a_lease_that_a_wrong_clock_gave_for_long_is_taken_back(mirror: Mirror) -> None:
    put(mirror, 1, AT)
    mirror.connection.execute("INSERT INTO leases (expires_at) VALUES (?)", (moved(days=1),))
    mirror.connection.execute("UPDATE webhooks SET state = 'running', lease_no = 1")
    assert runs.has_expired(mirror.connection, AT)
    with mirror.transaction() as transaction:
        assert runs.take_back_expired(transaction.connection, AT) == 1
    assert take_all(mirror, AT)[1] == 1


def test_work_grows_with_a_long_backlog_of_one_object_and_not_with_its_square(
    mirror: Mirror,
) -> None:
    def work(count: int, first: int) -> int:
        put(mirror, count, AT, first=first)
        done = 0

        def count_work() -> None:
            nonlocal done
            done += 1

        mirror.connection.set_progress_handler(count_work, 100)
        lease, _ = take_all(mirror, AT)
        with mirror.transaction() as transaction:
            queue.acknowledge(transaction.connection, lease, [Settlement(KEY, "done")], AT, None)
        mirror.connection.set_progress_handler(None, 100)
        return done

    assert work(2_000, 500) < 8 * work(500, 0)


def test_a_vanished_workers_run_is_closed_and_a_finished_one_left_alone(mirror: Mirror) -> None:
    for number, status in enumerate(["running", "ok"], start=1):
        mirror.connection.execute(
            "INSERT INTO sync_runs (kind, status, started_at, first_ticket)"
            " VALUES ('replay', ?, ?, 1)",
            (status, AT),
        )
        mirror.connection.execute(
            "INSERT INTO leases (expires_at, run_id) VALUES (?, ?)", (AT, number)
        )
    with mirror.transaction() as transaction:
        runs.take_back_expired(transaction.connection, moved(seconds=1))
    rows: list[tuple[str, str | None]] = mirror.connection.execute(
        "SELECT status, finished_at FROM sync_runs ORDER BY run_id"
    ).fetchall()
    assert rows == [("interrupted", moved(seconds=1)), ("ok", None)]
