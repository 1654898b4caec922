"""Requeuing webhooks and messages, and pruning their bodies.

Both check each row again in its transaction, as `serve` may change its state meanwhile.
"""

from __future__ import annotations

import re
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from nftsync.errors import InputError
from nftsync.provider.webhooks import Unusable, Webhook
from nftsync.records import normalize_uuid
from nftsync.store.database import over_keys
from nftsync.store.mirror import BatchSize, Mirror
from nftsync.store.queues import OUTBOX, Queue
from nftsync.times import now

#: Limits of one transaction: bytes written or freed, and quarantined webhooks.
_STEP_BYTES = 8_000_000
_STEP = 1_000

#: Resets a row as if it were new; a webhook has a recheck, too.
_AFRESH = (
    "state = 'pending', attempts = 0, next_attempt_at = ?2, last_error = NULL,"
    " finished_at = NULL, lease_no = NULL"
)
_AFRESH_WEBHOOK = f"{_AFRESH}, look_again_at = NULL"

#: Why rows cannot be requeued. Only messages need their body.
_REFUSED = {
    "running": "it is being processed; try again in a moment",
    "pruned": "its body was pruned",
}


class Requeued(NamedTuple):
    """Result of one step: requeued rows, pending ones, and ids of refused ones with reasons."""

    put_back: int
    already: int
    refused: list[tuple[str, str]]


class Pruned(NamedTuple):
    """Result of one step: processed rows, pruned bodies, and the bytes of these."""

    processed: int
    bodies: int
    size: int


def normalize_id(queue: Queue, value: str) -> str:
    """Return an id in lower case; InputError if it cannot be a webhook's."""
    if queue is OUTBOX or re.fullmatch("(q-)?[0-9a-f]{64}", value.lower()):
        return value.lower()
    return normalize_uuid(value, "webhook id")


# Which rows ----------------------------------------------------------------------------------


def numbers_of_ids(connection: sqlite3.Connection, queue: Queue, ids: Iterable[str]) -> array[int]:
    """Return the numbers of rows, in order and once each; InputError if the queue lacks an id."""
    rows = over_keys(
        connection,
        f"SELECT k.value, q.{queue.number} FROM json_each(?) k"
        f" LEFT JOIN {queue.table} q ON q.{queue.key} = k.value ORDER BY k.key",
        ids,
    )
    numbers = {number: name for name, number in rows}
    if None in numbers:
        raise InputError(
            f"{queue.noun} {numbers[None]} is not in the {queue.command}; nothing was changed."
            f" To list {queue.table}: `nftsync {queue.command}`"
        )
    return array("q", numbers)


def numbers_in_state(connection: sqlite3.Connection, queue: Queue, state: str) -> array[int]:
    """Return the numbers of all rows in a state, the oldest first."""
    query = f"SELECT {queue.number} FROM {queue.table} WHERE state = ?"
    return array("q", sorted(row[0] for row in connection.execute(query, (state,))))


def prunable(
    connection: sqlite3.Connection, queue: Queue, before: str, state: str = "done"
) -> list[tuple[int, int]]:
    """Return number and size of the bodies of rows settled before a time, oldest first."""
    return connection.execute(
        f"SELECT {queue.number}, length(body) FROM {queue.table} NOT INDEXED"
        f" WHERE state = ? AND finished_at < ? AND body IS NOT NULL ORDER BY {queue.number}",
        (state, before),
    ).fetchall()


# Requeuing -----------------------------------------------------------------------------------


def requeue(
    mirror: Mirror,
    queue: Queue,
    numbers: Iterable[int],
    read: Callable[[bytes], Webhook | Unusable],
    *,
    only: str | None = None,
) -> Iterator[Requeued]:
    """Set rows to pending, with no attempts, in short transactions.

    A quarantined webhook is requeued if `read`, which parses a body as the receiver does, can use
    it now. Rows that have left the state `only` are skipped and not reported.
    """
    size = BatchSize()
    for step in _steps(((number, 0) for number in numbers), size):
        done, quarantined = _put_back(mirror, queue, step, only, size)
        yield done
        yield from _read_again(mirror, quarantined, read)


