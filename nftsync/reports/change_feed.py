"""Pages of the change feed and of the queues, read without pandas.

No transaction stays open between pages, because it would keep the write-ahead log from shrinking.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeAlias

from nftsync.errors import InputError
from nftsync.store.catalog import TABLES
from nftsync.store.database import as_json, explained, named_rows
from nftsync.store.filters import Filters, find_filters
from nftsync.store.history import first_row, from_history, known_time
from nftsync.store.names import Names
from nftsync.store.queues import INBOX, Queue
from nftsync.store.schema import opened

#: Interval of checks for new changes.
POLL_SECONDS = 0.5

#: Rows per page.
PAGE = 1_000

#: The table of the change feed, and SQLite's greatest id.
_LOG, _LAST = "balance_change_rows", 2**63 - 1

#: Ids per query.
_IDS = 1_000_000

#: Ids of a change, each followed by a name.
_NAMED = {"wallet_id": "wallet_id, label AS wallet_label", "token_id": "token_id, name"}
_CHANGES = (
    "SELECT "
    + ", ".join(_NAMED.get(column, column) for column in TABLES["balance_changes"].columns)
    + f" FROM json_each(?1) k JOIN {_LOG} ON change_id = k.value"
    " JOIN wallets USING (wallet_no) JOIN tokens USING (token_no) ORDER BY k.key"
)

#: Changes that a webhook caused, and their ids.
_CAUSED = {"balance_changes": "wallet_id, token_id", "token_changes": "token_id"}

#: Values by column name.
FeedRow: TypeAlias = dict[str, Any]


class _Log:
    def __init__(self, connection: sqlite3.Connection, name: Path | str) -> None:
        self._connection = connection
        self._name = name

    @classmethod
    @contextmanager
    def open(cls, path: Path, *own: Any, live: bool = False) -> Iterator[Self]:
        with opened(path, live=live) as connection:
            yield cls(connection, path, *own)

    def _values(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with explained(self._name):
            return self._connection.execute(query, parameters).fetchall()

    def _rows(self, query: str, *parameters: object) -> list[FeedRow]:
        with explained(self._name):
            return named_rows(self._connection.execute(query, parameters))

    def _page(self, query: str, keys: Sequence[int], *more: object) -> list[FeedRow]:
        return self._rows(query, as_json(list(keys)), *more)


class ChangeFeed(_Log):
    """Change feed of an open database; `change_id` grows in commit order."""

    _filters = Filters()

    @cached_property
    def _names(self) -> Names:
        return Names(self._connection)

    def named(self, page: list[FeedRow]) -> list[FeedRow]:
        with explained(self._name):
            self._names.add_to(page)
        return page

    def filter_by(
        self, *, since: str | None = None, until: str | None = None, **names: Any
    ) -> tuple[int, int]:
        """Restrict all further reads to a period and to `find_filters` names.

        Returns the id before the first change in the period, and the last id in it.
        """
        with explained(self._name):
            since, until = (time and known_time(self._connection, time) for time in (since, until))
            self._filters = find_filters(self._connection, since=since, until=until, **names)
            before, last = 0, self.newest()
            if since is not None:
                from_history(self._connection, since)
                before = first_row(self._connection, _LOG, since, later=False) - 1
            if until is not None:
                last = first_row(self._connection, _LOG, until, later=True) - 1
        return before, last

    def newest(self) -> int:
        """Return the id of the newest change, or 0."""
        ((newest,),) = self._values(f"SELECT coalesce(max(change_id), 0) FROM {_LOG}")
        return int(newest)

    def count(self, after: int, until: int = _LAST) -> int:
        return int(self._select("count(*)", after, until)[0][0])

    def read(self, after: int, until: int = _LAST) -> Iterator[list[FeedRow]]:
        """Yield pages of these changes, oldest first."""
        while ids := self._ids(after, until, "change_id", _IDS):
            for start in range(0, len(ids), PAGE):
                yield self._page(_CHANGES, ids[start : start + PAGE])
            after = ids[-1]

    def newest_page(self, after: int, until: int, limit: int) -> list[FeedRow]:
        """Return the newest `limit` of these changes, oldest first."""
        return self._page(_CHANGES, self._ids(after, until, "change_id DESC", limit)[::-1])

    def follow(self, after: int, wait: Callable[[], bool]) -> Generator[list[FeedRow]]:
        """Yield pages of changes, then of new commits, until `wait` returns False."""
        last_version = None
        while True:
            # Read first, so that no commit is missed; at worst, one causes an extra read.
            version = self._values("PRAGMA data_version")
            if version != last_version:
                newest = self.newest()
                yield from self.read(after, newest)
                after, last_version = max(after, newest), version
            if not wait():
                return

    def _ids(self, after: int, until: int, order: str, limit: int) -> array[int]:
        rows = self._select("change_id", after, until, f"ORDER BY {order} LIMIT ?", limit)
        return array("q", (row[0] for row in rows))

    def _select(
        self, columns: str, after: int, until: int, more: str = "", *parameters: int
    ) -> list[tuple[Any, ...]]:
        condition, values = self._filters.where(key="no")
        query = (
            f"SELECT {columns} FROM {_LOG}"
            f" WHERE change_id > ? AND change_id <= ? AND {condition} {more}"
        )
        return self._values(query, after, until, *values, *parameters)


class QueueView(_Log):
    """Inbox or outbox of an open database, newest row first."""

    def __init__(self, connection: sqlite3.Connection, name: Path | str, queue: Queue) -> None:
        super().__init__(connection, name)
        self._queue = queue
        #: The public columns without the long body.
        self._columns = [name for name in TABLES[queue.table].columns if name != "body"]

    def count(self, state: str | None) -> int:
        where, states = ("", ()) if state is None else (" WHERE state = ?", (state,))
        return int(self._values(f"SELECT count(*) FROM {self._queue.table}{where}", *states)[0][0])

    def newest(self, state: str | None, limit: int | None) -> array[int]:
        """Return the numbers of the newest rows."""
        where, parameters = ("", ()) if state is None else (" WHERE state = ?", (state,))
        # `+` makes SQLite use the index on `state`, and not scan all rows by number.
        order = "rowid" if state is None else "+rowid"
        query = f"SELECT rowid FROM {self._queue.table}{where} ORDER BY {order} DESC LIMIT ?"
        rows = self._values(query, *parameters, -1 if limit is None else limit)
        return array("q", (row[0] for row in rows))

    def pages(
        self, numbers: Sequence[int], state: str | None, *more: str
    ) -> Iterator[list[FeedRow]]:
        """Yield pages of rows by number, skipping the ones that left the state."""
        columns = ", ".join((*self._columns, *more))
        query = (
            f"SELECT {columns} FROM json_each(?1) k JOIN {self._queue.table} q"
            " ON q.rowid = k.value WHERE ?2 IS NULL OR state = ?2 ORDER BY k.key"
        )
        for start in range(0, len(numbers), PAGE):
            yield self._page(query, numbers[start : start + PAGE], state)

    def find(self, key: str) -> tuple[FeedRow, bytes | None]:
        """Return a row by its id, and its body, None if pruned.

        A webhook also has its changes, and `look_again_at`: when its object is read once more.
        """
        queue = self._queue
        more = ("body_sha256", "look_again_at") if queue is INBOX else ()
        query = f"SELECT {', '.join((*self._columns, *more, 'body'))} FROM {queue.table}"
        if not (rows := self._rows(f"{query} WHERE {queue.key} = ?", key)):
            raise InputError(
                f"{queue.noun} {key} is not in the {queue.command}; to list {queue.table}:"
                f" `nftsync {queue.command}`"
            )
        body: bytes | None = rows[0].pop("body")
        for name, ids in _CAUSED.items() if queue is INBOX else ():
            query = f"SELECT change_id, {ids} FROM {name} WHERE webhook_id = ? ORDER BY change_id"
            rows[0][name] = self._rows(query, key)
        return rows[0], body
