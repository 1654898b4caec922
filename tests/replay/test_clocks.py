"""Replay where a clock was wrong, or a hand was in the tables; and of a long backlog."""

from __future__ import annotations

import pytest

from nftsync.store import inbox, leases
from nftsync.store.inbox import ObjectKey, Settlement
from nftsync.store.mirror import Mirror
from tests.kit.provider import Provider, wallet
from tests.replay.world import OK, Place, in_time

HOUR, DAY = 3_600.0, 86_400.0


@pytest.mark.parametrize("state", ["pending", "failed"])
@pytest.mark.parametrize(
    ("received", "due", "is_due"),
    [
        (300 * DAY, 300 * DAY, True),
        (-HOUR, 400 * DAY, True),  # longer than any wait that is set
        (HOUR / 2, 300.0, False),
        (-HOUR, HOUR, False),
    ],
)
def test_what_a_wrong_clock_made_due_late_is_due_and_what_waits_is_not(
    place: Place, provider: Provider, state: str, received: float, due: float, is_due: bool
) -> None:
    provider.always(OK)
    place.receive("Wallet", wallet(1))
    received_at = in_time(received)
    place.run(
        "UPDATE webhooks SET state = ?, received_at = ?, next_attempt_at = ?",
        *(state, received_at, received_at if due == received else in_time(due)),
    )
    assert place.replay().done == int(is_due)


def test_a_lease_that_a_wrong_clock_gave_is_taken_back(place: Place, provider: Provider) -> None:
    """Its run is closed; one that was finished is left alone."""
    provider.always(OK)
    place.receive("Wallet", wallet(1))
    for number, status in enumerate(["running", "failed"], start=1):
        place.run(
            "INSERT INTO sync_runs (kind, status, started_at, first_sequence)"
            " VALUES ('replay', ?, '', 1)",
            status,
        )
        place.run("INSERT INTO leases (expires_at, run_id) VALUES (?, ?)", in_time(DAY), number)
    place.run("UPDATE webhooks SET state = 'running', lease_no = 1")
    assert place.replay().done == 1
    assert [ledger["status"] for ledger in place.runs()] == ["interrupted", "failed", "ok"]
    assert [bool(ledger["finished_at"]) for ledger in place.runs()] == [True, False, True]


def test_work_grows_with_a_long_backlog_and_not_with_its_square(place: Place) -> None:
    key = ObjectKey("Wallet", wallet(1))

    def work(count: int) -> int:
        at = in_time(0)
        place.receive("Wallet", *[wallet(1)] * count, at=at)
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
