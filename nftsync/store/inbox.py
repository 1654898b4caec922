"""The inbox: each webhook that comes is kept once, and counted each time.

The receiver stores `pending` or `quarantined`; all other states are replay's.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from nftsync.provider.webhooks import Unusable, Webhook
from nftsync.store import STATES
from nftsync.store.database import over_keys, write_rows

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
