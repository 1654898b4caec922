"""Stored webhooks as an operator looks at them: the newest first, or one with all that is known."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nftsync.errors import InputError
from nftsync.store.catalog import TABLES
from nftsync.store.database import explained
from nftsync.store.schema import opened

__all__ = ["WEBHOOK_COLUMNS", "InboxView", "StoredWebhook", "open_inbox"]

#: The public columns of a webhook without its body, which is long.
WEBHOOK_COLUMNS = tuple(name for name in TABLES["webhooks"].columns if name != "body")

#: Rows that are read at once. No transaction is open while their reader works on them.
_PAGE = 1_000


class StoredWebhook(NamedTuple):
    """All that is known of one webhook.

    Attributes:
        columns: its public columns but the body.
        body: the raw bytes, or None once they were emptied.
        body_sha256: of the body as it came, hexadecimal.
        look_again_at: when its object is read once more though it is done, or None.
        balance_changes: `change_id`, `wallet_id` and `token_id` of the balance changes that name
            it as their cause.
        token_changes: `change_id` and `token_id` of the token changes that do.
    """

    columns: dict[str, Any]
    body: bytes | None
    body_sha256: str | None
    look_again_at: str | None
    balance_changes: list[dict[str, Any]]
    token_changes: list[dict[str, Any]]


class InboxView:
    """The inbox of one open database."""

    def __init__(self, connection: sqlite3.Connection, name: Path | str) -> None:
        self._connection = connection
        self._name = name

    def count(self, state: str | None) -> int:
        """How many webhooks there are, or how many in a state."""
        where, given = ("", ()) if state is None else (" WHERE state = ?", (state,))
        query = f"SELECT count(*) FROM webhooks{where}"  # noqa: S608 - the texts are ours
        return int(self._rows(query, *given)[0][0])

    def newest(self, state: str | None, limit: int | None) -> array[int]:
        """The numbers of the newest webhooks, the newest first.

        Args:
            state: only those in it.
            limit: how many at most; None: all.
        """
        where, given = ("", ()) if state is None else (" WHERE state = ?", (state,))
        # The sign keeps SQLite from walking all rows in their order to find the few of a state.
        order = "rowid" if state is None else "+rowid"
        query = f"SELECT rowid FROM webhooks{where} ORDER BY {order} DESC LIMIT ?"  # noqa: S608
        rows = self._rows(query, *given, -1 if limit is None else limit)
        return array("q", (row[0] for row in rows))

    def pages(self, numbers: Sequence[int], state: str | None) -> Iterator[list[dict[str, Any]]]:
        """Read webhooks a page at a time, in the order of their numbers.

        Args:
            numbers: which.
            state: leave out those that have left it since.
        """
        query = (
            f"SELECT {', '.join(WEBHOOK_COLUMNS)} FROM json_each(?1) k"  # noqa: S608
            " JOIN webhooks w ON w.rowid = k.value WHERE ?2 IS NULL OR state = ?2 ORDER BY k.key"
        )
        for start in range(0, len(numbers), _PAGE):
            page = msgspec.json.encode(list(numbers[start : start + _PAGE])).decode()
            rows = self._rows(query, page, state)
            yield [dict(zip(WEBHOOK_COLUMNS, row, strict=True)) for row in rows]

    def find(self, webhook_id: str) -> StoredWebhook:
        """Look up one webhook, and the changes that it caused.

        Raises:
            InputError: it is not in the inbox.
        """
        if not self._rows("SELECT 1 FROM webhooks WHERE webhook_id = ?", webhook_id):
            raise InputError(
                f"webhook {webhook_id} is not in the inbox; `nftsync inbox` lists what is"
            )
        names = ", ".join(WEBHOOK_COLUMNS)
        ((body, digest, look_again_at, *row),) = self._rows(
            f"SELECT body, body_sha256, look_again_at, {names} FROM webhooks"  # noqa: S608
            " WHERE webhook_id = ?",
            webhook_id,
        )
        return StoredWebhook(
            dict(zip(WEBHOOK_COLUMNS, row, strict=True)),
            body,
            digest,
            look_again_at,
            self._caused("balance_changes", ("change_id", "wallet_id", "token_id"), webhook_id),
            self._caused("token_changes", ("change_id", "token_id"), webhook_id),
        )

    def _caused(self, view: str, names: Sequence[str], webhook_id: str) -> list[dict[str, Any]]:
        query = (
            f"SELECT {', '.join(names)} FROM {view}"  # noqa: S608 - the texts are ours
            " WHERE webhook_id = ? ORDER BY change_id"
        )
        return [dict(zip(names, row, strict=True)) for row in self._rows(query, webhook_id)]

    def _rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with explained(self._name):
            return self._connection.execute(query, parameters).fetchall()


@contextmanager
def open_inbox(path: Path) -> Iterator[InboxView]:
    """Open the inbox of a database to look into it.

    Raises:
        StoreError: it is missing, empty, not nftsync's or cannot be read.
        NewerDatabase: a newer nftsync wrote it.
    """
    with opened(path) as connection:
        yield InboxView(connection, path)
