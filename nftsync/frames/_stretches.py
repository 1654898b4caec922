"""Most of a table at little cost: SQLite writes each column of many rows as one text.

A value that Python fetches costs several calls into SQLite and an object. Values that SQLite's
`group_concat` joins cost a third of that, and what joined them is found again with numpy. Where a
stretch of rows cannot be taken apart for certain, it is read row by row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from nftsync.frames._arrays import rows_as_arrays

__all__ = ["Table", "read_stretches"]

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
