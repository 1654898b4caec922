"""The life of a stored webhook: its states, and what may follow on what.

::

    (received) ──► pending ──► running ──► done
        │             ▲  ▲        ├──────► failed ──► running (when its wait is over)
        │             │  │        ├──────► dead          attempts used up
        │             │  │        ├──────► unrouted      no route for its type
        ▼             │  │        ├──────► quarantined   of another organization
    quarantined       │  └────────┘  given back: the provider is down, or the lease ran out
        └──► requeue ─┴── done, failed, dead, unrouted

The receiver stores `pending` or `quarantined`; a worker that holds a lease makes them `running` and
settles them; `inbox requeue` alone brings back what was settled.
"""

from __future__ import annotations

import random
from typing import Literal, TypeAlias, get_args

__all__ = [
    "MOST_ATTEMPTS",
    "NEXT",
    "REQUEUED_FROM",
    "STATES",
    "WebhookState",
    "seconds_before_attempt",
]

WebhookState: TypeAlias = Literal[
    "pending", "running", "done", "failed", "dead", "unrouted", "quarantined"
]

STATES: tuple[WebhookState, ...] = get_args(WebhookState)

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
