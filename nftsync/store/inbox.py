"""The inbox: storing webhooks, claiming them by object, and settling them.

The receiver stores webhooks as `pending` or `quarantined`; replay sets all other states. A claim
takes all due webhooks of an object, unless the object has running webhooks. So a webhook that
arrives during a read waits for the next read.
"""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from functools import cache
from typing import Literal, NamedTuple, TypeAlias

from nftsync.provider.new_fields import of_webhook
from nftsync.provider.webhooks import DeliveryHeaders, Unusable, Webhook
from nftsync.records import NewField
from nftsync.store import WebhookState
from nftsync.store.database import over_keys, write_rows
from nftsync.store.faults import note_new_fields
from nftsync.store.leases import ROWS_AT_ONCE
from nftsync.times import shifted

#: `stored`: a new webhook, pending. `duplicate`: a further delivery of a stored webhook, counted.
#: `quarantined`: stored, but unusable.
Stored: TypeAlias = Literal["stored", "duplicate", "quarantined"]

_OTHER_BODY = "this id was seen with another body"

_INTO = (
    "INSERT INTO webhooks (webhook_id, organization_id, action, resource_type, resource_id,"
    " created_at_utc, changes, body, body_sha256, received_at, state, next_attempt_at,"
    " last_error, finished_at, request_id, traceparent)"
)
_REPEAT = (
    "UPDATE webhooks SET deliveries = deliveries + 1, request_id = ?, traceparent = ?"
    " WHERE webhook_id = ?"
)


class Delivery(NamedTuple):
    """A webhook with a valid signature."""

    body: bytes
    content: Webhook | Unusable
    headers: DeliveryHeaders = DeliveryHeaders()


def store(connection: sqlite3.Connection, deliveries: Sequence[Delivery], at: str) -> list[Stored]:
    """Put webhooks into the inbox; deliveries and results are in the order of arrival.

    A stored id with another body is quarantined under an id made from the body, which leaves the
    sent id free.
    """
    digests = [hashlib.sha256(body).hexdigest() for body, *_ in deliveries]
    webhooks = [x.webhook if isinstance(x, Unusable) else x for _, x, _ in deliveries]
    names = [f"q-{digest}" for digest in digests]
    names += [webhook.webhook_id for webhook in webhooks if webhook is not None]
    rows_before = over_keys(
        connection,
        "SELECT webhook_id, body_sha256, state = 'quarantined' FROM webhooks"
        " WHERE webhook_id IN (SELECT value FROM json_each(?))",
        names,
    ).fetchall()
    digest_by_id: dict[str, str] = {key: digest for key, digest, _ in rows_before}
    # Requeued webhooks keep their ids.
    requeued = {digest for key, digest, unusable in rows_before if key[:2] == "q-" and not unusable}
    repeated: list[tuple[str | None, ...]] = []
    rows: list[tuple[str | bytes | None, ...]] = []
    results: list[Stored] = []
    news: dict[str, NewField] = {}
    for delivery, webhook, digest in zip(deliveries, webhooks, digests, strict=True):
        body, content, headers = delivery
        name = None if webhook is None else webhook.webhook_id
        stored = None if name is None else digest_by_id.get(name)
        problem = None
        if isinstance(content, Unusable):
            problem = content.reason
        elif stored is not None:
            problem = _OTHER_BODY
        if name is None or digest in requeued or (problem is not None and stored != digest):
            name = f"q-{digest}"
        if digest_by_id.get(name) == digest:
            repeated.append((*headers, name))
            results.append("duplicate")
            continue
        digest_by_id[name] = digest
        fields = (None,) * 6 if webhook is None else webhook[1:]
        settled = ("quarantined", None, problem, at) if problem else ("pending", at, None, None)
        news |= of_webhook(body, name)
        rows.append((name, *fields, body, digest, at, *settled, *headers))
        results.append("stored" if problem is None else "quarantined")
    note_new_fields(connection, news.values(), at)
    write_rows(connection, {_INTO: rows, _REPEAT: repeated})
    return results


