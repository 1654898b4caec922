"""Bucket files: each is a complete nftsync database, compressed.

`open_bucket` is the only way to open one. It adds what the manifest and the ledger know.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import msgspec

from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.manifest import BucketEntry, BucketRows, NamesByContract
from nftsync.lake.names import put_names
from nftsync.lake.storage import Lake, StoredFile
from nftsync.store.database import explained, named_rows
from nftsync.store.day_report import day_counts
from nftsync.store.freshness import wallet_groups
from nftsync.store.history import first_row, last_observed
from nftsync.store.removals import held_rows
from nftsync.store.runs import Counts
from nftsync.store.schema import empty_store, open_store

#: The folder of bucket files.
BUCKETS = "buckets"
#: The kinds of runs that a database knows.
_KINDS = ("sync", "replay")
_RUN = ("run_id", "kind", "status", "started_at", "finished_at", "wallets_total", "error")
RUN_COLUMNS = (*_RUN, *Counts.__struct_fields__)

_CONFIRM_WALLETS = (
    "UPDATE wallets SET synced_at = max(synced_at, :at), sequence = max(sequence, :sequence)"
    " WHERE tracked"
)
_CONFIRM_STATES = (
    "UPDATE wallet_state_rows SET last_read_at = max(last_read_at, :at), reads = reads + :runs"
    " WHERE state_id IN (SELECT state_id FROM wallets WHERE tracked)"
)
#: Tables with ids that are distinct in the lake, their id, and the entry's name of the greatest.
_NUMBERED = (
    ("balance_change_rows", "change_id", "change"),
    ("wallet_state_rows", "state_id", "state"),
    ("token_change_rows", "change_id", "token_change"),
)
_ROWS = """
    SELECT (SELECT count(*) FROM wallets) AS wallets,
        (SELECT count(*) FROM wallets WHERE tracked) AS tracked,
        (SELECT count(*) FROM balance_rows) AS balances,
        (SELECT count(*) FROM balance_rows WHERE held_since IS NOT NULL) AS held,
        (SELECT count(*) FROM tokens) AS tokens,
        (SELECT count(*) FROM balance_change_rows) AS changes
"""
_HOLDINGS = (
    "SELECT wallet_group, sum(number) FROM (SELECT wallet_no, count(*) AS number FROM balance_rows"
    " WHERE held_since IS NOT NULL GROUP BY wallet_no) JOIN wallets USING (wallet_no)"
    " WHERE tracked GROUP BY 1"
)
_FREE = ("freelist_count", "page_size")


class LakeState(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a lake that its bucket files lack; `sequence` is its greatest sequence number."""

    runs: Sequence[LakeRun] = ()
    sequence: int = 0
    approved_at: str = ""
    names: NamesByContract = {}


def bucket_of(key: str, buckets: int) -> int:
    """Return the bucket of a wallet's id, which never changes."""
    return zlib.crc32(key.encode()) % buckets


