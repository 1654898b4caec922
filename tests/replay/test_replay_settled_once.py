"""Claims that more than one transaction settles, while new webhooks come in between."""

from __future__ import annotations

from provider import wallet
from replay_world import Place, body

from nftsync.provider.routes import merged
from nftsync.provider.webhooks import read_webhook
from nftsync.replay.lease import Lease
from nftsync.replay.worker import Worker
from nftsync.store.inbox import Delivery, store
from nftsync.store.mirror import Mirror
from nftsync.store.queue import ROWS_AT_ONCE, ObjectKey, Settlement
from nftsync.times import now

FEW, MANY = (ObjectKey("Wallet", wallet(number)) for number in (1, 2))


def put(mirror: Mirror, key: ObjectKey, count: int, first: int) -> None:
    bodies = [body(first + number, *key) for number in range(count)]
    with mirror.transaction() as transaction:
        store(
            transaction.connection,
            [Delivery(raw, read_webhook(raw, None)) for raw in bodies],
            now(),
        )


def states(mirror: Mirror, key: ObjectKey) -> list[tuple[str]]:
    return mirror.connection.execute(
        "SELECT state FROM webhooks WHERE resource_id = ? ORDER BY webhook_no", (key.resource_id,)
    ).fetchall()


def test_what_comes_after_an_object_was_settled_is_not_done_with_it(place: Place) -> None:
    with Mirror(place.database, air=0.0) as mirror:
        worker = Worker(mirror, Lease(mirror), merged({}))
        put(mirror, FEW, 1, first=0)
        put(mirror, MANY, ROWS_AT_ONCE + 10, first=1)
        worker.claim(10)
        worker._unsettled.extend([Settlement(FEW, "done"), Settlement(MANY, "done")])
        with mirror.transaction() as transaction:
            worker._settle(transaction.connection, worker._hold(transaction.connection))
        assert states(mirror, FEW) == [("done",)]
        assert ("running",) in states(mirror, MANY)
        put(mirror, FEW, 1, first=ROWS_AT_ONCE + 11)
        worker.claim(10)
        worker.settle()
        assert states(mirror, FEW) == [("done",), ("running",)]
        assert set(states(mirror, MANY)) == {("done",)}