def store_check(connection: sqlite3.Connection, at: str) -> None:
    connection.execute("INSERT OR REPLACE INTO inbox_checks VALUES (1, ?)", (at,))


# The queue --------------------------------------------------------------------------------------

#: Counted attempts before a webhook is dead; the last is about 2.5 hours after the first.
MOST_ATTEMPTS = 8
#: Seconds after the first failed attempt, times four after each further one; and the maximum.
_FIRST_BACKOFF, _LONGEST_BACKOFF = 5.0, 3_600.0

#: Rows of the queue that one search for objects reads.
_LOOKED_AT = 4_000

#: Longer than any backoff.
_LONGEST_WAIT = timedelta(hours=2)
#: Only a wrong clock of the worker or the receiver can have set the due time of the webhook `q`.
#: The current time is ?2, and ?3 is `_LONGEST_WAIT` later.
_WRONGLY_LATE = (
    "(q.next_attempt_at > ?3 OR (q.received_at > ?2 AND q.next_attempt_at = q.received_at))"
)

#: A recheck that is not acknowledged within this time is due again.
_RECHECK_LASTS = timedelta(seconds=60)

#: SQLite uses the partial index `webhooks_by_object` only for this exact term.
_ACTIVE = "state IN ('pending', 'failed', 'running')"

#: The lease of the running webhooks of `q`'s object; there is at most one.
_RUNNING = (
    "SELECT coalesce(r.lease_no, -1) FROM webhooks r WHERE r.resource_id = q.resource_id"
    f" AND r.resource_type = q.resource_type AND r.{_ACTIVE} AND r.state = 'running'"
)

#: The object of the webhook `q` has no running webhooks. A webhook written by hand may lack one.
_IDLE = f"q.resource_type IS NOT NULL AND q.resource_id IS NOT NULL AND NOT EXISTS ({_RUNNING})"


class ObjectKey(NamedTuple):
    """The object of a webhook: its type as sent, and its id in lower case."""

    resource_type: str
    resource_id: str


class Claimed(NamedTuple):
    """Claims of one transaction: the newest webhook of each object, and how many were quarantined.

    With `more`, the same objects may have more webhooks to claim.
    """

    claims: dict[ObjectKey, str]
    quarantined: int
    more: bool


class Settlement(NamedTuple):
    """The outcome for an object's claimed webhooks, or of a recheck.

    `failed` counts as an attempt, and becomes `dead` after the last one. `pending` counts none, and
    without `error` or `due_at` keeps the old one. `look_again_at` is for `webhook_id` alone.
    """

    key: ObjectKey
    state: WebhookState
    error: str | None = None
    due_at: str | None = None
    recheck: bool = False
    webhook_id: str | None = None
    look_again_at: str | None = None


# Claims --------------------------------------------------------------------------------------


def due_objects(
    connection: sqlite3.Connection, due: str, at: str, count: int, *, late: bool = True
) -> list[ObjectKey]:
    """Return objects with due webhooks and no running ones, the longest due first.

    `late` includes due times from a wrong clock, and reads all webhooks that are not due.
    """
    keys: dict[ObjectKey, None] = {}
    # SQLite merges the two index scans, so the query can stop early.
    in_state = (
        "SELECT q.resource_type, q.resource_id, q.next_attempt_at FROM webhooks q"
        f" WHERE q.state = '{{}}' AND q.next_attempt_at <= ?1 AND {_IDLE}"
    )
    query = " UNION ALL ".join(map(in_state.format, ("pending", "failed")))
    with closing(connection.execute(f"{query} ORDER BY 3 LIMIT ?2", (due, _LOOKED_AT))) as rows:
        for *key, _ in rows:
            keys[ObjectKey(*key)] = None
            if len(keys) == count:
                break
    if late and len(keys) < count:
        wrongly_late = connection.execute(
            "SELECT q.resource_type, q.resource_id FROM webhooks q"
            " WHERE q.state IN ('pending', 'failed') AND q.next_attempt_at > ?2"
            f" AND {_WRONGLY_LATE} AND {_IDLE} LIMIT ?1",
            (count, at, shifted(at, _LONGEST_WAIT)),
        )
        keys |= {ObjectKey(*row): None for row in wrongly_late}
    return list(keys)[:count]


