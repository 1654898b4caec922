"""Inserting many rows with few steps.

`executemany` gives up the interpreter's lock and takes it back for every row; beside threads that
read the provider, each of those is a wait in line. One statement with many rows of values does it
once for all of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

__all__ = ["insert_rows", "statement_of"]

#: Values per statement; SQLite takes 32,766, and the gain is had long before.
_VALUES = 4_000


def insert_rows(connection: sqlite3.Connection, into: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows.

    Args:
        connection: in a transaction.
        into: the statement up to `VALUES`: `INSERT INTO table (columns)`.
        rows: the values, all rows of one width.
    """
    if not rows:
        return
    width = len(rows[0])
    step = max(1, _VALUES // width)
    whole = len(rows) - len(rows) % step
    for start in range(0, whole, step):
        values = list(chain.from_iterable(rows[start : start + step]))
        connection.execute(statement_of(into, width, step), values)
    connection.executemany(statement_of(into, width, 1), rows[whole:])


@cache
def statement_of(into: str, width: int, rows: int) -> str:
    """The statement that inserts so many rows of so many values; `into` as for `insert_rows`."""
    one = f"({', '.join('?' * width)})"
    return f"{into} VALUES {', '.join([one] * rows)}"
