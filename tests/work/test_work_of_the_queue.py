"""What claiming and settling cost: nothing grows with what waits beside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from provider import wallet
from read_worlds import entries, filled, found_again
from sql_work import SqlWork, counted
from webhook_burst import receive

from nftsync.provider.routes import merged
from nftsync.replay.lease import Lease
from nftsync.replay.worker import Worker
from nftsync.store import leases, queue
from nftsync.store.mirror import Mirror
from nftsync.store.queue import ObjectKey, Settlement
from nftsync.times import now


def claim(mirror: Mirror, count: int) -> list[ObjectKey]:
    """Claim so many objects under a lease that is number 1."""
    at = now()
    keys = queue.due_objects(mirror.connection, at, at, count)
    with mirror.transaction() as transaction:
        claimed = queue.claim(transaction.connection, 1, keys, at, at)
    assert len(claimed.claims) == count
    return keys


def settle(mirror: Mirror, keys: list[ObjectKey]) -> None:
    done = [Settlement(key, "done") for key in keys]
    with mirror.transaction() as transaction:
        count, _ = queue.settle_done(transaction.connection, 1, done, now(), None)
    assert count == len(keys)


def look_for_leases(mirror: Mirror) -> None:
    assert not leases.has_expired(mirror.connection, now())


def look_again(mirror: Mirror) -> None:
    with mirror.transaction() as transaction:
        assert queue.due_looks(transaction.connection, now(), 64) == []


def waiting(path: Path, count: int) -> Mirror:
    """A mirror with webhooks on so many objects: 64 are claimed, 64 done, all others wait."""
    mirror = Mirror(path, air=0.0)
    with mirror.transaction() as transaction:
        leases.take_lease(transaction.connection, now())
    receive(mirror, [wallet(number) for number in range(count)])
    settle(mirror, claim(mirror, 64))
    claim(mirror, 64)
    return mirror


WORK: dict[str, Callable[[Mirror], object]] = {
    "claim": lambda mirror: claim(mirror, 64),
    "settle": lambda mirror: settle(
        mirror, [ObjectKey("Wallet", wallet(n)) for n in range(64, 128)]
    ),
    "look for leases": look_for_leases,
    "look again": look_again,
}


@pytest.mark.parametrize("work", WORK)
def test_the_queue_takes_as_many_steps_with_many_waiting(tmp_path: Path, work: str) -> None:
    def steps(count: int) -> int:
        with waiting(tmp_path / f"{count}.db", count) as mirror:
            with counted(mirror.connection) as counts:
                WORK[work](mirror)
            return counts.steps

    few, many = steps(300), steps(5_000)
    assert many < 1.3 * few + 200


def test_claiming_takes_as_many_steps_with_many_webhooks_of_each_object(tmp_path: Path) -> None:
    """But for the rows that it marks."""

    def steps(each: int) -> int:
        with Mirror(tmp_path / f"{each}.db", air=0.0) as mirror:
            for _ in range(each):
                receive(mirror, [wallet(number) for number in range(20)])
            at = now()
            with counted(mirror.connection) as counts:
                assert len(queue.due_objects(mirror.connection, at, at, 20)) == 20
            return counts.steps

    assert steps(100) < 1.3 * steps(2) + 200


def working(path: Path, count: int) -> tuple[SqlWork, SqlWork]:
    """Webhooks on so many wallets that have not changed: the claim, and what ends it."""
    with filled(path, count, 5) as mirror:
        receive(mirror, [wallet(number) for number in range(count)])
        worker = Worker(mirror, Lease(mirror), merged({}))
        with counted(mirror.connection) as claiming:
            assert worker.claim(512)
        assert len(worker.work.submit()) == count
        reads = [found_again(mirror, number, entries(number, 5)) for number in range(count)]
        with counted(mirror.connection) as settling:
            worker.apply(reads)
        assert worker.result.done == count
    return claiming, settling


def test_a_worker_takes_two_statements_more_for_each_wallet(tmp_path: Path) -> None:
    """Those of an unchanged read; claims, plans and settlements are made for all at once."""
    few, many = working(tmp_path / "few.db", 10), working(tmp_path / "many.db", 110)
    claiming, settling = (
        len(more.statements) - len(less.statements) for less, more in zip(few, many, strict=True)
    )
    assert (claiming, settling) == (0, 2 * 100)
