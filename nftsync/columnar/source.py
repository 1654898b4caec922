"""The source of columns: a database, opened here or by the caller, read at one moment."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nftsync.errors import InputError, StoreError
from nftsync.store.database import connect_reader, explained
from nftsync.store.history import first_row
from nftsync.store.schema import upgraded

#: Rows that are Python objects at once: few enough to stay in the processor's cache.
_CHUNK = 500
#: The columns of tokens that are integers.
EDITIONS = ("edition_id", "total_edition")


class _HasConnection(Protocol):
    """What is asked of a `sqlite_utils.Database`, whose package is slow to import."""

    conn: sqlite3.Connection


#: What a frame can be read from; None is the configured database.
Store: TypeAlias = "str | os.PathLike[str] | sqlite3.Connection | _HasConnection | None"
#: Numbers of wallets or tokens, or positions.
Numbers: TypeAlias = npt.NDArray[np.int64]
#: A condition on what stands in the JSON array that is its parameter.
IN_JSON = "IN (SELECT value FROM json_each(?))"
#: Values for the placeholders of a query.
Parameters: TypeAlias = tuple[object, ...]


class Source:
    """A database within one read transaction: everything read through it is of one moment.

    Attributes:
        cursor: what functions of `store` look things up with.
    """

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.cursor = cursor

    def rows(self, query: str, parameters: Parameters = ()) -> Iterator[tuple[Any, ...]]:
        """Read rows one by one; end this before the next query begins."""
        return self.cursor.execute(query, parameters)

    def columns(
        self, query: str, types: Sequence[pa.DataType], parameters: Parameters = ()
    ) -> list[pa.Array]:
        """Read the columns of a query, each of the Arrow type given for it.

        Raises:
            StoreError: a text is not UTF-8.
        """
        cursor = self.cursor.execute(query, parameters)
        chunks: list[list[pa.Array]] = [[pa.array([], kind)] for kind in types]
        try:
            while rows := cursor.fetchmany(_CHUNK):
                for chunk, kind, values in zip(chunks, types, zip(*rows, strict=True), strict=True):
                    chunk.append(pa.array(values, kind))
        except sqlite3.OperationalError as error:
            if "decode to UTF-8" not in str(error):
                raise
            raise StoreError("the database holds text that is not UTF-8") from error
        # Each column's chunks are let go once they are one.
        return [pa.concat_arrays(chunks.pop(0)) for _ in types]

    def numbered(
        self,
        kind: str,
        columns: Sequence[str],
        wanted: Numbers | None = None,
    ) -> tuple[Numbers, list[pa.Array]]:
        """Read wallets or tokens in the order of their numbers.

        Args:
            kind: `wallet` or `token`.
            columns: the names of columns of the table.
            wanted: the distinct numbers that are needed; None is all. More may be read.
        """
        which, parameters = self.restriction(kind, wanted)
        names = [f"{kind}_no", *columns]
        integers = (names[0], *EDITIONS)
        types = [pa.int64() if name in integers else pa.large_string() for name in names]
        select = f"SELECT {', '.join(names)} FROM {kind}s"
        query = f"{select} WHERE {which} ORDER BY {kind}_no"
        numbers, *rest = self.columns(query, types, parameters)
        return numbers.to_numpy(), rest

    def restriction(self, kind: str, wanted: Numbers | None) -> tuple[str, Parameters]:
        """A condition for the wanted numbers; all, where that would read most of the table."""
        if wanted is None:
            return "true", ()
        greatest = self.cursor.execute(f"SELECT max({kind}_no) FROM {kind}s").fetchone()[0]
        if len(wanted) * 3 > (greatest or 0):
            return "true", ()
        return f"{kind}_no {IN_JSON}", (as_json(wanted),)

    def first_change(self, table: str, moment: str, *, later: bool, key: str = "change_id") -> int:
        """Find where in a log a time begins, as `store.history` does."""
        return first_row(self.cursor, table, moment, later=later, key=key)


def as_json(numbers: Numbers) -> str:
    """Write numbers as a JSON array for SQLite's `json_each`."""
    return f"[{','.join(map(str, numbers.tolist()))}]"


def positions(numbers: Numbers, wanted: Numbers) -> Numbers:
    """Where each wanted number stands in ascending distinct numbers; -1 where it does not."""
    if not len(numbers):
        return np.full(len(wanted), -1)
    greatest = int(numbers[-1])
    if numbers[0] >= 0 and greatest < 8 * max(len(numbers), len(wanted)) + 1000:
        table = np.full(greatest + 2, -1)
        table[numbers] = np.arange(len(numbers))
        return table[np.where((wanted < 0) | (wanted > greatest), greatest + 1, wanted)]
    found = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    return np.where(numbers[found] == wanted, found, -1)


@contextmanager
def reading(db: Store | Source) -> Iterator[Source]:
    """Open a database, or use the open one that was given, for reads of one moment.

    What is being read already goes on being read at its moment.

    Raises:
        InputError: what was given is neither a path nor a connection.
        StoreError: there is no such database, it is not nftsync's, or it cannot be read.
        NewerDatabase: a newer nftsync wrote it.
    """
    if isinstance(db, Source):
        yield db
        return
    given = getattr(db, "conn", db)
    if isinstance(given, sqlite3.Connection):
        with explained("the given connection"), _snapshot(given) as source:
            yield source
        return
    if given is None:
        from nftsync.settings import database_and_source

        given = database_and_source()[0]
    if not isinstance(given, str | os.PathLike):
        raise InputError(
            f"cannot read frames from a {type(db).__name__}; give a path, a sqlite3.Connection, "
            "a sqlite_utils.Database, or None for the configured database"
        )
    path = os.fspath(given)
    with (
        explained(path),
        closing(connect_reader(path)) as connection,
        _snapshot(connection, path) as source,
    ):
        yield source


@contextmanager
def _snapshot(connection: sqlite3.Connection, name: str | None = None) -> Iterator[Source]:
    text_factory = connection.text_factory
    connection.text_factory = str
    try:
        with (
            upgraded(connection, name or _file_of(connection)) as readable,
            _transaction(readable) as source,
        ):
            yield source
    finally:
        connection.text_factory = text_factory


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[Source]:
    own = not connection.in_transaction
    with closing(connection.cursor()) as cursor:
        cursor.row_factory = None
        try:
            if own:
                cursor.execute("BEGIN DEFERRED")
            yield Source(cursor)
        finally:
            if own and connection.in_transaction:
                # Nothing was written; a rollback would break off the caller's other cursors.
                connection.execute("COMMIT")


def _file_of(connection: sqlite3.Connection) -> str:
    with closing(connection.cursor()) as cursor:
        cursor.row_factory = None
        files = {row[1]: row[2] for row in cursor.execute("PRAGMA database_list")}
    return files["main"] or "the database in memory"
