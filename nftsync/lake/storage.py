"""Delta tables of a lake: a write takes effect once, or raises a write conflict.

Each write names its transaction (run, step, bucket, attempt) and starts from a recorded version.
Delta refuses it if another writer has committed since. It is then skipped if a worker has made the
same write; otherwise, it raises a write conflict.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    QueryBuilder,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from nftsync.errors import InputError, NftsyncError
from nftsync.lake.folder import is_folder, sync_table
from nftsync.lake.reasons import ADDRESSES, checked_address
from nftsync.lake.rows import BUCKET, TABLES, schema_of

#: Column of a log: the run that added the row.
ADDED_IN = "added_in"
#: Key of the transaction's id in a commit's metadata.
_MADE_BY = "nftsync"
#: Versions by table name.
Versions: TypeAlias = dict[str, int]

_CONFIGURATION = {
    # Pinned versions stay readable until `lake compact` expires their run.
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.checkpointInterval": "10",
    # Limits the size of checkpoints; deletes no files.
    "delta.deletedFileRetentionDuration": "interval 7 days",
    # Limits the size of checkpoints; runs are not resumed after 30 days.
    "delta.setTransactionRetentionDuration": "interval 30 days",
}
_WRITER = WriterProperties(compression="ZSTD", max_row_group_size=100_000)
#: Small row groups, as each bucket reads only its own rows.
_STAGED_WRITER = WriterProperties(compression="ZSTD", max_row_group_size=100)
#: Commits of other buckets that one write may have to check.
_MOST_COMMITS = 100_000
#: Limit of a write's duration, in hours.
_LONGEST_WRITE = 24
_READER = {
    # Read sequentially to limit memory.
    "datafusion.execution.target_partitions": "1",
    "datafusion.execution.batch_size": "2000",
}
#: Timeouts of the first request to an address; Delta's own are minutes.
_FIRST = {"connect_timeout": "5s", "timeout": "10s", "max_retries": "3", "retry_timeout": "10s"}
#: Commits searched for the newest run with staged rows.
_COMMITS_SEARCHED = 10
#: Rows per batch; values may be large.
_STAGED_AT_ONCE = 500


class WriteConflict(NftsyncError):
    """A commit refused because another writer committed first."""


class Commit(NamedTuple):
    """Identity of a write, and the versions that it starts from.

    Attributes:
        attempt: the run's attempt at writing.
        base: the version of each table that writes start from; the newest for other tables.
    """

    run_id: int
    step: str
    bucket: int
    attempt: int
    base: Versions

    @property
    def name(self) -> str:
        """The transaction's id."""
        return f"{self.run_id}/{self.step}/{self.bucket}/{self.attempt}"

    def properties(self) -> CommitProperties:
        """Return the metadata that Delta records with the commit."""
        return CommitProperties(
            max_commit_retries=_MOST_COMMITS,
            app_transactions=[Transaction(self.name, 1, int(time.time() * 1000))],
            custom_metadata={_MADE_BY: self.name},
        )


#: Packed rows that a step hands from one bucket to another.
STAGED = pa.schema(
    {
        "run_id": pa.int64(),
        "step": pa.string(),
        "source": pa.int32(),
        "target": pa.int32(),
        "number": pa.int32(),
        "data": pa.binary(),
    }
)


def _threaded(batches: Iterable[pa.RecordBatch], errors: list[Exception]) -> Iterator[Any]:
    """Yield batches from another thread: Delta cannot read in a thread that writes.

    `errors` receives the original error, because Delta replaces it.
    """
    rest = iter(batches)
    with ThreadPoolExecutor(1) as thread:
        try:
            while (batch := thread.submit(next, rest, None).result()) is not None:
                yield batch
        except Exception as error:
            errors.append(error)
            raise


