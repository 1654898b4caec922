"""The change log and the inbox of an open database, read a page at a time and without pandas.

No transaction is open while a page is worked on, however long that takes: an open one would keep
the write-ahead log from being emptied.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeAlias

from nftsync.errors import InputError
from nftsync.store.catalog import TABLES
from nftsync.store.database import explained, over_keys
from nftsync.store.present import known_time
from nftsync.store.schema import opened

__all__ = ["PAGE", "POLL_SECONDS", "WEBHOOK_COLUMNS", "ChangeFeed", "InboxView"]

#: How long a feed that waits sleeps between two looks.
POLL_SECONDS = 0.5

#: Rows that are read at once.
PAGE = 1_000

#: The public columns of a webhook without its body, which is long.
WEBHOOK_COLUMNS = tuple(name for name in TABLES["webhooks"].columns if name != "body")

#: What a change shows: its columns, and after an id what that is called.
_CALLED = {"wallet_id": "wallet_id, label AS wallet_label", "token_id": "token_id, name"}
_CHANGES = (
    "SELECT "  # noqa: S608 - our own names
    + ", ".join(_CALLED.get(column, column) for column in TABLES["balance_changes"].columns)
    + " FROM balance_change_rows JOIN wallets USING (wallet_no) JOIN tokens USING (token_no)"
)

#: A row under the names of its columns.
Row: TypeAlias = dict[str, Any]


class _Log:
    def __init__(self, connection: sqlite3.Connection, name: Path | str) -> None:
        self._connection = connection
        self._name = name

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """Open a database to read it.

        Raises:
            StoreError: it is missing, empty, not nftsync's or cannot be read.
            NewerDatabase: a newer nftsync wrote it.
        """
        with opened(path) as connection:
            yield cls(connection, path)

    def _values(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with explained(self._name):
            return self._connection.execute(query, parameters).fetchall()

    def _rows(self, query: str, *parameters: object) -> list[Row]:
        with explained(self._name):
            cursor = self._connection.execute(query, parameters)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]


class ChangeFeed(_Log):
    """The change log of one open database.

    `change_id` grows in the order in which changes are committed, so whoever remembers the last
    one that was seen misses none and sees none twice.
    """

    def newest(self) -> int:
        """The id of the newest change; 0 while there is none."""
        ((newest,),) = self._values("SELECT coalesce(max(change_id), 0) FROM balance_change_rows")
        return int(newest)

    def before(self, moment: str) -> int:
        """The id that precedes the first change observed at a time or later.

        Args:
            moment: the time, in the stored form.

        Raises:
            InputError: it is still to come.
        """
        with explained(self._name):
            moment = known_time(self._connection, moment)
        # The log has no index by time, but its times never decrease.
        ((low,),) = self._values("SELECT coalesce(min(change_id), 1) FROM balance_change_rows")
        high = self.newest() + 1
        while low < high:
            middle = (low + high) // 2
            ((change, observed),) = self._values(
                "SELECT change_id, observed_at FROM balance_change_rows"
                " WHERE change_id >= ? ORDER BY change_id LIMIT 1",
                middle,
            )
            if observed >= moment:
                high = middle
            else:
                low = change + 1
        return int(low) - 1

    def count(self, after: int) -> int:
        """How many changes have a greater id."""
        query = "SELECT count(*) FROM balance_change_rows WHERE change_id > ?"
        return int(self._values(query, after)[0][0])

    def read(
        self, after: int, *, until: int = 2**63 - 1, page_rows: int = PAGE
    ) -> Iterator[list[Row]]:
        """Read changes a page at a time, the oldest first.

        Args:
            after: only those with a greater id.
            until: none with a greater id than this.
            page_rows: how many are read at once.
        """
        query = f"{_CHANGES} WHERE change_id > ? AND change_id <= ? ORDER BY change_id LIMIT ?"
        while page := self._rows(query, after, until, page_rows):
            yield page
            after = page[-1]["change_id"]

    def newest_page(self, after: int, limit: int) -> list[Row]:
        """The newest changes with a greater id, the oldest of them first."""
        query = f"{_CHANGES} WHERE change_id > ? ORDER BY change_id DESC LIMIT ?"
        return self._rows(query, after, limit)[::-1]

    def follow(self, after: int, wait: Callable[[], bool]) -> Generator[list[Row]]:
        """Read changes, then those that are committed from then on.

        Args:
            after: only those with a greater id.
            wait: called when there is no more for now; returns after a while, False to end.
        """
        seen = None
        while True:
            # Taken before the read: a commit between the two is read now, or looked at again.
            version = self._values("PRAGMA data_version")
            if version != seen:
                for page in self.read(after):
                    after = page[-1]["change_id"]
                    yield page
                seen = version
            if not wait():
                return


class InboxView(_Log):
    """The inbox of one open database, the newest webhook first."""

    def count(self, state: str | None) -> int:
        """How many webhooks there are, or how many in a state."""
        where, given = ("", ()) if state is None else (" WHERE state = ?", (state,))
        return int(self._values(f"SELECT count(*) FROM webhooks{where}", *given)[0][0])  # noqa: S608 - our own names

    def newest(self, state: str | None, limit: int | None) -> array[int]:
        """The numbers of the newest webhooks, the newest first.

        Args:
            state: only those in it.
            limit: how many at most; None: all.
        """
        where, given = ("", ()) if state is None else (" WHERE state = ?", (state,))
        # The sign keeps SQLite from walking all rows in their order to find the few of a state.
        order = "rowid" if state is None else "+rowid"
        query = f"SELECT rowid FROM webhooks{where} ORDER BY {order} DESC LIMIT ?"  # noqa: S608 - our own names
        rows = self._values(query, *given, -1 if limit is None else limit)
        return array("q", (row[0] for row in rows))

    def pages(self, numbers: Sequence[int], state: str | None) -> Iterator[list[Row]]:
        """Read webhooks a page at a time, in the order of their numbers.

        Args:
            numbers: which.
            state: leave out those that have left it since.
        """
        query = (
            f"SELECT {', '.join(WEBHOOK_COLUMNS)} FROM json_each(?1) k"  # noqa: S608 - our own names
            " JOIN webhooks w ON w.rowid = k.value WHERE ?2 IS NULL OR state = ?2 ORDER BY k.key"
        )
        for start in range(0, len(numbers), PAGE):
            with explained(self._name):
                rows = over_keys(self._connection, query, numbers[start : start + PAGE], state)
                page = [dict(zip(WEBHOOK_COLUMNS, row, strict=True)) for row in rows]
            yield page

    def find(self, webhook_id: str) -> tuple[Row, bytes | None]:
        """Look up one webhook, and the changes that it caused.

        Returns:
            Its public columns but the body, `body_sha256`, `look_again_at` (when its object is
            read once more though it is done), `balance_changes` and `token_changes` that name it;
            and the raw body, None once it was emptied.

        Raises:
            InputError: it is not in the inbox.
        """
        names = ", ".join((*WEBHOOK_COLUMNS, "body_sha256", "look_again_at", "body"))
        query = f"SELECT {names} FROM webhooks WHERE webhook_id = ?"  # noqa: S608 - our own names
        if not (found := self._rows(query, webhook_id)):
            raise InputError(
                f"webhook {webhook_id} is not in the inbox; `nftsync inbox` lists what is"
            )
        webhook = found[0]
        body: bytes | None = webhook.pop("body")
        where = "WHERE webhook_id = ? ORDER BY change_id"
        for name, ids in (
            ("balance_changes", "wallet_id, token_id"),
            ("token_changes", "token_id"),
        ):
            query = f"SELECT change_id, {ids} FROM {name} {where}"  # noqa: S608 - our own names
            webhook[name] = self._rows(query, webhook_id)
        return webhook, body
