"""Most of a table at little cost: SQLite writes each column of many rows as one text.

A value that Python fetches costs several calls into SQLite and an object. Values that SQLite's
`group_concat` joins cost a third of that, and what joined them is found again with numpy. Where a
stretch of rows cannot be taken apart for certain, it is read row by row.
"""

from __future__ import annotations

import os
import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.errors import InputError, StoreError
from nftsync.store.database import connect_reader, explained
from nftsync.store.schema import check_schema

__all__ = [
    "IN_JSON",
    "Numbers",
    "Parameters",
    "Source",
    "Store",
    "Table",
    "as_json",
    "need_database",
    "positions",
    "read_stretches",
    "reading",
    "rows_as_arrays",
    "whole",
]


#: Rows that are Python objects at once: few enough to stay in the processor's cache.
_CHUNK = 1_000


def rows_as_arrays(cursor: sqlite3.Cursor, types: Sequence[pa.DataType]) -> list[pa.Array]:
    """Fetch all rows of a query, each column as the Arrow type given for it.

    Args:
        cursor: where the query was executed, of a connection that gives text as bytes.
        types: of its columns.

    Raises:
        StoreError: a text is not UTF-8.
    """
    chunks: list[list[pa.Array]] = [[] for _ in types]
    while rows := cursor.fetchmany(_CHUNK):
        for into, kind, values in zip(chunks, types, zip(*rows, strict=True), strict=True):
            into.append(_array(values, kind))
    # Each column's chunks are let go once they are one.
    return [whole(chunks.pop(0), kind) for kind in types]


def _array(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    """What `pa.array` makes, in half the time where no value is missing."""
    count = len(values)
    try:
        if kind == pa.large_string():
            ends = np.cumsum(np.fromiter(map(len, values), np.int64, count))
            offsets = pa.py_buffer(np.concatenate([[0], ends]))
            return pa.Array.from_buffers(
                kind, count, [None, offsets, pa.py_buffer(b"".join(values))]
            )
        if kind == pa.int64():
            return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(array("q", values))])
    except TypeError:
        pass
    return pa.array(values, kind)


