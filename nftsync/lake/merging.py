"""Buckets of a lake in one database, with each token once.

A token's row is the one that was confirmed last. A row without metadata, or with a held change,
never comes before another.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nftsync.lake.bucket import columns_of, temporary_path
from nftsync.lake.names import put_names
from nftsync.lake.pinned import Pinned
from nftsync.records import CONTENT_COLUMNS, METADATA
from nftsync.terminal import progress_bar

#: Tokens of the schema {0} with their rank: the greatest values win.
RANKED = f"""
    SELECT token_id, coalesce({", ".join(CONTENT_COLUMNS[METADATA])}) IS NOT NULL
            AND token_no NOT IN (SELECT token_no FROM {{0}}.removal_rows
                WHERE held AND (emptied OR new_name IS NOT NULL)) AS usable,
        max(t.sequence, coalesce((SELECT max(w.sequence) FROM {{0}}.balance_rows b
            JOIN {{0}}.wallets w USING (wallet_no)
            WHERE b.token_no = t.token_no AND w.status <> 'incomplete'), 0)) AS confirmed,
        first_seen_at
    FROM {{0}}.tokens t
"""
#: Condition on rows of tokens that come from the bucket at hand.
CHOSEN = "token_no IN (SELECT old FROM token_numbers WHERE chosen)"

_BETTER = "iif((excluded.usable, excluded.confirmed) > (usable, confirmed), excluded.{0}, {0})"
_BEGIN = """
    CREATE TEMP TABLE best (token_no INTEGER PRIMARY KEY, token_id TEXT NOT NULL UNIQUE,
        usable INTEGER, confirmed INTEGER, first_seen_at TEXT, bucket INTEGER, shared INTEGER);
    CREATE TEMP TABLE token_numbers (old INTEGER PRIMARY KEY, new INTEGER, chosen INTEGER);
    CREATE TEMP TABLE wallet_numbers (old INTEGER PRIMARY KEY, new INTEGER)
"""
_NUMBER = f"""
    INSERT INTO best (token_id, usable, confirmed, first_seen_at, bucket, shared)
        SELECT *, {{bucket}}, 0 FROM ({RANKED.format("part")} WHERE {{which}} ORDER BY token_no)
        WHERE true ON CONFLICT (token_id) DO UPDATE SET
            usable = {_BETTER.format("usable")}, confirmed = {_BETTER.format("confirmed")},
            bucket = {_BETTER.format("bucket")},
            first_seen_at = min(first_seen_at, excluded.first_seen_at), shared = 1;
    DELETE FROM token_numbers;
    INSERT INTO token_numbers SELECT t.token_no, b.token_no, bucket = {{bucket}}
        FROM part.tokens t JOIN best b USING (token_id);
    DELETE FROM wallet_numbers;
    INSERT INTO wallet_numbers SELECT wallet_no, row_number() OVER (ORDER BY wallet_no)
        + (SELECT coalesce(max(wallet_no), 0) FROM main.wallets) FROM part.wallets
        UNION ALL SELECT 0, 0
"""
_NEW_NUMBERS = {
    "token_no": "(SELECT new FROM token_numbers WHERE old = token_no)",
    "wallet_no": "(SELECT new FROM wallet_numbers WHERE old = wallet_no)",
}
#: Tables with rows that several buckets may have.
_SHARED = {"removal_rows", "token_change_rows", "hidden", "resources", "new_fields"}
_GREATEST = "greatest_sequence", "approved_balance_change", "approved_token_change"
#: Buckets note the same change of a token.
_END = """
    DELETE FROM token_change_rows WHERE change_id IN (SELECT change_id FROM (
        SELECT *, lag(before) OVER in_order AS last_before, lag(after) OVER in_order AS last_after
        FROM token_change_rows WINDOW in_order AS (PARTITION BY token_no ORDER BY change_id))
        WHERE (before, after) IS (last_before, last_after));
    UPDATE tokens SET first_seen_at = best.first_seen_at, updated_at = coalesce(
        (SELECT max(observed_at) FROM token_change_rows c WHERE c.token_no = best.token_no),
        best.first_seen_at)
        FROM best WHERE shared AND best.token_no = tokens.token_no;
    DROP TABLE best; DROP TABLE token_numbers; DROP TABLE wallet_numbers
"""


def join_buckets(
    connection: sqlite3.Connection, pin: Pinned, tables: Mapping[str, str], tokens: str = "true"
) -> None:
    """Copy rows of all buckets into a new database of the lake, with new numbers, and name them.

    `tables` has the conditions on rows, and `tokens` is one on the tokens that they name.
    """
    _run(connection, _BEGIN)
    with progress_bar("Joining", pin.run.buckets, unit="buckets") as bar:
        for bucket, entry in enumerate(pin.manifest.buckets):
            if entry.file is not None:
                with temporary_path() as path:
                    pin.open(bucket, path)
                    with attached(connection, path, "part"):
                        _run(connection, _NUMBER.format(bucket=bucket, which=tokens))
                        _copy_rows(connection, tables)
            bar.update(1)
    with connection:
        connection.execute("BEGIN")
        _run(connection, _END)
        put_names(connection, pin.manifest.names)


def _run(connection: sqlite3.Connection, script: str) -> None:
    """Run statements in the open transaction, which `executescript` would end."""
    for statement in script.split(";"):
        connection.execute(statement)


def _copy_rows(connection: sqlite3.Connection, tables: Mapping[str, str]) -> None:
    for table, condition in tables.items():
        if condition == CHOSEN:  # rows of an earlier bucket
            connection.execute(
                f"DELETE FROM main.{table}"
                " WHERE token_no IN (SELECT new FROM token_numbers WHERE chosen)"
            )
        columns = columns_of(connection, table)
        values = (_NEW_NUMBERS.get(name, name) for name in columns)
        connection.execute(
            f"INSERT {'OR IGNORE' if table in _SHARED else ''} INTO main.{table}"
            f" ({', '.join(columns)}) SELECT {', '.join(values)} FROM part.{table}"
            f" WHERE {condition}"
        )
    sets = (f"{x} = max({x}, (SELECT {x} FROM part.mirror_state))" for x in _GREATEST)
    connection.execute(f"UPDATE main.mirror_state SET {', '.join(sets)}")


@contextmanager
def attached(connection: sqlite3.Connection, path: Path, schema: str) -> Iterator[None]:
    connection.execute(f"ATTACH ? AS {schema}", (str(path),))
    with connection:
        connection.execute("BEGIN")
        yield
    connection.execute(f"DETACH {schema}")
