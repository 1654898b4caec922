"""Where webhooks are put when they come: each kept once, and counted each time.

The receiver stores `pending` or `quarantined`; all other states are replay's.
"""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias

from nftsync.provider.webhooks import Unusable, Webhook
from nftsync.store import STATES, WebhookState
from nftsync.store.database import over_keys, statement_of

__all__ = [
    "MOST_ATTEMPTS",
    "NEXT",
    "REQUEUED_FROM",
    "STATES",
    "Delivery",
    "Stored",
    "WebhookState",
    "seconds_before_attempt",
    "store",
]


#: What `inbox requeue` may put back.
REQUEUED_FROM: frozenset[WebhookState] = frozenset(
    {"done", "failed", "dead", "unrouted", "quarantined"}
)

#: The states that may follow each.
NEXT: dict[WebhookState, frozenset[WebhookState]] = {
    "pending": frozenset({"running"}),
    "running": frozenset({"pending", "done", "failed", "dead", "unrouted", "quarantined"}),
    "failed": frozenset({"running", "pending"}),
    "done": frozenset({"pending"}),
    "dead": frozenset({"pending"}),
    "unrouted": frozenset({"pending"}),
    "quarantined": frozenset({"pending"}),
}

#: Attempts that count before a webhook is dead; the last comes about two hours after the first.
MOST_ATTEMPTS = 8
_FIRST_WAIT = 5.0
_GROWTH = 4.0
_LONGEST_WAIT = 3_600.0
_JITTER = 0.2


def seconds_before_attempt(attempts: int) -> float:
    """How long to wait after so many failed attempts: growing, and never the same for all.

    Args:
        attempts: failed ones so far, 1 or more.
    """
    wait = min(_LONGEST_WAIT, _FIRST_WAIT * _GROWTH ** (attempts - 1))
    return wait * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - spreads load


#: `stored`: a new webhook waits for replay. `duplicate`: it was there, and is counted.
#: `quarantined`: it is kept, but cannot be worked on.
Stored: TypeAlias = Literal["stored", "duplicate", "quarantined"]

_Row: TypeAlias = tuple[str | bytes | None, ...]

_SEEN_OTHERWISE = "this id was seen with another body"

_INTO = (
    "INSERT INTO webhooks (webhook_id, organization_id, action, resource_type, resource_id,"
    " created_at_utc, changes, body, body_sha256, received_at, state, next_attempt_at,"
    " last_error, finished_at)"
)
#: Rows of one statement. For each statement the thread gives the interpreter's lock away and waits
#: for it: a row at a time (`executemany`), inserts took three times as long under load.
_ROWS_AT_ONCE = 64
_COUNT = "UPDATE webhooks SET deliveries = deliveries + ? WHERE webhook_id = ?"
_KNOWN = """
    SELECT webhook_id, body_sha256 FROM webhooks
    WHERE webhook_id IN (SELECT value FROM json_each(?))"""


class Delivery(NamedTuple):
    """A webhook as it came; its signature was right.

    Attributes:
        body: the raw bytes.
        content: what was read from them.
    """

    body: bytes
    content: Webhook | Unusable


def store(connection: sqlite3.Connection, deliveries: Sequence[Delivery], at: str) -> list[Stored]:
    """Put webhooks into the inbox, inside the caller's transaction.

    A webhook that is there with the same body is counted, whatever became of it since. One whose
    id is there with another body, and one that is unusable, is kept in quarantine under a name
    made of its body, so that it cannot occupy an id.

    Args:
        connection: the database, with a write transaction open.
        deliveries: the webhooks, in the order they came.
        at: the time they are stored at.

    Returns:
        What became of each, in their order.
    """
    digests = [_digest(delivery.body) for delivery in deliveries]
    known = _known(connection, deliveries, digests)
    again: Counter[str] = Counter()
    rows: list[_Row] = []
    results: list[Stored] = []
    for (body, content), digest in zip(deliveries, digests, strict=True):
        webhook = content.webhook if isinstance(content, Unusable) else content
        name = None if webhook is None else webhook.webhook_id
        seen = None if name is None else known.get(name)
        problem = None
        if isinstance(content, Unusable):
            problem = content.reason
        elif seen is not None:
            problem = _SEEN_OTHERWISE
        if name is None or (problem is not None and seen != digest):
            name = f"q-{digest}"
        if known.get(name) == digest:
            again[name] += 1
            results.append("duplicate")
            continue
        known[name] = digest
        rows.append(_row(name, webhook, body, digest, at, problem))
        results.append("stored" if problem is None else "quarantined")
    _insert(connection, rows)
    if again:
        connection.executemany(_COUNT, [(count, name) for name, count in again.items()])
    return results


def _insert(connection: sqlite3.Connection, rows: Sequence[_Row]) -> None:
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        step = rows[start : start + _ROWS_AT_ONCE]
        statement = statement_of(_INTO, len(step[0]), len(step))
        connection.execute(statement, list(chain.from_iterable(step)))


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _known(
    connection: sqlite3.Connection, deliveries: Sequence[Delivery], digests: list[str]
) -> dict[str, str]:
    names = [f"q-{digest}" for digest in digests]
    for _, content in deliveries:
        webhook = content.webhook if isinstance(content, Unusable) else content
        if webhook is not None:
            names.append(webhook.webhook_id)
    return dict(over_keys(connection, _KNOWN, names))


def _row(
    name: str, webhook: Webhook | None, body: bytes, digest: str, at: str, problem: str | None
) -> _Row:
    fields = (None,) * 6 if webhook is None else webhook[1:]
    if problem is None:
        return (name, *fields, body, digest, at, "pending", at, None, None)
    return (name, *fields, body, digest, at, "quarantined", None, problem, at)
