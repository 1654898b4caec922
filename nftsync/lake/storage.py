"""Delta tables and files of a lake. Workers write files; only drivers commit them to tables.

A commit starts from a recorded version, and the store refuses it if another driver has committed
since. So data files of stopped workers and drivers stay invisible, and `lake compact` deletes them.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    QueryBuilder,
    Schema,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow.fs import PyFileSystem

from nftsync.errors import InputError, NftsyncError
from nftsync.lake.folder import is_folder, sync_table
from nftsync.lake.reasons import ADDRESSES, checked_address
from nftsync.lake.rows import BUCKET, conformed, rows_of, schema_of

#: Versions by table name.
Versions: TypeAlias = dict[str, int]

_CONFIGURATION = {
    # Pinned versions stay readable until `lake compact` expires their run.
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.checkpointInterval": "10",
    # Limits the size of checkpoints; deletes no files.
    "delta.deletedFileRetentionDuration": "interval 7 days",
}
_WRITER = WriterProperties(compression="ZSTD", max_row_group_size=100_000)
#: Bytes of rows in memory until a data file gets them, as a row group.
_ROW_GROUP = 32 << 20
#: A commit of the next version or none: a retry would follow another driver's version.
ONE_VERSION = CommitProperties(max_commit_retries=0)
#: Limit of a write's duration, in hours.
_LONGEST_WRITE = 24
_READER = {
    # Read sequentially to limit memory.
    "datafusion.execution.target_partitions": "1",
    "datafusion.execution.batch_size": "2000",
}
#: Timeouts of the first request to an address; Delta's own are minutes.
_FIRST = {"connect_timeout": "5s", "timeout": "10s", "max_retries": "3", "retry_timeout": "10s"}


class WriteConflict(NftsyncError):
    """A commit refused because another writer committed first."""


@contextmanager
def _conflicts(table: str) -> Iterator[None]:
    try:
        yield
    except CommitFailedError as error:
        raise WriteConflict(f"{table}: {error}") from error


class DataFile(msgspec.Struct, frozen=True):
    """A bucket's rows of a table in a data file that no version contains yet.

    Attributes:
        path: its path in the table's folder; empty: no file, for no rows.
        bytes: its size.
    """

    table: str
    bucket: int
    path: str = ""
    rows: int = 0
    bytes: int = 0

    def action(self) -> AddAction:
        """Return the action that adds the file to a version."""
        return AddAction(
            path=self.path,
            size=self.bytes,
            partition_values={BUCKET: str(self.bucket)},
            modification_time=int(time.time() * 1000),
            data_change=True,
            stats=msgspec.json.encode({"numRecords": self.rows}).decode(),
        )


def _missing_columns(name: str, table: DeltaTable) -> list[Field]:
    names = {field.name for field in table.schema().fields}
    wanted = Schema.from_arrow(schema_of(name)).fields
    return [field for field in wanted if field.name not in names]


def _row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(conformed(batch, schema.names).cast(schema))
        if sum(some.nbytes for some in group) > _ROW_GROUP:
            yield pa.Table.from_batches(group, schema)
            group = []
    if group:
        yield pa.Table.from_batches(group, schema)


class Lake:
    """Tables below one address.

    Keeps tables open, because opening one takes many requests to an object store.

    Attributes:
        url: the address from the user.
        root: the address of the tables.
    """

    def __init__(self, url: str) -> None:
        """Store a valid address; nothing is opened."""
        self.url = checked_address(url)
        path = unquote(urlsplit(url).path) if url.startswith("file://") else url
        self.root = url.rstrip("/") if "://" in path else str(Path(path).resolve())
        self._opened: dict[tuple[str, int | None], DeltaTable] = {}
        self._lock = threading.Lock()

    def open(self, name: str, version: int | None = None) -> DeltaTable:
        """Open a table at a version, by default the newest."""
        return DeltaTable(f"{self.root}/{name}", version=version)

    def table(self, name: str, version: int | None = None) -> DeltaTable:
        """Return a shared open table for reads, at a version or the newest."""
        with self._lock:
            table = self._opened.get((name, version))
            if table is None:
                table = self._opened[name, version] = self.open(name, version)
            elif version is None:
                table.update_incremental()
            return table

    def open_first(self, name: str) -> DeltaTable:
        """Open a table with short timeouts, so that a wrong address fails within seconds."""
        try:
            return DeltaTable(f"{self.root}/{name}", storage_options=_FIRST)
        except TableNotFoundError as error:
            if "Unknown scheme" in str(error):
                raise InputError(f"{self.url} is not a lake address: {ADDRESSES}") from error
            raise

    def create(self, name: str, schema: pa.Schema, partition_by: Sequence[str] = ()) -> DeltaTable:
        """Open a table; create it if it is missing."""
        try:
            return self.open(name)
        except TableNotFoundError:
            pass
        try:
            return DeltaTable.create(
                f"{self.root}/{name}",
                schema=schema,
                partition_by=list(partition_by),
                configuration=_CONFIGURATION,
            )
        except DeltaError:  # another process has just created it
            return self.open(name)

    @cached_property
    def files(self) -> PyFileSystem:
        """All files of the lake, with Delta's credentials, retries and timeouts."""
        return PyFileSystem(DeltaStorageHandler(self.root))

    # Rows ----------------------------------------------------------------------------------------

    def batches(
        self, name: str, version: int | None, where: str = "true", columns: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Read rows of a table in small batches, in any order.

        `version` None is the newest, `where` a condition in SQL; no columns means all.
        """
        table = self.table(name, version)
        schema = pa.schema(table.schema())
        if columns:
            schema = pa.schema([schema.field(column) for column in columns])
        query = f"SELECT {', '.join(schema.names)} FROM rows WHERE {where}"
        stream = QueryBuilder(_READER).register("rows", table).execute(query)
        yield from pa.RecordBatchReader.from_stream(stream).cast(schema)

    def stored(
        self, name: str, versions: Versions, where: str = "true", columns: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Read rows of a table at its version in `versions`; without a version, there are none."""
        if version := versions.get(name):  # version 0 has no rows
            yield from self.batches(name, version, where, columns)

    def rows(
        self, name: str, versions: Versions, where: str, columns: Sequence[str]
    ) -> Iterator[tuple[Any, ...]]:
        """Read rows as tuples; same arguments as `stored`."""
        for batch in self.stored(name, versions, where, columns):
            yield from rows_of(batch, columns)

    def count(self, name: str, versions: Versions) -> int:
        """Count a table's rows."""
        return self.table(name, versions[name]).count() if name in versions else 0

    # Writes --------------------------------------------------------------------------------------

    def write_file(self, name: str, bucket: int, batches: Iterable[pa.RecordBatch]) -> DataFile:
        """Write a bucket's rows of a table into a new data file."""
        schema = pa.schema([field for field in schema_of(name) if field.name != BUCKET])
        rest = (batch for batch in batches if batch.num_rows)
        if (first := next(rest, None)) is None:
            return DataFile(name, bucket)
        path, rows = f"{BUCKET}={bucket}/{uuid4().hex}.parquet", 0
        with self.files.open_output_stream(f"{name}/{path}") as file:
            with pq.ParquetWriter(file, schema, compression="zstd") as writer:
                for group in _row_groups(chain((first,), rest), schema):
                    writer.write_table(group)
                    rows += group.num_rows
            size = file.tell()
        return DataFile(name, bucket, path, rows, size)

    def read_file(self, file: DataFile) -> Iterator[pa.RecordBatch]:
        """Read the rows of a data file, without their bucket."""
        if file.path:
            with self.files.open_input_file(f"{file.table}/{file.path}") as source:
                yield from pq.ParquetFile(source).iter_batches()

    def commit(self, name: str, start: int, files: Sequence[DataFile], *, replace: bool) -> int:
        """Add data files to a version of a table, and return the new version.

        `replace` replaces all rows of the files' buckets.

        Raises:
            WriteConflict: another driver has committed meanwhile.
        """
        base = self.restore(name, start)
        table = self.table(name)
        if table.version() != base:
            raise WriteConflict(f"{name}: version {table.version()} follows {base}")
        places = sorted({str(file.bucket) for file in files})
        with _conflicts(name):
            table.create_write_transaction(
                [file.action() for file in files if file.path],
                "overwrite" if replace else "append",
                table.schema(),
                [BUCKET],
                [(BUCKET, "in", places)] if replace else None,
                commit_properties=ONE_VERSION,
            )
        return base + 1

    def overwrite(self, name: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Replace all rows of a table, and return the new version.

        Raises:
            WriteConflict: another driver has committed meanwhile.
        """
        base = self.restore(name, self.table(name).version())
        reader = pa.RecordBatchReader.from_batches(schema_of(name), batches)
        with _conflicts(name):
            write_deltalake(
                self.open(name, base),
                reader,
                mode="overwrite",
                writer_properties=_WRITER,
                commit_properties=ONE_VERSION,
            )
        return base + 1

    def sync_to_disk(self, since: Versions, until: Versions) -> None:
        """Wait until table versions newer than `since` are on disk."""
        if is_folder(self.root):
            for name, version in until.items():
                if version > since.get(name, -1):
                    sync_table(Path(self.root, name), since.get(name, -1), version)

    # Old versions ------------------------------------------------------------------------------

    def restore(self, name: str, version: int) -> int:
        """Restore a table to a version, with all columns; return the resulting version."""
        while True:
            newest = self.table(name)
            if newest.version() == version and not _missing_columns(name, newest):
                return version
            table = self.open(name)
            try:
                if table.version() != version:
                    table.restore(version)
                # Not the newest version: a late driver may have written since.
                restored = table.version()
                if not (missing := _missing_columns(name, table)):
                    return restored
                table.alter.add_columns(missing)
            except CommitFailedError:
                continue  # a late driver has written; restore again
            if table.version() == restored + 1:
                return restored + 1

    def optimize(self, name: str, version: int) -> int:
        """Merge each bucket's small files of a version; return the resulting version.

        Raises:
            WriteConflict: another driver has committed meanwhile.
        """
        table = self.open(name, version)
        with _conflicts(name):
            table.optimize.compact(
                max_concurrent_tasks=1, writer_properties=_WRITER, commit_properties=ONE_VERSION
            )
        return table.version()

    def vacuum(self, name: str, keep: Collection[int | None], hours: int = 0) -> None:
        """Delete files that neither the table nor a kept version contains.

        Keeps files removed from the table within the last `hours`.
        """
        versions = sorted(version for version in keep if version is not None)
        # Files outside the table may belong to an unfinished write.
        for least, all_files in ((hours, False), (_LONGEST_WRITE, True)):
            self.open(name).vacuum(
                retention_hours=least,
                enforce_retention_duration=False,
                dry_run=False,
                full=all_files,
                keep_versions=versions,
            )
        self.open(name).create_checkpoint()

    def drop(self, folder: str) -> None:
        """Delete a folder beside the tables."""
        if is_folder(self.root):
            shutil.rmtree(Path(self.root, folder), ignore_errors=True)
        else:
            with suppress(FileNotFoundError):
                self.files.delete_dir(folder)

    def data_files(self, name: str, version: int | None) -> dict[str, int]:
        """Return the files of a table at a version, with their sizes in bytes."""
        files = self.table(name, version).get_add_actions(flatten=True)
        paths, sizes = (files.column(x).to_pylist() for x in ("path", "size_bytes"))
        return {f"{name}/{path}": size for path, size in zip(paths, sizes, strict=True)}