def added_in(run_id: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the column of the run to rows for a log."""
    field = pa.field(ADDED_IN, pa.int64())
    for batch in batches:
        yield batch.append_column(field, pa.array([run_id] * batch.num_rows, pa.int64()))


def _missing_columns(name: str, table: DeltaTable) -> list[Field]:
    names = {field.name for field in table.schema().fields}
    wanted = Schema.from_arrow(schema_of(name)).fields
    return [field for field in wanted if field.name not in names]


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

    def versions(self) -> Versions:
        """Return the newest version of each table."""
        return {name: self.table(name).version() for name in (*TABLES, "staged")}

    def batches(
        self, name: str, version: int | None, where: str, columns: Sequence[str] = ()
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

    def rows(
        self, name: str, version: int | None, where: str, columns: Sequence[str] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Read rows as tuples; same arguments as `batches`."""
        for batch in self.batches(name, version, where, columns):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def count(self, name: str, versions: Versions) -> int:
        """Count a table's rows."""
        return self.table(name, versions[name]).count() if name in versions else 0

    def write(
        self, name: str, where: str, batches: Iterable[pa.RecordBatch], commit: Commit
    ) -> bool:
        """Replace the rows that match a condition, once; return whether this call wrote them.

        Raises:
            WriteConflict: another run's worker has written there since the base version.
        """
        table = self.open(name, commit.base.get(name))
        # Checks all commits up to `table`'s version, as Delta refuses conflicts with later ones.
        if self.table(name).transaction_version(commit.name) is not None:
            return False
        errors: list[Exception] = []
        made = _threaded(batches, errors)
        try:
            write_deltalake(
                table,
                pa.RecordBatchReader.from_batches(pa.schema(table.schema()), made),
                mode="overwrite",
                predicate=where,
                writer_properties=_STAGED_WRITER if name == "staged" else _WRITER,
                commit_properties=commit.properties(),
            )
        except CommitFailedError as error:
            if self.table(name).transaction_version(commit.name) is not None:
                return False  # another worker finished the same task
            raise WriteConflict(f"{name}, {commit.name}: {error}") from error
        except DeltaError:
            if errors:
                raise errors[0] from None
            raise
        return True

    def replace(self, name: str, batches: Iterable[pa.RecordBatch], commit: Commit) -> bool:
        """Replace a bucket's rows once."""
        return self.write(name, f"{BUCKET} = {commit.bucket}", batches, commit)

    def append(self, name: str, batches: Iterable[pa.RecordBatch], commit: Commit) -> bool:
        """Add a run's rows of a bucket to a log once."""
        where = f"{BUCKET} = {commit.bucket} AND {ADDED_IN} = {commit.run_id}"
        return self.write(name, where, added_in(commit.run_id, batches), commit)

    def sync_to_disk(self, since: Versions, until: Versions) -> None:
        """Wait until table versions newer than `since` are on disk."""
        if is_folder(self.root):
            for name, version in until.items():
                if version > since.get(name, -1):
                    sync_table(Path(self.root, name), since.get(name, -1), version)

    # Staged rows --------------------------------------------------------------------------------

    def stage(self, rows: Iterable[tuple[int, int, bytes]], commit: Commit) -> bool:
        """Stage packed values for buckets, once. Each row has a target, a number and a value."""

        def batches() -> Iterator[pa.RecordBatch]:
            rest = iter(rows)
            while some := list(islice(rest, _STAGED_AT_ONCE)):
                targets, numbers, data = zip(*some, strict=True)
                same = (commit.run_id, commit.step, commit.bucket)
                columns = [*([x] * len(some) for x in same), targets, numbers, data]
                arrays = [pa.array(x, of.type) for x, of in zip(columns, STAGED, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=STAGED)

        where = f"run_id = {commit.run_id} AND step = '{commit.step}' AND source = {commit.bucket}"
        return self.write("staged", where, batches(), commit)

    def staged(self, run_id: int, step: str, **where_else: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield a step's staged rows (source, number, value) in any order, filtered by columns."""
        more = "".join(f" AND {name} = {value}" for name, value in where_else.items())
        where = f"run_id = {run_id} AND step = '{step}'{more}"
        return self.rows("staged", None, where, ("source", "number", "data"))

    def has_staged(self, commit: Commit) -> bool:
        """Tell whether a bucket has finished a step."""
        return self.table("staged").transaction_version(commit.name) is not None

    def newest_staged(self) -> int:
        """Return the newest run with staged rows, or 0."""
        try:
            commits = self.open("staged").history(_COMMITS_SEARCHED)
        except TableNotFoundError:
            return 0
        return max(int(str(x.get(_MADE_BY, "0")).split("/")[0]) for x in commits)

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
                # Not the newest version: a late worker may have written since.
                restored = table.version()
                if not (missing := _missing_columns(name, table)):
                    return restored
                table.alter.add_columns(missing)
            except CommitFailedError:
                continue  # a late worker has written; restore again
            if table.version() == restored + 1:
                return restored + 1

    def written_only_by(self, run_id: int, attempt: int, name: str, base: int, until: int) -> bool:
        """Tell whether one attempt of a run made all commits between two versions."""
        if base == until:
            return True
        # Newest first; Delta also returns commits after `until`.
        commits = self.table(name, until).history(until - base)[base - until :]
        made_by = [str(commit.get(_MADE_BY, "")).split("/") for commit in commits]
        return len(commits) == until - base and all(
            (by[0], by[-1]) == (str(run_id), str(attempt)) for by in made_by
        )

    def optimize(self, name: str, commit: Commit) -> int:
        """Merge each bucket's small files; return the resulting version."""
        table = self.open(name)
        with suppress(CommitFailedError):  # another writer committed first
            table.optimize.compact(
                max_concurrent_tasks=1,
                writer_properties=_WRITER,
                commit_properties=commit.properties(),
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

    def files(self, name: str, version: int | None) -> dict[str, int]:
        """Return the files of a table at a version, with their sizes in bytes."""
        files = self.table(name, version).get_add_actions(flatten=True)
        paths, sizes = (files.column(x).to_pylist() for x in ("path", "size_bytes"))
        return {f"{name}/{path}": size for path, size in zip(paths, sizes, strict=True)}

    def drop_staged(self, until: int) -> None:
        """Delete the staged rows of runs up to `until`."""
        with suppress(CommitFailedError):  # a late worker has written; a later run repeats this
            self.open("staged").delete(f"run_id <= {until}")
