"""Large databases: copies of a small database that nftsync filled.

The copies follow each other, and a wallet's tokens and balances are together, as in a database that
grew. The middle copy keeps its ids, so a sync can read its wallets. The other copies have random
ids, which scatter over the indexes.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from nftsync.store.schema import open_store

#: Tables in the order in which a sync appends to them, with the column that counts their rows.
TABLES = {
    "wallets": "wallet_no",
    "tokens": "token_no",
    "balance_rows": "wallet_no",
    "balance_change_rows": "change_id",
    "wallet_state_rows": "state_id",
}
#: The table that gives each number out.
OWNERS = {number: table for table, number in TABLES.items() if table != "balance_rows"}
IDS = {"wallet_id", "token_id"}
NEW_ID = (
    "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2)"
    " || '-8' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))"
)


def multiply(original: Path, target: Path, copies: int) -> None:
    """Write a database with `copies` copies of another."""
    open_store(target).close()
    with closing(sqlite3.connect(target, isolation_level=None)) as connection:
        # Only this process has the file.
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
        if name in OWNERS:
            values.append(f"o.{name} + copy * (SELECT max({name}) FROM original.{OWNERS[name]})")
        elif name in IDS:
            values.append(f"CASE copy WHEN {copies // 2} THEN o.{name} ELSE {NEW_ID} END")
        else:
            values.append(f"o.{name}")
    second = ", o.token_no" if table == "balance_rows" else ""
    connection.execute(
        f"INSERT INTO main.{table} ({', '.join(names)}) SELECT {', '.join(values)}"
        f" FROM copies CROSS JOIN original.{table} AS o ORDER BY copy, o.{order}{second}"
    )