def open_bucket(lake: Lake, entry: BucketEntry, state: LakeState, path: Path) -> None:
    """Write a bucket's database to a new path, complete with what the lake knows of it."""
    if entry.file is None:
        path.write_bytes(empty_store())
    else:
        lake.fetch(entry.file, path)
    with explained(path), closing(open_store(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")  # a copy
        with connection:
            connection.execute("BEGIN")
            if entry.confirmations:
                at, sequence = entry.confirmed_at, entry.confirmed_sequence
                connection.execute(_CONFIRM_WALLETS, {"at": at, "sequence": sequence})
                connection.execute(_CONFIRM_STATES, {"at": at, "runs": entry.confirmations})
            _approve(connection, state.approved_at)
            # Each process takes its own offset: monotonic clocks of machines differ.
            connection.execute(
                "UPDATE mirror_state SET sequence_offset = 0, greatest_sequence = ?",
                (state.sequence,),
            )
            put_runs(connection, state.runs)
            if state.names:
                put_names(connection, state.names)
        connection.execute("PRAGMA journal_mode = DELETE").fetchone()


def _approve(connection: sqlite3.Connection, approved_at: str) -> None:
    for feed in ("balance_change", "token_change") if approved_at else ():
        last = first_row(connection, f"{feed}_rows", approved_at, later=True) - 1
        connection.execute(
            f"UPDATE mirror_state SET approved_{feed} = max(approved_{feed}, ?)", (last,)
        )


def put_runs(connection: sqlite3.Connection, runs: Sequence[LakeRun]) -> None:
    """Replace a database's runs by the ledger's, and add the times of partial states.

    A database has no approvals as runs: their times have negative numbers.
    """
    own = [run for run in runs if run.kind in _KINDS and run.status != "running"]
    rows = [{**msgspec.structs.asdict(x), **msgspec.structs.asdict(x.counts)} for x in own]
    connection.execute("DELETE FROM sync_runs")
    connection.executemany(
        f"INSERT INTO sync_runs ({', '.join(RUN_COLUMNS)})"
        f" VALUES ({', '.join('?' * len(RUN_COLUMNS))})",
        [[row[name] for name in RUN_COLUMNS] for row in rows],
    )
    connection.executemany(
        "INSERT INTO partial_spans (run_id, began_at, ended_at) VALUES (?, ?, ?)",
        [
            (x.run_id if x.kind in _KINDS else -x.run_id, x.changed_from, x.changed_until)
            for x in runs
            if x.changed_from and x.status != "running"
        ],
    )


# Files --------------------------------------------------------------------------------------------


@contextmanager
def temporary_path() -> Iterator[Path]:
    with TemporaryDirectory(prefix="nftsync-", dir=scratch_folder()) as folder:
        yield Path(folder, "bucket.db")


def scratch_folder() -> str | None:
    """Return the folder that Dask cleans up after a killed worker, or None."""
    from distributed import get_worker  # takes a second

    try:
        return get_worker().local_directory
    except ValueError:
        return None


def store_database(lake: Lake, bucket: int, path: Path) -> StoredFile:
    """Store a closed database under a new name; StoreError if it is damaged."""
    with explained(path), closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        if (result := connection.execute("PRAGMA quick_check").fetchone()) != ("ok",):
            raise lake.damaged(f"the database of bucket {bucket} ({result[0]})")
    return lake.write_compressed(f"{BUCKETS}/{bucket}-{uuid4().hex}.db.zst", path)


def settle(
    connection: sqlite3.Connection, before: BucketEntry, first: Sequence[int], step: int
) -> None:
    """Give the rows after `before` ids that are distinct in the lake.

    `first` has the bucket's first id for changes, states and token changes; further ids follow at
    distances of `step`.
    """
    for (table, key, greatest), start in zip(_NUMBERED, first, strict=True):
        numbers = start, step, getattr(before, greatest) + 1
        new = f"?1 + ?2 * ({key} - ?3)"
        others = ", ".join(name for name in columns_of(connection, table) if name != key)
        # In order into the end of the table, which is much faster than updates.
        connection.execute(
            f"CREATE TEMP TABLE numbered AS SELECT {new}, {others} FROM {table} WHERE {key} >= ?3",
            numbers,
        )
        connection.execute(f"DELETE FROM {table} WHERE {key} >= ?", numbers[2:])
        connection.execute(f"INSERT INTO {table} ({key}, {others}) SELECT * FROM numbered")
        connection.execute("DROP TABLE numbered")
        if table == "wallet_state_rows":
            connection.execute(f"UPDATE wallets SET {key} = {new} WHERE {key} >= ?3", numbers)


def columns_of(connection: sqlite3.Connection, table: str) -> list[str]:
    """Return a table's stored columns; `table_info` has no generated ones."""
    rows = connection.execute("SELECT name FROM pragma_table_info(?, 'main')", (table,))
    return [name for (name,) in rows]


def forget_runs(connection: sqlite3.Connection, runs: Sequence[LakeRun], run_id: int) -> None:
    """Remove what `open_bucket` and a run have added of runs."""
    ids = [run_id, *(run.run_id for run in runs if run.changed_from)]
    connection.executemany("DELETE FROM partial_spans WHERE abs(run_id) = ?", [(x,) for x in ids])
    connection.execute("DELETE FROM sync_runs")
    connection.execute("UPDATE mirror_state SET sequence_offset = 0")


def facts_of(connection: sqlite3.Connection) -> BucketEntry:
    entry = BucketEntry(changed_at=last_observed(connection) or "")
    (rows,) = named_rows(connection.execute(_ROWS))
    entry.rows = BucketRows(**rows)
    for table, key, last in _NUMBERED:
        (greatest,) = connection.execute(f"SELECT max({key}) FROM {table}").fetchone()
        setattr(entry, last, greatest or 0)
    entry.holdings = connection.execute(_HOLDINGS).fetchall()
    if entry.changed_at:
        day = day_counts(connection, entry.changed_at, [])
        entry.losses, entry.losing = day.rows, day.wallets
    entry.freshness = wallet_groups(connection)
    entry.removals = held_rows(connection)
    (pages,), (size,) = (connection.execute(f"PRAGMA {x}").fetchone() for x in _FREE)
    entry.free = pages * size
    return entry