def count_due(connection: sqlite3.Connection, due: str) -> int:
    (count,) = connection.execute(
        "SELECT count(*) FROM webhooks WHERE state IN ('pending', 'failed')"
        " AND next_attempt_at <= ?",
        (due,),
    ).fetchone()
    return int(count)


def claim(
    connection: sqlite3.Connection,
    lease_no: int,
    keys: Sequence[ObjectKey],
    due: str,
    at: str,
    *,
    organization_id: str | None = None,
    going_on: bool = False,
    most: int = ROWS_AT_ONCE,
) -> Claimed:
    """Claim the due webhooks of objects under a lease that was renewed in this transaction.

    Webhooks of another organization, stored before the setting, are quarantined. `going_on`
    continues a claim of an earlier transaction under this lease.
    """
    rows = over_keys(
        connection,
        "SELECT q.webhook_no, q.webhook_id, q.resource_type, q.resource_id, q.organization_id"
        " FROM json_each(?1) k CROSS JOIN webhooks q ON q.resource_type = k.value ->> 0"
        f" AND q.resource_id = k.value ->> 1 AND q.{_ACTIVE} AND q.state IN ('pending', 'failed')"
        f" WHERE (q.next_attempt_at <= ?4 OR {_WRONGLY_LATE})"
        f" AND coalesce(({_RUNNING} LIMIT 1), ?6) = ?6 LIMIT ?5",
        keys,
        at,
        shifted(at, _LONGEST_WAIT),
        due,
        most,
        lease_no if going_on else 0,
    ).fetchall()
    over_keys(
        connection,
        "UPDATE webhooks SET state = 'running', lease_no = ?2, look_again_at = NULL"
        " WHERE webhook_no IN (SELECT value FROM json_each(?1))",
        [row[0] for row in rows],
        lease_no,
    )
    others = []
    claims = {}
    for number, webhook_id, resource_type, resource_id, organization in sorted(rows):
        if organization_id is None or organization in {None, organization_id}:
            claims[ObjectKey(resource_type, resource_id)] = webhook_id
        else:
            others.append(number)
    _quarantine(connection, others, at)
    return Claimed(claims, len(others), len(rows) == most)


def _quarantine(connection: sqlite3.Connection, numbers: list[int], at: str) -> None:
    # The receiver gives a quarantined webhook the same id.
    over_keys(
        connection,
        "UPDATE OR IGNORE webhooks SET webhook_id = 'q-' || body_sha256"
        " WHERE body_sha256 IS NOT NULL AND webhook_no IN (SELECT value FROM json_each(?))",
        numbers,
    )
    over_keys(
        connection,
        "UPDATE webhooks SET state = 'quarantined', lease_no = NULL, next_attempt_at = NULL,"
        " finished_at = ?2, last_error = 'it is for another organization'"
        " WHERE webhook_no IN (SELECT value FROM json_each(?1))",
        numbers,
        at,
    )


def due_rechecks(
    connection: sqlite3.Connection, at: str, count: int
) -> list[tuple[ObjectKey, str]]:
    """Claim due rechecks, each with a finished webhook; unless acknowledged, they are due again."""
    rows = connection.execute(
        "UPDATE webhooks SET look_again_at = ?3 WHERE webhook_no IN (SELECT webhook_no"
        " FROM webhooks WHERE look_again_at IS NOT NULL AND look_again_at <= ?1 LIMIT ?2)"
        " RETURNING resource_type, resource_id, webhook_id",
        (at, count, shifted(at, _RECHECK_LASTS)),
    ).fetchall()
    return [(ObjectKey(*key), webhook_id) for *key, webhook_id in rows]