def whole(parts: list[pa.Array], kind: pa.DataType) -> pa.Array:
    """Make one array of a column's parts.

    Raises:
        StoreError: a text is not UTF-8.
    """
    if not parts:
        return pa.array([], kind)
    column = pa.concat_arrays(parts)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise StoreError(f"the database holds text that is not UTF-8: {error}") from None
    return column


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
    """A database within one read transaction: everything read through it is of one moment."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    def rows(self, query: str, parameters: Parameters = ()) -> Iterator[tuple[Any, ...]]:
        """Read rows one by one; end this before the next query begins."""
        return self._cursor.execute(query, parameters)

    def columns(
        self, query: str, types: Sequence[pa.DataType], parameters: Parameters = ()
    ) -> list[pa.Array]:
        """Read the columns of a query, each of the Arrow type given for it."""
        with self._text_as_bytes():
            return rows_as_arrays(self._cursor.execute(query, parameters), types)

    def table(self, table: Table) -> list[pa.Array]:
        """Read most of a table in its order, which takes half the time of `columns`.

        Returns:
            The columns of its order, then the others.
        """
        types = [*[pa.int64()] * len(table.order), *(kind for _, kind in table.columns)]
        chunks: list[list[pa.Array]] = [[] for _ in types]
        with self._text_as_bytes():
            for arrays in read_stretches(self._cursor, table):
                for into, array in zip(chunks, arrays, strict=True):
                    into.append(array)
        # Each column's chunks are let go once they are one.
        return [whole(chunks.pop(0), kind) for kind in types]

    @contextmanager
    def _text_as_bytes(self) -> Iterator[None]:
        """Let text come as Arrow holds it; decoding would only be undone."""
        connection = self._cursor.connection
        connection.text_factory = bytes
        try:
            yield
        finally:
            connection.text_factory = str

    def numbered(
        self,
        table: str,
        number: str,
        columns: Sequence[tuple[str, pa.DataType]],
        wanted: Numbers | None = None,
    ) -> tuple[Numbers, list[pa.Array]]:
        """Read rows of `wallets` or `tokens` in the order of their numbers.

        Args:
            table: which of the two.
            number: the name of its number.
            columns: names and Arrow types.
            wanted: the distinct numbers that are needed; None is all. More may be read.
        """
        where, parameters = self.restriction(table, number, wanted)
        if not where:
            numbers, *rest = self.table(Table(table, (number,), columns))
            return numbers.to_numpy(), rest
        types = [pa.int64(), *(kind for _, kind in columns)]
        select = f"SELECT {', '.join([number, *(name for name, _ in columns)])} FROM {table}"  # noqa: S608
        numbers, *rest = self.columns(f"{select}{where} ORDER BY {number}", types, parameters)
        return numbers.to_numpy(), rest

    def restriction(
        self, table: str, number: str, wanted: Numbers | None
    ) -> tuple[str, Parameters]:
        """A WHERE clause for the wanted numbers, or none where that would read most of it."""
        if wanted is None:
            return "", ()
        greatest = self._cursor.execute(f"SELECT max({number}) FROM {table}").fetchone()[0]  # noqa: S608
        if len(wanted) * 3 > (greatest or 0):
            return "", ()
        return f" WHERE {number} {IN_JSON}", (as_json(wanted),)

    def first_change(self, table: str, moment: str, *, later: bool, key: str = "change_id") -> int:
        """Find where in a log a time begins: logs have no index by time.

        Times never decrease from one row to the next, so this bisects over the key.

        Args:
            table: the log, of changes or of states.
            moment: a time in the stored form.
            later: begin with the first row after the time, else with the first at or after it.
            key: what numbers its rows.

        Returns:
            A number that all rows from that time on reach, and none before does.
        """
        bounds = self._cursor.execute(
            # Two queries: SQLite looks both ends up in its tree, but scans for both in one.
            f"SELECT (SELECT min({key}) FROM {table}), (SELECT max({key}) FROM {table})"  # noqa: S608
        ).fetchone()
        if bounds[0] is None:
            return 0
        low, high = bounds[0], bounds[1] + 1
        next_row = f"SELECT {key}, observed_at FROM {table} WHERE {key} >= ? ORDER BY {key} LIMIT 1"  # noqa: S608
        while low < high:
            middle = (low + high) // 2
            number, seen = self._cursor.execute(next_row, (middle,)).fetchone()
            if seen > moment or (seen == moment and not later):
                high = middle
            else:
                low = number + 1
        return int(low)


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


def need_database(db: object, purpose: str) -> None:
    """Make sure that no frame is given to what only a database can answer.

    Args:
        db: what was given.
        purpose: which function does what, and with what of a database.

    Raises:
        InputError: a frame was given.
    """
    if isinstance(db, pd.DataFrame | pd.Series):
        raise InputError(
            f"{purpose}, which a {type(db).__name__} does not hold; give the database's path"
        )


@contextmanager
def reading(db: Store) -> Iterator[Source]:
    """Open a database, or use the open one that was given, for reads of one moment.

    Raises:
        InputError: what was given is neither a path nor a connection.
        StoreError: there is no such database, it is not nftsync's, or it cannot be read.
        NewerDatabase: a newer nftsync wrote it.
    """
    given = getattr(db, "conn", db)
    if isinstance(given, sqlite3.Connection):
        with explained("the given connection"), _one_moment(given) as source:
            yield source
        return
    if given is None:
        from nftsync.settings import default_database

        given = default_database()
    if not isinstance(given, str | os.PathLike):
        raise InputError(
            f"cannot read frames from a {type(db).__name__}; give a path, a sqlite3.Connection, "
            "a sqlite_utils.Database, or None for the configured database"
        )
    path = os.fspath(given)
    with (
        explained(path),
        closing(connect_reader(path)) as connection,
        _one_moment(connection, path) as source,
    ):
        yield source


@contextmanager
def _one_moment(connection: sqlite3.Connection, name: str | None = None) -> Iterator[Source]:
    text_factory = connection.text_factory
    own = not connection.in_transaction
    with closing(connection.cursor()) as cursor:
        cursor.row_factory = None
        connection.text_factory = str
        try:
            if own:
                cursor.execute("BEGIN DEFERRED")
            _check(connection, name or _file_of(cursor))
            yield Source(cursor)
        finally:
            connection.text_factory = text_factory
            if own and connection.in_transaction:
                # Nothing was written; a rollback would break off the caller's other cursors.
                connection.execute("COMMIT")


def _file_of(cursor: sqlite3.Cursor) -> str:
    files = {row[1]: row[2] for row in cursor.execute("PRAGMA database_list")}
    return files["main"] or "the database in memory"


def _check(connection: sqlite3.Connection, name: str) -> None:
    if check_schema(connection, name) == 0:
        raise StoreError(f"{name} is empty; `nftsync sync` makes its tables")


#: Rows that are read as one: their pages and their texts stay in the processor's cache.
_ROWS = 2_000
#: Rows of the first stretch, which shows how long the texts are. Those of more bytes than this, on
#: average, cost more to join than to fetch.
_FIRST_ROWS = 100
_LONG = 1_000

#: What stands between two values, and for one that is missing. Both are plain text, as any other
#: bytes would have to be made anew for each value. The rows are counted, so a text that holds one
#: of them is noticed.
_BETWEEN, _MISSING = "\x1f", "\x1e"


@dataclass(frozen=True)
class Table:
    """What is read of a table.

    Attributes:
        name: the table's.
        order: columns that order the rows and together tell each from the others, all of them
            numbers. The table or its primary key begins with them.
        columns: the columns or expressions, with the Arrow type of each: large_string or int64.
        first: the least number of the first column of `order` that is needed.
        last: the greatest.
    """

    name: str
    order: tuple[str, ...]
    columns: Sequence[tuple[str, pa.DataType]]
    first: int = -(2**63)
    last: int = 2**63 - 1


def read_stretches(
    cursor: sqlite3.Cursor, table: Table, rows: int = _ROWS
) -> Iterator[list[pa.Array]]:
    """Read a table in its order, a stretch of rows at a time.

    Args:
        cursor: of a connection that gives text as bytes.
        table: what to read.
        rows: after how many a stretch ends, or where the first column of `order` next changes.

    Yields:
        The columns of `order`, then the others.
    """
    key, name = table.order[0], table.name
    least = f"SELECT min({key}) FROM {name} WHERE {key} >= ?"  # noqa: S608
    passed = f"SELECT {key} FROM {name} WHERE {key} > ? ORDER BY {key} LIMIT 1 OFFSET ?"  # noqa: S608
    stretch = _Stretch(cursor, table)
    size = min(rows, _FIRST_ROWS)
    (begin,) = cursor.execute(least, (table.first,)).fetchone()
    while begin is not None and begin <= table.last:
        (following,) = cursor.execute(passed, (begin, size)).fetchone() or (None,)
        # Not between rows of the same number.
        bounds = (begin, table.last if following is None else min(following - 1, table.last))
        yield (None if stretch.long else stretch.at_once(bounds)) or stretch.row_by_row(bounds)
        begin, size = following, rows


class _Stretch:
    """The two ways to read the rows between two bounds.

    Attributes:
        long: whether the texts of a column were long when they were last joined.
    """

    long = False

    def __init__(self, cursor: sqlite3.Cursor, table: Table) -> None:
        self._cursor = cursor
        self._order = table.order
        self._columns = [*table.order, *(column for column, _ in table.columns)]
        self._types = [*[pa.int64()] * len(table.order), *(kind for _, kind in table.columns)]
        self._origin = f"FROM {table.name} WHERE {table.order[0]} BETWEEN ? AND ?"
        self._joined = ", ".join(
            f"group_concat(ifnull({column}, '{_MISSING}'), '{_BETWEEN}')"
            for column in self._columns
        )

    def row_by_row(self, bounds: tuple[int, int]) -> list[pa.Array]:
        """Read each value by itself."""
        query = f"SELECT {', '.join(self._columns)} {self._origin}"
        self._cursor.execute(f"{query} ORDER BY {', '.join(self._order)}", bounds)
        return rows_as_arrays(self._cursor, self._types)

    def at_once(self, bounds: tuple[int, int]) -> list[pa.Array] | None:
        """Read each column as one text; None where it is not certain what the values are."""
        try:
            self._cursor.execute(f"SELECT count(*), {self._joined} {self._origin}", bounds)
            count, *texts = self._cursor.fetchone()
        except (sqlite3.DataError, MemoryError):  # longer than SQLite lets a text be, or its heap
            return None
        self.long = max(len(text or b"") for text in texts) > _LONG * count
        split = [_split(text or b"", count) for text in texts]
        arrays = [array for array in split if array is not None]
        if len(arrays) < len(split) or not self._as_many_missing(arrays, bounds):
            return None
        arrays = [
            array if kind == array.type else array.cast(kind)
            for array, kind in zip(arrays, self._types, strict=True)
        ]
        return arrays if _ascending(arrays[: len(self._order)]) else None

    def _as_many_missing(self, arrays: list[pa.Array], bounds: tuple[int, int]) -> bool:
        """Whether no value that is there is the very text that stands for a missing one."""
        missing = {
            f"sum({column} IS NULL)": array.null_count
            for column, array in zip(self._columns, arrays, strict=True)
            if array.null_count
        }
        if not missing:
            return True
        self._cursor.execute(f"SELECT {', '.join(missing)} {self._origin}", bounds)
        return bool(self._cursor.fetchone() == tuple(missing.values()))


def _split(text: bytes, count: int) -> pa.Array | None:
    """Take a column apart; None where a value holds what stands between two."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord(_BETWEEN))
    if len(ends) != count - 1:
        return None
    values = text.replace(_BETWEEN.encode(), b"")
    offsets = np.empty(count + 1, np.int64)
    offsets[0], offsets[-1] = 0, len(values)
    np.subtract(ends, np.arange(count - 1), out=offsets[1:-1])
    there = None
    if _MISSING.encode() in values:
        one = np.flatnonzero(np.diff(offsets) == 1)
        missing = one[np.frombuffer(values, np.uint8)[offsets[one]] == ord(_MISSING)]
        known = np.ones(count, np.bool_)
        known[missing] = False
        there = pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(
        pa.large_string(), count, [there, pa.py_buffer(offsets), pa.py_buffer(values)]
    )


def _ascending(order: list[pa.Array]) -> bool:
    """Whether the rows came in their order, which SQLite does not promise for `group_concat`."""
    rises = np.zeros(len(order[0]) - 1, np.bool_)
    same = ~rises
    for column in order:
        steps = np.diff(column.to_numpy())
        rises |= same & (steps > 0)
        same &= steps == 0
    return bool(rises.all())