def _put_back(
    mirror: Mirror, queue: Queue, numbers: Iterable[int], only: str | None, size: BatchSize
) -> tuple[Requeued, list[tuple[int, str]]]:
    with mirror.transaction() as transaction:
        at = now()
        rows = over_keys(
            transaction.connection,
            f"SELECT q.{queue.number}, q.{queue.key}, CASE WHEN ?4 AND q.body IS NULL THEN 'pruned'"
            # A pending row that is not due yet counts as failed.
            " WHEN q.state = 'pending' AND q.next_attempt_at > ?3 THEN 'failed' ELSE q.state END"
            f" FROM json_each(?1) k JOIN {queue.table} q ON q.{queue.number} = k.value"
            " WHERE ?2 IS NULL OR q.state = ?2 ORDER BY k.key",
            numbers,
            only,
            at,
            queue is OUTBOX,
        ).fetchall()
        back = [n for n, _, state in rows if state in {"done", "failed", "dead", "unrouted"}]
        over_keys(
            transaction.connection,
            f"UPDATE {queue.table} SET {_AFRESH if queue is OUTBOX else _AFRESH_WEBHOOK}"
            f" WHERE {queue.number} IN (SELECT value FROM json_each(?1))",
            back,
            at,
        )
    size.learn(len(back), mirror.lock_seconds)
    quarantined = [(n, name) for n, name, state in rows if state == "quarantined"]
    already = sum(state == "pending" for _, _, state in rows)
    refused = [(name, _REFUSED[state]) for _, name, state in rows if state in _REFUSED]
    return Requeued(len(back), already, refused), quarantined


def _read_again(
    mirror: Mirror,
    quarantined: Iterable[tuple[int, str]],
    read: Callable[[bytes], Webhook | Unusable],
) -> Iterator[Requeued]:
    usable: list[tuple[int, Webhook]] = []
    size = 0
    for number, webhook_id in quarantined:
        body = mirror.connection.execute(
            "SELECT body FROM webhooks WHERE webhook_no = ?", (number,)
        ).fetchone()[0]
        webhook = Unusable("its body was pruned") if body is None else read(body)
        if isinstance(webhook, Unusable):
            yield Requeued(0, 0, [(webhook_id, f"still unusable: {webhook.reason}")])
            continue
        usable.append((number, webhook))
        size += len(body)
        if size >= _STEP_BYTES or len(usable) >= _STEP:
            yield _accept(mirror, usable)
            usable, size = [], 0
    if usable:
        yield _accept(mirror, usable)


def _accept(mirror: Mirror, usable: Sequence[tuple[int, Webhook]]) -> Requeued:
    at = now()
    rows = [(number, at, *webhook[1:]) for number, webhook in usable]
    with mirror.transaction() as transaction:
        done = transaction.connection.executemany(
            # The number of a new webhook, so that forwards meet it.
            f"UPDATE webhooks SET {_AFRESH_WEBHOOK}, organization_id = ?3, action = ?4,"
            " webhook_no = (SELECT max(webhook_no) + 1 FROM webhooks),"
            " resource_type = ?5, resource_id = ?6, created_at_utc = ?7, changes = ?8"
            " WHERE webhook_no = ?1 AND state = 'quarantined'",
            rows,
        )
        return Requeued(done.rowcount, 0, [])


# Pruning -------------------------------------------------------------------------------------


def prune(
    mirror: Mirror, queue: Queue, rows: Iterable[tuple[int, int]], before: str, state: str = "done"
) -> Iterator[Pruned]:
    """Delete the bodies of rows in short transactions, with `prunable`'s arguments and result."""
    size = BatchSize()
    for step in _steps(rows, size):
        with mirror.transaction() as transaction:
            emptied = over_keys(
                transaction.connection,
                f"UPDATE {queue.table} SET body = NULL WHERE {queue.number} IN"
                " (SELECT value FROM json_each(?1)) AND state = ?2 AND finished_at < ?3"
                f" AND body IS NOT NULL RETURNING {queue.number}",
                step,
                state,
                before,
            ).fetchall()
        size.learn(len(emptied), mirror.lock_seconds)
        yield Pruned(len(step), len(emptied), sum(step[number] for (number,) in emptied))


def _steps(rows: Iterable[tuple[int, int]], size: BatchSize) -> Iterator[dict[int, int]]:
    step: dict[int, int] = {}
    total = 0
    for number, length in rows:
        step[number] = length
        total += length
        if len(step) >= size.entries or total >= _STEP_BYTES:
            yield step
            step, total = {}, 0
    if step:
        yield step