# Acknowledging -------------------------------------------------------------------------------


#: The new state, due time and error of webhooks.
_Mark: TypeAlias = tuple[WebhookState, str | None, str | None]


_SETTLE = """
    UPDATE webhooks SET state = ?2, lease_no = NULL, attempts = attempts + ?3, run_id = ?7,
        next_attempt_at = iif(?2 IN ('pending', 'failed'), coalesce(?4, next_attempt_at), NULL),
        last_error = iif(?2 = 'pending', coalesce(?5, last_error), ?5),
        finished_at = iif(?2 IN ('pending', 'failed'), NULL, ?6)
    WHERE webhook_no IN (SELECT value FROM json_each(?1))"""


def acknowledge(
    connection: sqlite3.Connection,
    lease_no: int,
    settlements: Sequence[Settlement],
    at: str,
    run_id: int | None,
    *,
    most: int = ROWS_AT_ONCE,
) -> tuple[dict[WebhookState, int], list[Settlement]]:
    """Settle the webhooks of claims under a lease that was renewed in this transaction.

    Returns the number of webhooks by new state, and the remaining settlements. Pass only these to
    the next call: the other objects may have been claimed again.
    """
    step = settlements[:most]
    connection.executemany(
        "UPDATE webhooks SET look_again_at = ?1 WHERE webhook_id = ?2"
        " AND (?4 OR (state = 'running' AND lease_no = ?3))",
        [
            (one.look_again_at, one.webhook_id, lease_no, one.recheck)
            for one in step
            if one.recheck or one.look_again_at
        ],
    )
    keys = [None if one.recheck else one.key for one in step]
    rows = over_keys(
        connection,
        "SELECT w.webhook_no, w.attempts, k.key FROM json_each(?1) k"
        " CROSS JOIN webhooks w ON w.resource_type = k.value ->> 0"
        f" AND w.resource_id = k.value ->> 1 AND w.{_ACTIVE} AND w.state = 'running'"
        " AND w.lease_no = ?2 LIMIT ?3",
        keys,
        lease_no,
        most + 1,
    ).fetchall()
    left = [*step[rows[most][2] :], *settlements[most:]] if len(rows) > most else settlements[most:]
    mark = cache(lambda place, attempts: _mark(step[place], attempts, at))
    groups: dict[_Mark, list[int]] = {}
    for number, attempts, place in rows[:most]:
        groups.setdefault(mark(place, attempts), []).append(number)
    counts: Counter[WebhookState] = Counter()
    for (state, due_at, error), group in groups.items():
        counts[state] += len(group)
        counted = int(state in {"done", "failed", "dead"})
        over_keys(connection, _SETTLE, group, state, counted, due_at, error, at, run_id)
    return counts, list(left)


def _mark(settlement: Settlement, attempts: int, at: str) -> _Mark:
    if settlement.state != "failed":
        return settlement.state, settlement.due_at, settlement.error
    if attempts + 1 >= MOST_ATTEMPTS:
        return "dead", None, settlement.error
    wait = min(_LONGEST_BACKOFF, _FIRST_BACKOFF * 4.0**attempts)
    wait *= random.uniform(0.8, 1.2)  # noqa: S311 - spreads load
    return "failed", shifted(at, timedelta(seconds=wait)), settlement.error


def make_due(connection: sqlite3.Connection, keys: Sequence[ObjectKey], at: str) -> None:
    """Make the postponed webhooks of objects due now."""
    connection.executemany(
        "UPDATE webhooks AS w SET next_attempt_at = ?1 WHERE resource_type = ?2"
        f" AND resource_id = ?3 AND {_ACTIVE} AND state = 'pending' AND next_attempt_at > ?1",
        [(at, *key) for key in keys],
    )
