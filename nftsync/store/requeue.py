"""Requeuing webhooks, and pruning their bodies.

Both process a list of rows in short transactions and check each row again in its transaction. So
`serve` may run meanwhile, and webhooks whose state has changed are skipped.
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
from nftsync.times import now

#: Limits of one transaction: bytes written or freed, and quarantined webhooks.
_STEP_BYTES = 8_000_000
_STEP = 1_000

#: Resets a webhook as if it were new.
_AFRESH = (
    "state = 'pending', attempts = 0, next_attempt_at = ?2, last_error = NULL,"
    " finished_at = NULL, lease_no = NULL, look_again_at = NULL"
)


class Requeued(NamedTuple):
    """The result of one step of `requeue`.

    Attributes:
        put_back: the number of requeued webhooks.
        already: the number of webhooks that were pending already.
        refused: unchanged webhooks, each with a reason for the user.
    """

    put_back: int
    already: int
    refused: list[tuple[str, str]]


class Pruned(NamedTuple):
    """The result of one step of `prune`.

    Attributes:
        processed: the number of processed webhooks.
        webhooks: the number of pruned bodies.
        size: their bytes.
    """

    processed: int
    webhooks: int
    size: int


def normalize_webhook_id(value: str) -> str:
    """Return a webhook's id, a UUID or `q-` and a SHA-256, in lower case.

    Raises:
        InputError: the value is neither.
    """
    if re.fullmatch("q-[0-9a-f]{64}", value.lower()):
        return value.lower()
    return normalize_uuid(value, "webhook id")


# Which rows ----------------------------------------------------------------------------------


def numbers_of_ids(connection: sqlite3.Connection, webhook_ids: Iterable[str]) -> array[int]:
    """Return the numbers of webhooks, in the given order, without duplicates.

    Raises:
        InputError: a webhook is not in the inbox.
    """
    rows = over_keys(
        connection,
        "SELECT k.value, w.webhook_no FROM json_each(?) k"
        " LEFT JOIN webhooks w ON w.webhook_id = k.value ORDER BY k.key",
        webhook_ids,
    )
    numbers = {number: webhook_id for webhook_id, number in rows}
    if None in numbers:
        raise InputError(
            f"webhook {numbers[None]} is not in the inbox; nothing was changed."
            " To list webhooks: `nftsync inbox`"
        )
    return array("q", numbers)


def numbers_in_state(connection: sqlite3.Connection, state: str) -> array[int]:
    """Return the numbers of all webhooks in a state, the oldest first."""
    rows = connection.execute("SELECT webhook_no FROM webhooks WHERE state = ?", (state,))
    return array("q", sorted(row[0] for row in rows))


def prunable(
    connection: sqlite3.Connection, before: str, state: str = "done"
) -> list[tuple[int, int]]:
    """Return the webhooks that have a body and were settled before a time, oldest first.

    Args:
        before: the time, in the stored form.
        state: `done` or `quarantined`.

    Returns:
        Pairs of `webhook_no` and the body's size in bytes.
    """
    return connection.execute(
        "SELECT webhook_no, length(body) FROM webhooks NOT INDEXED"
        " WHERE state = ? AND finished_at < ? AND body IS NOT NULL ORDER BY webhook_no",
        (state, before),
    ).fetchall()


# Requeuing -----------------------------------------------------------------------------------


def requeue(
    mirror: Mirror,
    numbers: Sequence[int],
    read: Callable[[bytes], Webhook | Unusable],
    *,
    only: str | None = None,
) -> Iterator[Requeued]:
    """Set webhooks to pending, with no attempts, in short transactions.

    A quarantined webhook is requeued, under its id, if its body is usable now.

    Args:
        read: parses a body as the receiver does.
        only: skip webhooks that have left this state, without reporting them.
    """
    size = BatchSize()
    start = 0
    while start < len(numbers):
        step = numbers[start : start + size.entries]
        start += len(step)
        done, quarantined = _put_back(mirror, step, only, size)
        yield done
        yield from _read_again(mirror, quarantined, read)


def _put_back(
    mirror: Mirror, numbers: Sequence[int], only: str | None, size: BatchSize
) -> tuple[Requeued, list[tuple[int, str]]]:
    """Requeue one step; return its result, and the quarantined webhooks to be parsed."""
    with mirror.transaction() as transaction:
        at = now()
        rows = over_keys(
            transaction.connection,
            "SELECT w.webhook_no, w.webhook_id,"
            # A pending webhook that is not due yet counts as failed.
            " iif(w.state = 'pending' AND w.next_attempt_at > ?3, 'failed', w.state)"
            " FROM json_each(?1) k"
            " JOIN webhooks w ON w.webhook_no = k.value WHERE ?2 IS NULL OR w.state = ?2"
            " ORDER BY k.key",
            numbers,
            only,
            at,
        ).fetchall()
        back = [n for n, _, state in rows if state in {"done", "failed", "dead", "unrouted"}]
        over_keys(
            transaction.connection,
            f"UPDATE webhooks SET {_AFRESH} WHERE webhook_no IN (SELECT value FROM json_each(?1))",
            back,
            at,
        )
    size.learn(len(back), mirror.lock_seconds)
    quarantined = [(n, webhook_id) for n, webhook_id, state in rows if state == "quarantined"]
    already = sum(state == "pending" for _, _, state in rows)
    busy = "it is being processed; try again in a moment"
    refused = [(webhook_id, busy) for _, webhook_id, state in rows if state == "running"]
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
            f"UPDATE webhooks SET {_AFRESH}, organization_id = ?3, action = ?4,"
            " resource_type = ?5, resource_id = ?6, created_at_utc = ?7, changes = ?8"
            " WHERE webhook_no = ?1 AND state = 'quarantined'",
            rows,
        )
        return Requeued(done.rowcount, 0, [])


# Pruning -------------------------------------------------------------------------------------


def prune(
    mirror: Mirror, rows: Iterable[tuple[int, int]], before: str, state: str = "done"
) -> Iterator[Pruned]:
    """Delete the bodies of webhooks, in short transactions, and keep the rows.

    Args:
        rows: the result of `prunable`.
        before: the argument of `prunable`; webhooks that changed their state since are skipped.
        state: the argument of `prunable`.
    """
    size = BatchSize()
    for step in _steps(rows, size):
        with mirror.transaction() as transaction:
            emptied = over_keys(
                transaction.connection,
                "UPDATE webhooks SET body = NULL WHERE webhook_no IN"
                " (SELECT value FROM json_each(?1)) AND state = ?2 AND finished_at < ?3"
                " AND body IS NOT NULL RETURNING webhook_no",
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
