"""How fresh a database is: its webhooks by state, ages; for frames, `status` and the metrics."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from nftsync.store import STATES

#: All states but `done`: those webhooks only become more, and so would the time to count them.
UNFINISHED_STATES = tuple(state for state in STATES if state != "done")


def age_seconds(moment: str, at: str) -> float:
    """Seconds from one stored time to another; 0 where the clock went back."""
    age = datetime.fromisoformat(at) - datetime.fromisoformat(moment)
    return max(0.0, age.total_seconds())


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
