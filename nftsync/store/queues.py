"""The two queues: the inbox of webhooks, and the outbox of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from nftsync.store import STATES

if TYPE_CHECKING:
    from nftsync.store.database import Queryable


class Queue(NamedTuple):
    """A table whose rows have states, attempts, a lease and a body.

    `number`, `key` and `since` name the columns of a row's number, id and creation time.
    """

    command: str
    noun: str
    table: str
    number: str
    key: str
    since: str
    states: tuple[str, ...]

    @property
    def unfinished(self) -> tuple[str, ...]:
        """All states except `done`, whose rows take too long to count."""
        return tuple(state for state in self.states if state != "done")


INBOX = Queue("inbox", "webhook", "webhooks", "webhook_no", "webhook_id", "received_at", STATES)
OUTBOX = Queue(
    *("outbox", "message", "messages", "message_no", "message_id", "created_at"),
    ("pending", "running", "done", "failed", "dead"),
)
QUEUES = (INBOX, OUTBOX)


def count_by_state(
    database: Queryable, queue: Queue, states: Sequence[str] | None = None
) -> dict[str, tuple[int, str]]:
    states = queue.states if states is None else states
    rows = database.execute(
        f"SELECT state, count(*), min({queue.since}) FROM {queue.table}"
        f" WHERE state IN ({', '.join('?' * len(states))}) GROUP BY state ORDER BY state",
        tuple(states),
    )
    return {state: (count, oldest) for state, count, oldest in rows.fetchall()}
