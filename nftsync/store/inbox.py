"""The inbox: webhooks stored once, deliveries counted, claims, and final states.

The receiver stores `pending` or `quarantined`; all other states are replay's. Webhooks are claimed
by object, all that are due at once, and while some of an object are running no one claims more of
it. So the running webhooks of an object under a lease are just those of one claim, and a webhook
that comes meanwhile waits for a read of its own.
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

from nftsync.provider.webhooks import Unusable, Webhook
from nftsync.store import STATES, WebhookState
from nftsync.store.database import over_keys, write_rows
from nftsync.store.runs import ROWS_AT_ONCE
from nftsync.times import shifted

#: `stored`: a new webhook waits for replay. `duplicate`: it was there, and is counted.
#: `quarantined`: it is kept, but cannot be worked on.
Stored: TypeAlias = Literal["stored", "duplicate", "quarantined"]

_SEEN_OTHERWISE = "this id was seen with another body"

_INTO = (
    "INSERT INTO webhooks (webhook_id, organization_id, action, resource_type, resource_id,"
    " created_at_utc, changes, body, body_sha256, received_at, state, next_attempt_at,"
    " last_error, finished_at)"
)
_COUNT = "UPDATE webhooks SET deliveries = deliveries + ? WHERE webhook_id = ?"


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
    digests = [hashlib.sha256(body).hexdigest() for body, _ in deliveries]
    webhooks = [x.webhook if isinstance(x, Unusable) else x for _, x in deliveries]
    names = [f"q-{digest}" for digest in digests]
    names += [webhook.webhook_id for webhook in webhooks if webhook is not None]
    known: dict[str, str] = dict(
        over_keys(
            connection,
            "SELECT webhook_id, body_sha256 FROM webhooks"
            " WHERE webhook_id IN (SELECT value FROM json_each(?))",
            names,
        )
    )
    again: Counter[str] = Counter()
    rows: list[tuple[str | bytes | None, ...]] = []
    results: list[Stored] = []
    for (body, content), webhook, digest in zip(deliveries, webhooks, digests, strict=True):
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
        fields = (None,) * 6 if webhook is None else webhook[1:]
        settled = ("quarantined", None, problem, at) if problem else ("pending", at, None, None)
        rows.append((name, *fields, body, digest, at, *settled))
        results.append("stored" if problem is None else "quarantined")
    write_rows(connection, {_INTO: rows, _COUNT: [(count, name) for name, count in again.items()]})
    return results


#: All states but `done`: those webhooks only become more, and so would the time to count them.
UNFINISHED_STATES = tuple(state for state in STATES if state != "done")


def webhooks_by_state(
    database: sqlite3.Connection | sqlite3.Cursor, states: Sequence[str] = STATES
) -> dict[str, tuple[int, str]]:
    """Count the webhooks of each state, in the order of the states' names.

    Args:
        database: an open one, whose rows are tuples.
        states: only these.

    Returns:
        By state, if it has any: how many, and when the oldest of them was received.
    """
    rows = database.execute(
        "SELECT state, count(*), min(received_at) FROM webhooks"
        f" WHERE state IN ({', '.join('?' * len(states))}) GROUP BY state ORDER BY state",
        tuple(states),
    )
    return {state: (count, oldest) for state, count, oldest in rows.fetchall()}


# The queue --------------------------------------------------------------------------------------

#: Attempts that count before a webhook is dead; the last comes about two hours after the first.
MOST_ATTEMPTS = 8
#: Seconds after the first that failed, four times as long after each further one; and the bound.
_FIRST_BACKOFF, _LONGEST_BACKOFF = 5.0, 3_600.0

#: Rows of the queue that are looked at for objects to claim.
_LOOKED_AT = 4_000

#: Longer than any wait that is set. Of the webhook `q`, at the time ?2, and ?3 so much later: a
#: clock that was wrong says when it is due, of the worker or of the receiver.
_LONGEST_WAIT = timedelta(hours=2)
_WRONGLY_LATE = (
    "(q.next_attempt_at > ?3 OR (q.received_at > ?2 AND q.next_attempt_at = q.received_at))"
)

#: After so long a recheck that was begun is taken for given up.
_RECHECK_LASTS = timedelta(seconds=60)

#: A term that the partial index `webhooks_by_object` must find word for word.
_ACTIVE = "state IN ('pending', 'failed', 'running')"

#: Of the webhook `q`, the lease under which its object is being worked on. All of an object's that
#: are running are so under the same one.
_RUNNING = (
    "SELECT coalesce(r.lease_no, -1) FROM webhooks r WHERE r.resource_id = q.resource_id"
    f" AND r.resource_type = q.resource_type AND r.{_ACTIVE} AND r.state = 'running'"
)

#: Of the webhook `q`: it is about an object (else someone wrote it by hand), which is idle.
_IDLE = f"q.resource_type IS NOT NULL AND q.resource_id IS NOT NULL AND NOT EXISTS ({_RUNNING})"


class ObjectKey(NamedTuple):
    """What webhooks are about.

    Attributes:
        resource_type: the type, as sent.
        resource_id: the id, lower case.
    """

    resource_type: str
    resource_id: str


class Claimed(NamedTuple):
    """What one transaction took on.

    Attributes:
        claims: the objects, each with the newest of its webhooks that were taken on.
        quarantined: webhooks of other organizations, which were put aside instead.
        more: there may be more to claim of the same objects.
    """

    claims: dict[ObjectKey, str]
    quarantined: int
    more: bool


class Settlement(NamedTuple):
    """What became of an object's claimed webhooks.

    Attributes:
        key: the object.
        state: the state they get. `failed` counts as an attempt and becomes `dead` for those that
            have had their last; `pending` gives them back, and counts none.
        error: why, where it is not `done`; None leaves those given back the error that they had.
        due_at: when those given back are due again; None: as before.
        recheck: they are done; the object was read once more, and none of them is running.
        webhook_id: one of them.
        look_again_at: when the object is to be read once more, or None.
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
    """Objects with webhooks that are due and none that are running, the longest due first.

    Args:
        connection: any connection; nothing is written.
        due: webhooks due by this time.
        at: the current time.
        count: how many objects at most.
        late: what a clock that was wrong has made due much later is due too; looking for that
            costs a little for each webhook that is not due.
    """
    found: dict[ObjectKey, None] = {}
    # SQLite merges the two as it goes along the index of each, and so can be stopped early.
    in_state = (
        "SELECT q.resource_type, q.resource_id, q.next_attempt_at FROM webhooks q"
        f" WHERE q.state = '{{}}' AND q.next_attempt_at <= ?1 AND {_IDLE}"
    )
    query = " UNION ALL ".join(map(in_state.format, ("pending", "failed")))
    with closing(connection.execute(f"{query} ORDER BY 3 LIMIT ?2", (due, _LOOKED_AT))) as rows:
        for *key, _ in rows:
            found[ObjectKey(*key)] = None
            if len(found) == count:
                break
    if late and len(found) < count:
        wrongly_late = connection.execute(
            "SELECT q.resource_type, q.resource_id FROM webhooks q"
            " WHERE q.state IN ('pending', 'failed') AND q.next_attempt_at > ?2"
            f" AND {_WRONGLY_LATE} AND {_IDLE} LIMIT ?1",
            (count, at, shifted(at, _LONGEST_WAIT)),
        )
        found |= {ObjectKey(*row): None for row in wrongly_late}
    return list(found)[:count]


