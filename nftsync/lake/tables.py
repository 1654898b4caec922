"""Published Delta tables of a lake, for other readers: `balances`, `tokens`, `balance_changes`.

Workers write data files, and drivers commit them. The manifest pins a digest of each table's list
of files, so a table that a late driver changed is restored, and a damaged one is written again.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import BytesIO
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from nftsync.errors import StoreError
from nftsync.lake.delta import ONE_VERSION, create_table, open_table, sync_table
from nftsync.lake.manifest import BucketEntry, Published, PublishedTable
from nftsync.lake.reasons import STORE_ERRORS
from nftsync.lake.storage import Lake
from nftsync.store.catalog import TABLES

_log = logging.getLogger(__name__)
#: The column of a row's bucket, by which the tables are partitioned.
BUCKET = "bucket"
PUBLISHED = ("balances", "tokens", "balance_changes")
#: The table to which buckets append; they replace their rows of the others.
_APPENDED = "balance_changes"
#: Rows in a row group, which are held as Python objects.
_ROWS = 10_000
#: Commits to try while late drivers commit.
_COMMITS = 5
#: Limit of a write's duration, in hours.
LONGEST_WRITE = 24

#: The digest of a table without files.
_NO_FILES = hashlib.sha256(b"[]").hexdigest()


class DataFile(msgspec.Struct, frozen=True):
    """Rows of a bucket, in a data file that no version of the table contains yet."""

    table: str
    bucket: int
    path: str
    rows: int
    bytes: int

    def action(self) -> AddAction:
        return AddAction(
            path=self.path,
            size=self.bytes,
            partition_values={BUCKET: str(self.bucket)},
            modification_time=int(time.time() * 1000),
            data_change=True,
            stats=msgspec.json.encode({"numRecords": self.rows}).decode(),
        )


# Data files ---------------------------------------------------------------------------------------


def write_files(
    lake: Lake, connection: sqlite3.Connection, bucket: int, entry: BucketEntry
) -> list[DataFile]:
    """Write what the published tables lack of a bucket into new data files."""
    known, tables = entry.published, []
    # An imported database may have rows from before its history.
    is_new = known == Published()
    if is_new or entry.change > known.change:
        tables += ["balances", "balance_changes"]
    if is_new or (entry.token_change, entry.rows.tokens) != (known.token_change, known.tokens):
        tables.append("tokens")
    return [_write_file(lake, connection, name, bucket, known.change) for name in tables]


def _write_file(
    lake: Lake, connection: sqlite3.Connection, name: str, bucket: int, since: int
) -> DataFile:
    path, number, schema = f"{BUCKET}={bucket}/{uuid4().hex}.parquet", 0, _schema_of(name)
    schema = schema.remove(schema.get_field_index(BUCKET))
    query = TABLES[name].select()
    if name == _APPENDED:
        query = f"SELECT * FROM ({query}) WHERE change_id > {since}"
    rows = connection.execute(query)
    with pq.ParquetWriter(file := BytesIO(), schema, compression="zstd") as writer:
        while some := rows.fetchmany(_ROWS):
            columns = map(pa.array, zip(*some, strict=True), schema.types)
            writer.write_table(pa.table([*columns], schema=schema))
            number += len(some)
    size = lake.write(f"{name}/{path}", file.getvalue()).size
    return DataFile(name, bucket, path, number, size)


def _schema_of(name: str) -> pa.Schema:
    kinds = {x: column.kind for x, column in TABLES[name].columns.items()} | {BUCKET: "integer"}
    numbers = {x: pa.int64() for x, kind in kinds.items() if kind in {"integer", "flag"}}
    return pa.schema({x: numbers.get(x, pa.string()) for x in kinds})


# Versions -----------------------------------------------------------------------------------------


def _state_of(table: DeltaTable) -> PublishedTable:
    actions = pa.table(table.get_add_actions(flatten=True))
    names = ("path", "size_bytes", "num_records", f"partition.{BUCKET}")
    files = sorted(zip(*(actions[name].to_pylist() for name in names), strict=True))
    return PublishedTable(
        version=table.version(),
        rows=sum(file[2] or 0 for file in files),  # None: damaged
        files=len(files),
        bytes=sum(file[1] for file in files),
        digest=hashlib.sha256(msgspec.json.encode(files)).hexdigest(),
    )


def _restored(lake: Lake, name: str, pinned: PublishedTable | None) -> DeltaTable:
    """Open a table with the pinned files (None: with none) as its newest version."""
    table = open_table(lake, name)
    for _ in range(2):
        if _state_of(table).digest == (pinned.digest if pinned else _NO_FILES):
            return table
        table.restore(pinned.version if pinned else 0, commit_properties=ONE_VERSION)
    raise lake.damaged(f"the published table {name}")


def _changed(
    lake: Lake,
    name: str,
    pinned: PublishedTable | None,
    check: Callable[[], object],
    change: Callable[[DeltaTable], object],
) -> PublishedTable:
    """Change the pinned version, and wait until the new one is on disk."""
    for _ in range(_COMMITS):
        check()
        with suppress(CommitFailedError):  # a late driver commits, or a commit was not confirmed
            table = _restored(lake, name, pinned)
            before = table.file_uris()
            change(table)
            new = {*table.file_uris()} - {*before}
            sync_table(lake, name, pinned.version if pinned else -1, new)
            return _state_of(table)
    raise StoreError(f"{lake.url}: other writers keep changing the table {name}; stop them")


def check_tables(lake: Lake, tables: Mapping[str, PublishedTable]) -> bool:
    """Tell whether the published tables have the pinned files; create others again, empty."""
    damaged = [name for name in PUBLISHED if not _is_intact(lake, name, tables.get(name))]
    for name in damaged:
        if name in tables:
            _log.warning(
                "%s: the published table %s was damaged or missing. It is published again.",
                lake.url,
                name,
            )
        # Not the data files, which an interrupted run may have written.
        lake.delete(lake.names(f"{name}/_delta_log"))
        create_table(lake, name, _schema_of(name), [BUCKET])
    return bool(tables) and not damaged


def _is_intact(lake: Lake, name: str, pinned: PublishedTable | None) -> bool:
    try:
        table = _restored(lake, name, pinned)
    except CommitFailedError:  # a late driver is writing; its version is restored at the commit
        return True
    except (StoreError, *STORE_ERRORS):
        return False
    actions, stored = pa.table(table.get_add_actions()), lake.names(name)
    sizes = {f"{name}/{x['path']}": x["size_bytes"] for x in actions.to_pylist()}
    # A power cut may leave an empty entry, which Delta reads as one without changes.
    sizes |= {x: size or -1 for x, (size, _) in stored.items() if "/_delta_log/" in x}
    is_stored = all(stored.get(x, (-2,))[0] == size for x, size in sizes.items())
    return is_stored and pa.schema(table.schema()) == _schema_of(name)


def commit_files(
    lake: Lake,
    tables: Mapping[str, PublishedTable],
    files: Collection[DataFile],
    check: Callable[[], object],
) -> dict[str, PublishedTable]:
    """Add data files to the pinned tables, and return the new versions, once they are on disk.

    `check` raises an error if another driver has taken over.
    """
    by_table = {name: [file for file in files if file.table == name] for name in PUBLISHED}
    return {
        name: tables[name]
        if name in tables and not some
        else _changed(lake, name, tables.get(name), check, partial(_commit, some))
        for name, some in by_table.items()
    }


def _commit(files: Sequence[DataFile], table: DeltaTable) -> None:
    replaced = {str(file.bucket) for file in files if file.table != _APPENDED}
    table.create_write_transaction(
        [file.action() for file in files],
        "overwrite" if replaced else "append",
        table.schema(),
        [BUCKET],
        [(BUCKET, "in", sorted(replaced))] if replaced else None,
        commit_properties=ONE_VERSION,
    )
    table.load_as_version(table.version() + 1)


# Compaction ---------------------------------------------------------------------------------------


def compact_tables(
    lake: Lake, tables: Mapping[str, PublishedTable], check: Callable[[], object]
) -> dict[str, PublishedTable]:
    """Merge each bucket's small files, and return the new versions, once they are on disk."""
    return {name: _changed(lake, name, tables[name], check, _compact) for name in tables}


def _compact(table: DeltaTable) -> None:
    table.optimize.compact(
        max_concurrent_tasks=1,
        writer_properties=WriterProperties(compression="ZSTD"),
        commit_properties=ONE_VERSION,
    )


def vacuum_tables(lake: Lake, keep: Mapping[str, Collection[int]], *, unknown: bool = True) -> None:
    """Delete files that neither a table's newest version nor a kept one contains.

    `unknown` also deletes old files that no version contains, which may belong to an unfinished
    write.
    """
    for name, versions in keep.items():
        for hours, full in ((0, False), (LONGEST_WRITE, True))[: 1 + unknown]:
            table = open_table(lake, name)
            table.vacuum(
                retention_hours=hours,
                enforce_retention_duration=False,
                dry_run=False,
                full=full,
                keep_versions=sorted(x for x in versions if x <= table.version()),
            )
        sync_table(lake, name, -1)
