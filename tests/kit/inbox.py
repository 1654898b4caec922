"""A database with webhooks, stored as by the receiver, or with messages."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from nftsync.provider.webhooks import read_webhook
from nftsync.store.inbox import Delivery, store
from nftsync.store.mirror import Mirror
from nftsync.store.queues import INBOX, OUTBOX, Queue
from tests.kit.provider import uuid
from tests.kit.serve_process import query

ORGANIZATION = uuid(1, 0xC)
LONG_AGO = "2020-01-01T00:00:00.000000Z"


def webhook(number: int) -> str:
    return uuid(number, 0xE)


def body_of(number: int, **fields: Any) -> bytes:
    content = {
        "organizationId": ORGANIZATION,
        "action": "create",
        "id": webhook(number),
        "resourceId": uuid(number, 0xF),
        "resourceType": "Wallet",
        "createdAtUtc": "2026-01-01T00:00:00.1234567+00:00",
        "changes": None,
        **fields,
    }
    return json.dumps(content).encode()


def quarantine_id(body: bytes) -> str:
    return f"q-{hashlib.sha256(body).hexdigest()}"


def message(number: int) -> str:
    return f"msg_{number:032x}"


class _Rows:
    """A queue in a database; its rows are numbered from 0."""

    queue: Queue
    name: Callable[[int], str]

    def __init__(self, database: Path) -> None:
        self.database = database
        Mirror(database).close()

    def run(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return query(self.database, statement, *parameters)

    def settle(self, number: int, state: str, **columns: object) -> None:
        """Set the state of a row as its worker does."""
        values: dict[str, object] = {"state": state, "attempts": 3}
        if state in {"done", "dead", "unrouted"}:
            values |= {"finished_at": LONG_AGO, "next_attempt_at": None}
        values |= columns
        names = ", ".join(f"{name} = ?" for name in values)
        self.run(
            f"UPDATE {self.queue.table} SET {names} WHERE {self.queue.key} = ?",
            *(*values.values(), self.name(number)),
        )

    def row(self, name: str) -> dict[str, Any]:
        with closing(sqlite3.connect(self.database)) as connection:
            connection.row_factory = sqlite3.Row
            statement = f"SELECT * FROM {self.queue.table} WHERE {self.queue.key} = ?"
            return dict(connection.execute(statement, (name,)).fetchone())

    def states(self) -> Sequence[str]:
        """Return the states by row number; rows leave quarantine with a new number."""
        rows = self.run(f"SELECT state FROM {self.queue.table} ORDER BY {self.queue.key}")
        return [state for (state,) in rows]


class Outbox(_Rows):
    """An outbox in a database."""

    queue = OUTBOX
    name = staticmethod(message)

    def fill(self, count: int) -> None:
        with closing(sqlite3.connect(self.database)) as connection, connection:
            connection.executemany(
                "INSERT INTO messages (message_id, rule, destination, created_at, next_attempt_at,"
                " body, keys, state) VALUES (?1, 'moves', 'ops', ?2, ?2, ?3, '[]', 'pending')",
                [(message(number), LONG_AGO, body_of(number)) for number in range(count)],
            )


class Inbox(_Rows):
    """An inbox in a database."""

    queue = INBOX
    name = staticmethod(webhook)

    def receive(self, *bodies: bytes, organization: str | None = None, at: str = LONG_AGO) -> None:
        with Mirror(self.database) as mirror, mirror.transaction() as transaction:
            deliveries = [Delivery(body, read_webhook(body, organization)) for body in bodies]
            store(transaction.connection, deliveries, at)

    def fill(self, count: int, **fields: Any) -> None:
        self.receive(*(body_of(number, **fields) for number in range(count)))

    def knows(self, *, wallets: Sequence[str] = (), tokens: Sequence[str] = ()) -> None:
        wallet = "INSERT INTO wallets (wallet_id, first_seen_at) VALUES (?, '')"
        token = (
            "INSERT INTO tokens (token_id, first_seen_at, updated_at, sequence, changed_sequence)"
            " VALUES (?, '', '', 1, 1)"
        )
        for statement, ids in ((wallet, wallets), (token, tokens)):
            for each in ids:
                self.run(statement, each)

    def keeps(self, resource_type: str, resource_id: str, content: Any) -> None:
        self.run(
            "INSERT INTO resources (resource_type, resource_id, body, fetched_at)"
            " VALUES (?, ?, ?, '')",
            *(resource_type, resource_id, json.dumps(content)),
        )
