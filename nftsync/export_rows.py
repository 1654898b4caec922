"""The rows of an export, some at a time: as the tables have them, or as they were at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, TypeAlias

from nftsync.tables import TABLES, columns_of

__all__ = ["Rows", "count_rows", "read_rows"]

#: Chunks of rows, each row a tuple of the values of its table's columns.
Rows: TypeAlias = Iterator[list[tuple[Any, ...]]]

#: Rows of a chunk. Bodies may be large (a webhook's up to 256 KiB), and a chunk is in memory.
_CHUNK = 50_000
_CHUNK_OF_BODIES = 500

#: Balances as of a time: the last change of each wallet and token by then, unless it took the
#: token off the list; `first_seen_at` is when that last put it on.
_BALANCES_AT = """
    SELECT w.wallet_id, t.token_id, c.new_amount, last.first_seen_at, c.observed_at
    FROM (
        SELECT max(change_id) AS change_id,
            max(observed_at) FILTER (WHERE old_amount IS NULL) AS first_seen_at
        FROM balance_change_rows WHERE observed_at <= ? GROUP BY wallet_no, token_no
    ) last
    JOIN balance_change_rows c USING (change_id)
    JOIN wallets w USING (wallet_no)
    JOIN tokens t USING (token_no)
    WHERE c.new_amount IS NOT NULL"""


def count_rows(connection: sqlite3.Connection, name: str, as_of: str | None) -> int:
    """How many rows there are, for a progress bar: as of a time it may be somewhat fewer.

    Args:
        connection: within a read transaction.
        name: the table.
        as_of: a time in the stored form, or None.
    """
    table = TABLES[name]
    parameters = () if as_of is None or table.since is None else (as_of,)
    query = table.select_count(until=as_of is not None)
    return int(connection.execute(query, parameters).fetchone()[0])


def read_rows(connection: sqlite3.Connection, name: str, as_of: str | None) -> Rows:
    """Read the rows of a table.

    Args:
        connection: within a read transaction, so that all tables are of one moment.
        name: the table.
        as_of: a time in the stored form: balances, holdings and tokens as they were known then,
            logs up to then, wallets as they are; None: all as it is.
    """
    if as_of is not None and name in {"tokens", "holdings"}:
        return _from_frame(connection, name, as_of)
    chunk = _CHUNK_OF_BODIES if "body" in TABLES[name].columns else _CHUNK
    if as_of is not None and name == "balances":
        return _chunks(connection.execute(_BALANCES_AT, (as_of,)), chunk)
    table = TABLES[name]
    parameters = () if as_of is None or table.since is None else (as_of,)
    return _chunks(connection.execute(table.select(until=as_of is not None), parameters), chunk)


def _chunks(cursor: sqlite3.Cursor, size: int) -> Rows:
    while rows := cursor.fetchmany(size):
        yield rows


def _from_frame(connection: sqlite3.Connection, name: str, as_of: str) -> Rows:
    from nftsync import frames  # pandas is slow to import
    from nftsync.frame_rows import rows_of

    if name == "tokens":
        frame = frames.tokens(connection, as_of=as_of)
    else:
        frame = frames.holdings(connection, as_of=as_of)
    return rows_of(frame, list(columns_of(name, as_of=True)), step=_CHUNK)