def count_due(connection: sqlite3.Connection, due: str) -> int:
    """How many webhooks are due by a time."""
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
    """Take on the due webhooks of objects.

    Args:
        connection: in a write transaction.
        lease_no: a lease that was renewed in this transaction.
        keys: the objects.
        due: webhooks due by this time.
        at: the current time.
        organization_id: webhooks of others are quarantined: they were stored before it was set.
        going_on: an earlier transaction took on some under this lease, and these are the rest.
        most: webhooks that are taken on at most.
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
        if organization_id in {None, organization}:
            claims[ObjectKey(resource_type, resource_id)] = webhook_id
        else:
            others.append(number)
    _quarantine(connection, others, at)
    return Claimed(claims, len(others), len(rows) == most)


def _quarantine(connection: sqlite3.Connection, numbers: list[int], at: str) -> None:
    # Under the name that the receiver would have given it, so that it occupies no id.
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
    """Take the objects that are due to be read once more, with the webhooks that were done.

    Until it is acknowledged, one is due again after a while, should the worker vanish.

    Args:
        connection: in a write transaction.
        at: the current time.
        count: how many at most.
    """
    rows = connection.execute(
        "UPDATE webhooks SET look_again_at = ?3 WHERE webhook_no IN (SELECT webhook_no"
        " FROM webhooks WHERE look_again_at IS NOT NULL AND look_again_at <= ?1 LIMIT ?2)"
        " RETURNING resource_type, resource_id, webhook_id",
        (at, count, shifted(at, _RECHECK_LASTS)),
    ).fetchall()
    return [(ObjectKey(*key), webhook_id) for *key, webhook_id in rows]


# Acknowledging -------------------------------------------------------------------------------


#: What webhooks get, all those with an equal one by one statement: state, when due, error.
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
    """Settle the webhooks of claims, as many as a transaction should mark.

    Args:
        connection: in a write transaction.
        lease_no: a lease that was renewed in this transaction.
        settlements: what became of them; each of a different object, but for rechecks.
        at: the current time.
        run_id: the run that worked on them.
        most: webhooks, and settlements, that are marked at most.

    Returns:
        How many came to each state, and the settlements that are still to be made. One that is
        made is not among them: its object may be claimed anew, and what is new is not done.
    """
    step = settlements[:most]
    connection.executemany(
        "UPDATE webhooks SET look_again_at = ?1 WHERE webhook_id = ?2"
        " AND (?4 OR (state = 'running' AND lease_no = ?3))",
        [
            (each.look_again_at, each.webhook_id, lease_no, each.recheck)
            for each in step
            if each.recheck or each.look_again_at
        ],
    )
    keys = [None if each.recheck else each.key for each in step]
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
    """Make webhooks that were put off due at once.

    Args:
        connection: in a write transaction.
        keys: their objects.
        at: the current time.
    """
    connection.executemany(
        "UPDATE webhooks AS w SET next_attempt_at = ?1 WHERE resource_type = ?2"
        f" AND resource_id = ?3 AND {_ACTIVE} AND state = 'pending' AND next_attempt_at > ?1",
        [(at, *key) for key in keys],
    )
