"""Large databases, made fast: a small one that nftsync filled, many times over."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from nftsync.store.schema import open_store

__all__ = ["multiply"]

#: Tables in the order in which a sync appends to them, with the column that counts their rows.
TABLES = {
    "wallets": "wallet_no",
    "tokens": "token_no",
    "balance_rows": "wallet_no",
    "balance_change_rows": "change_id",
    "wallet_state_rows": "state_id",
}
NUMBERS = {"wallet_no", "token_no", "change_id", "state_id"}
IDS = {"wallet_id", "token_id"}
NEW_ID = (
    "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2)"
    " || '-8' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))"
)


def multiply(original: Path, target: Path, copies: int) -> None:
    """Write a database that holds everything of another `copies` times.

    The first copy keeps its wallets' and tokens' ids, so that these can be synced; the others get
    new ones. Copies lie in turn, row by row, so that what is known lies scattered among the rest.
    """
    open_store(target).close()
    with closing(sqlite3.connect(target, isolation_level=None)) as connection:
        # Nobody else has this file yet.
        connection.execute("PRAGMA journal_mode = OFF").fetchall()
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -1000000")
        connection.execute("ATTACH ? AS original", (str(original),))
        connection.execute("CREATE TEMP TABLE copies (copy INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO copies VALUES (?)", ((n,) for n in range(copies)))
        connection.execute("BEGIN IMMEDIATE")
        for table, order in TABLES.items():
            _copy(connection, table, order, copies)
        for table in ("sync_runs", "mirror_state"):
            connection.execute(f"DELETE FROM main.{table}")
            connection.execute(f"INSERT INTO main.{table} SELECT * FROM original.{table}")
        connection.execute(
            "UPDATE main.mirror_state SET indexed_token_no ="
            " (SELECT max(token_no) FROM main.tokens)"
        )
        connection.execute("INSERT INTO main.tokens_fts (tokens_fts) VALUES ('rebuild')")
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL").fetchall()


def _copy(connection: sqlite3.Connection, table: str, order: str, copies: int) -> None:
    names = [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]
    values = []
    for name in names:
        if name in NUMBERS:
            values.append(f"o.{name} * {copies} + copy")
        elif name in IDS:
            values.append(f"CASE copy WHEN 0 THEN o.{name} ELSE {NEW_ID} END")
        else:
            values.append(f"o.{name}")
    second = ", o.token_no" if table == "balance_rows" else ""
    connection.execute(
        f"INSERT INTO main.{table} ({', '.join(names)}) SELECT {', '.join(values)}"
        f" FROM original.{table} AS o CROSS JOIN copies ORDER BY o.{order}, copy{second}"
    )
