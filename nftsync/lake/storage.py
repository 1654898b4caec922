"""Delta tables and files of a lake. Workers write files; only drivers commit them to tables.

A commit starts from a recorded version, and the store refuses it if another driver has committed
since. So data files of stopped workers and drivers stay invisible.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit
from uuid import uuid4
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, QueryBuilder, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow.fs import PyFileSystem

from nftsync.errors import InputError, NftsyncError, StoreError
from nftsync.lake.folder import CHECKPOINT_INTERVAL, TableLog, is_folder, sync_table
from nftsync.lake.reasons import ADDRESSES, REMEDY, checked_address
from nftsync.lake.rows import BUCKET, conformed, rows_of, schema_of
from nftsync.lake.staged import write_whole

#: Versions by table name.
Versions: TypeAlias = dict[str, int]

_CONFIGURATION = {
    # Pinned versions stay readable until `lake compact` expires their run.
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    # Limits the size of checkpoints; deletes no files.
    "delta.deletedFileRetentionDuration": "interval 7 days",
}
#: The key, in a commit's metadata, of the digest of a version's columns and files.
_FILES = "nftsync_files"
_FILE = ("path", "size_bytes", "num_records", f"partition.{BUCKET}")
#: The CRC-32 in a data file's name; earlier releases wrote none.
_CRC = re.compile(r"/[0-9a-f]{32}-(\d+)\.parquet")
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
    """A bucket's rows of a table in a data file that no version contains yet."""

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


def _files_of(table: DeltaTable) -> list[tuple[Any, ...]]:
    return list(rows_of(pa.table(table.get_add_actions(flatten=True)), _FILE))


def _digest_of(table: DeltaTable, files: list[tuple[Any, ...]]) -> str:
    columns = [(field.name, field.type.type) for field in table.schema().fields]
    return hashlib.sha256(msgspec.json.encode((columns, sorted(files)))).hexdigest()


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
    """

    def __init__(self, url: str) -> None:
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
            if (table := self._opened.get((name, version))) is None:
                self._check(name, table := self.open(name, version))
                self._opened[name, version] = table
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
        with suppress(TableNotFoundError):
            return self.open(name)
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

    # Damage --------------------------------------------------------------------------------------

    def _check(self, name: str, table: DeltaTable) -> None:
        """Compare a version's columns and files in a folder with the digest of its commit.

        Object stores have checksums of their own.
        """
        if is_folder(self.root):
            digest, version = _digest_of(table, _files_of(table)), table.version()
            if not TableLog(Path(self.root, name)).confirms(version, _FILES, digest):
                raise StoreError(f"{self.url}: version {version} of {name} is damaged. {REMEDY}")

    def _check_file(self, path: str) -> None:
        if is_folder(self.root) and (crc := _CRC.search(path)):
            with suppress(FileNotFoundError):  # Delta's error tells more
                if crc32(Path(self.root, path).read_bytes()) != int(crc[1]):
                    raise StoreError(f"{self.url}: {path} is damaged. {REMEDY}")

    # Rows ----------------------------------------------------------------------------------------

    def stored(
        self,
        name: str,
        versions: Versions,
        where: str = "true",
        columns: Sequence[str] = (),
        buckets: Collection[int] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Read rows of a table at its version in `versions`, in small batches, in any order.

        `where` is a condition in SQL; no columns or buckets means all.
        """
        if not versions.get(name):  # version 0 has no rows
            return
        table = self.table(name, versions[name])
        for path, *_, bucket in _files_of(table):
            if not buckets or bucket in buckets:
                self._check_file(f"{name}/{path}")
        if buckets:
            where = f"{BUCKET} IN ({', '.join(map(str, buckets))}) AND {where}"
        schema = pa.schema(table.schema())
        if columns:
            schema = pa.schema([schema.field(column) for column in columns])
        query = f"SELECT {', '.join(schema.names)} FROM rows WHERE {where}"
        stream = QueryBuilder(_READER).register("rows", table).execute(query)
        yield from pa.RecordBatchReader.from_stream(stream).cast(schema)

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
        sink, rows = pa.BufferOutputStream(), 0
        with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
            for group in _row_groups(chain((first,), rest), schema):
                writer.write_table(group)
                rows += group.num_rows
        body = sink.getvalue()
        path = f"{BUCKET}={bucket}/{uuid4().hex}-{crc32(body)}.parquet"
        write_whole(self.files, f"{name}/{path}", body)
        return DataFile(name, bucket, path, rows, len(body))

    def read_file(self, file: DataFile) -> Iterator[pa.RecordBatch]:
        """Read the rows of a data file, without their bucket."""
        if file.path:
            self._check_file(f"{file.table}/{file.path}")
            with self.files.open_input_file(f"{file.table}/{file.path}") as source:
                yield from pq.ParquetFile(source).iter_batches()

    def commit(self, name: str, start: int, files: Sequence[DataFile], *, replace: bool) -> int:
        """Add data files to a version of a table, and return the new version.

        `replace` replaces all rows of the files' buckets.
        """
        base = self.restore(name, start)
        table = self.table(name)
        if table.version() != base:
            raise WriteConflict(f"{name}: version {table.version()} follows {base}")
        buckets = {file.bucket for file in files}
        after = [row for row in _files_of(table) if not (replace and row[-1] in buckets)]
        after += [(file.path, file.bytes, file.rows, file.bucket) for file in files if file.path]
        with _conflicts(name):
            table.create_write_transaction(
                [file.action() for file in files if file.path],
                "overwrite" if replace else "append",
                table.schema(),
                [BUCKET],
                [(BUCKET, "in", sorted(map(str, buckets)))] if replace else None,
                commit_properties=CommitProperties(
                    max_commit_retries=0, custom_metadata={_FILES: _digest_of(table, after)}
                ),
            )
        return base + 1

    def overwrite(self, name: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Replace all rows of a table, in the order of their buckets; return the new version."""
        pieces = (
            (bucket, batch.filter(pc.equal(batch.column(BUCKET), bucket)))
            for batch in batches
            for bucket in pc.unique(batch.column(BUCKET)).to_pylist()
        )
        groups = groupby(pieces, itemgetter(0))
        files = [self.write_file(name, x, (piece for _, piece in some)) for x, some in groups]
        return self.commit(name, 0, files, replace=False)  # version 0 has no rows

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
        """Merge each bucket's files of a version; return the version with the same rows."""
        base = self.restore(name, version)
        counts = Counter(row[-1] for row in _files_of(self.table(name, version)))
        rows = {x: self.stored(name, {name: version}, buckets=[x]) for x in counts if counts[x] > 1}
        files = [self.write_file(name, bucket, batches) for bucket, batches in rows.items()]
        return self.commit(name, base, files, replace=True) if files else version

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
        return {f"{name}/{path}": size for path, size, *_ in _files_of(self.table(name, version))}
