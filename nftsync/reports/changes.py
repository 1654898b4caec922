"""The log of balance changes, read in order and without pandas, and waited on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from nftsync.store.catalog import TABLES
from nftsync.store.database import explained
from nftsync.store.schema import opened

__all__ = ["CHANGE_COLUMNS", "POLL_SECONDS", "Change", "ChangeFeed", "open_feed"]

#: The columns of a change, in order.
CHANGE_COLUMNS = tuple(TABLES["balance_changes"].columns)

#: How long a feed that waits sleeps between two looks.
POLL_SECONDS = 0.5

#: One row of the log, as the table has it.
Change: TypeAlias = dict[str, Any]

#: Rows that are read at once. No transaction is open while their reader works on them, however
#: long that takes: an open one would keep the write-ahead log from being emptied.
_PAGE = 1_000


class ChangeFeed:
    """The change log of one open database.

    `change_id` grows in the order in which changes are committed, so whoever remembers the last
    one that was seen misses none and sees none twice.
    """

    def __init__(self, connection: sqlite3.Connection, name: Path | str) -> None:
        self._connection = connection
        self._name = name

    def newest(self) -> int:
        """The id of the newest change; 0 while there is none."""
        return int(self._one("SELECT coalesce(max(change_id), 0) FROM balance_change_rows"))

    def before(self, moment: str) -> int:
        """The id that precedes the first change observed at a time or later.

        Args:
            moment: the time, in the stored form.
        """
        # The log has no index by time, but its times never decrease.
        low = int(self._one("SELECT coalesce(min(change_id), 1) FROM balance_change_rows"))
        high = self.newest() + 1
        while low < high:
            middle = (low + high) // 2
            change, observed = self._row(
                "SELECT change_id, observed_at FROM balance_change_rows"
                " WHERE change_id >= ? ORDER BY change_id LIMIT 1",
                middle,
            )
            if observed >= moment:
                high = middle
            else:
                low = change + 1
        return low - 1

    def count(self, after: int) -> int:
        """How many changes have a greater id."""
        query = "SELECT count(*) FROM balance_change_rows WHERE change_id > ?"
        return int(self._row(query, after)[0])

    def read(self, after: int, *, until: int | None = None) -> Iterator[list[Change]]:
        """Read changes a page at a time, the oldest first.

        Args:
            after: only those with a greater id.
            until: none with a greater id than this; None reads to the end.
        """
        query = (
            f"SELECT {', '.join(CHANGE_COLUMNS)} FROM balance_changes"  # noqa: S608
            " WHERE change_id > ? AND change_id <= ? ORDER BY change_id LIMIT ?"
        )
        last = 2**63 - 1 if until is None else until
        while True:
            with explained(self._name):
                rows = self._connection.execute(query, (after, last, _PAGE)).fetchall()
            if rows:
                after = rows[-1][0]
                yield [dict(zip(CHANGE_COLUMNS, row, strict=True)) for row in rows]
            if len(rows) < _PAGE:
                return

    def newest_page(self, after: int, limit: int) -> list[Change]:
        """The newest changes with a greater id, the oldest of them first."""
        query = (
            f"SELECT {', '.join(CHANGE_COLUMNS)} FROM balance_changes"  # noqa: S608
            " WHERE change_id > ? ORDER BY change_id DESC LIMIT ?"
        )
        with explained(self._name):
            rows = self._connection.execute(query, (after, limit)).fetchall()
        return [dict(zip(CHANGE_COLUMNS, row, strict=True)) for row in reversed(rows)]

    def follow(self, after: int, wait: Callable[[], bool]) -> Generator[list[Change]]:
        """Read changes, then those that are committed from then on.

        Args:
            after: only those with a greater id.
            wait: called when there is no more for now; returns after a while, False to end.
        """
        seen = None
        while True:
            # Taken before the read: a commit between the two is read now, or looked at again.
            version = self._one("PRAGMA data_version")
            if version != seen:
                for page in self.read(after):
                    after = page[-1]["change_id"]
                    yield page
                seen = version
            if not wait():
                return

    def _one(self, query: str) -> Any:
        return self._row(query)[0]

    def _row(self, query: str, *parameters: object) -> tuple[Any, ...]:
        with explained(self._name):
            row: tuple[Any, ...] = self._connection.execute(query, parameters).fetchone()
        return row


@contextmanager
def open_feed(path: Path) -> Iterator[ChangeFeed]:
    """Open the change log of a database.

    Raises:
        StoreError: it is missing, empty, not nftsync's or cannot be read.
        NewerDatabase: a newer nftsync wrote it.
    """
    with opened(path) as connection:
        yield ChangeFeed(connection, path)
