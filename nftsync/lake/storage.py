"""A lake's Delta tables: created, read at a version, and written so that a repeat counts once.

Every write names what it is (its transaction: the run, the step, the bucket) and begins at a
version that its run agreed on. Delta refuses it where another has written the same rows since; then
either that was the same write, made by another worker, or it is not ours, and nothing was written.
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

#: Which run added a row to a log.
ADDED_IN = "added_in"
#: In what Delta tells of a commit, which write it was.
_MADE_BY = "nftsync"
#: The version of each table by its name.
Versions: TypeAlias = dict[str, int]

_CONFIGURATION = {
    # Old versions are read for as long as a run pins them: `lake compact` lets go of them.
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.checkpointInterval": "10",
    # Else each checkpoint names every file that ever was. No file goes because of it.
    "delta.deletedFileRetentionDuration": "interval 7 days",
    # Else each checkpoint has that of every write ever. A run is not resumed after so long.
    "delta.setTransactionRetentionDuration": "interval 30 days",
}
_WRITER = WriterProperties(compression="ZSTD", max_row_group_size=100_000)
#: Each bucket takes what is for it, and reads past the rest.
_STAGED_WRITER = WriterProperties(compression="ZSTD", max_row_group_size=100)
#: Commits of other buckets that a write may have to look at before its own.
_MOST_COMMITS = 100_000
#: In hours.
_LONGEST_WRITE = 24
_READER = {
    # One after the other, so that few are in memory.
    "datafusion.execution.target_partitions": "1",
    "datafusion.execution.batch_size": "2000",
}
#: How long the first question to an address may take; Delta waits for later ones for minutes.
_FIRST = {"connect_timeout": "5s", "timeout": "10s", "max_retries": "3", "retry_timeout": "10s"}
#: Commits in which the newest run is looked for that handed something over.
_LOOKED_BACK = 10
#: Values that are handed over may be large.
_STAGED_AT_ONCE = 500


class Overtaken(NftsyncError):
    """What a write was to replace has been written by another run's worker."""


class Commit(NamedTuple):
    """What a write is, and where it begins.

    Attributes:
        run_id: the run it belongs to.
        step: the step of the run.
        bucket: the bucket.
        attempt: how often the run has begun its writing anew.
        base: the version of tables that its writes begin at; of others the newest.
    """

    run_id: int
    step: str
    bucket: int
    attempt: int
    base: Versions

    @property
    def name(self) -> str:
        """The id of the transaction."""
        return f"{self.run_id}/{self.step}/{self.bucket}/{self.attempt}"

    def properties(self) -> CommitProperties:
        """What Delta records with it."""
        return CommitProperties(
            max_commit_retries=_MOST_COMMITS,
            app_transactions=[Transaction(self.name, 1, int(time.time() * 1000))],
            custom_metadata={_MADE_BY: self.name},
        )


#: The step of a run by which some buckets hand something to others, packed.
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


def _beside(batches: Iterable[pa.RecordBatch], failed: list[Exception]) -> Iterator[pa.RecordBatch]:
    """Make batches in a thread of their own: in the one that writes them, Delta cannot read.

    What they fail with is kept, as Delta makes another error of it.
    """
    rest = iter(batches)
    with ThreadPoolExecutor(1) as thread:
        try:
            while (batch := thread.submit(next, rest, None).result()) is not None:
                yield batch
        except Exception as error:
            failed.append(error)
            raise


def added_in(run_id: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Name the run that adds rows to a log."""
    field = pa.field(ADDED_IN, pa.int64())
    for batch in batches:
        yield batch.append_column(field, pa.array([run_id] * batch.num_rows, pa.int64()))


def _missing_columns(name: str, table: DeltaTable) -> list[Field]:
    """Return the columns that a table of an earlier nftsync lacks."""
    names = {field.name for field in table.schema().fields}
    wanted = Schema.from_arrow(schema_of(name)).fields
    return [field for field in wanted if field.name not in names]


class Lake:
    """The tables below one address.

    To open one takes many requests of an object store, so what was opened to be read is kept: at a
    version as it is, else brought up to date each time, as others write beside.

    Attributes:
        url: its address, as it was given.
        root: its address, as tables are opened.
    """

    def __init__(self, url: str) -> None:
        """Name a lake; nothing is opened.

        Args:
            url: a folder, or an address that Delta knows (`s3://bucket/folder`), whose credentials
                are in the environment.

        Raises:
            InputError: it names no bucket, or has credentials in it.
        """
        self.url = checked_address(url)
        path = unquote(urlsplit(url).path) if url.startswith("file://") else url
        self.root = url.rstrip("/") if "://" in path else str(Path(path).resolve())
        self._opened: dict[tuple[str, int | None], DeltaTable] = {}
        self._lock = threading.Lock()

    def open(self, name: str, version: int | None = None) -> DeltaTable:
        """Open a table anew, at a version or as it is now."""
        return DeltaTable(f"{self.root}/{name}", version=version)

    def look(self, name: str, version: int | None = None) -> DeltaTable:
        """A table to read from, at a version or as it is now; others use it as well."""
        with self._lock:
            table = self._opened.get((name, version))
            if table is None:
                table = self._opened[name, version] = self.open(name, version)
            elif version is None:
                table.update_incremental()
            return table

    def open_first(self, name: str) -> DeltaTable:
        """Open a table, as the first that is asked for: what cannot be is told in seconds.

        Raises:
            InputError: Delta does not know such addresses.
        """
        try:
            return DeltaTable(f"{self.root}/{name}", storage_options=_FIRST)
        except TableNotFoundError as error:
            if "Unknown scheme" in str(error):
                raise InputError(f"{self.url} is no address of a lake: {ADDRESSES}") from error
            raise

    def create(self, name: str, schema: pa.Schema, partition_by: Sequence[str] = ()) -> DeltaTable:
        """Make a table where it is missing."""
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
        except DeltaError:  # another has just made it
            return self.open(name)

    def versions(self) -> Versions:
        """The newest version of each table."""
        return {name: self.look(name).version() for name in (*TABLES, "staged")}

    def batches(
        self, name: str, version: int | None, where: str, columns: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Read rows of a table, a few at a time, in any order.

        Args:
            name: the table.
            version: of which version of it; None: the newest.
            where: which rows, as a condition in SQL.
            columns: which columns; none named, all in their order.
        """
        table = self.look(name, version)
        schema = pa.schema(table.schema())
        if columns:
            schema = pa.schema([schema.field(column) for column in columns])
        query = f"SELECT {', '.join(schema.names)} FROM rows WHERE {where}"
        found = QueryBuilder(_READER).register("rows", table).execute(query)
        yield from pa.RecordBatchReader.from_stream(found).cast(schema)

    def rows(
        self, name: str, version: int | None, where: str, columns: Sequence[str] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Read rows as tuples; `batches` explains the arguments."""
        for batch in self.batches(name, version, where, columns):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def count(self, name: str, versions: Versions) -> int:
        """How many rows a table has."""
        return self.look(name, versions[name]).count() if name in versions else 0

    def write(
        self, name: str, where: str, batches: Iterable[pa.RecordBatch], commit: Commit
    ) -> bool:
        """Put rows in the place of those that a condition names, once; whether it was now.

        Raises:
            Overtaken: another run's worker has written there since the version to begin at.
        """
        table = self.open(name, commit.base.get(name))
        # Looked up in what is no older: what comes later than both, Delta refuses to write over.
        if self.look(name).transaction_version(commit.name) is not None:
            return False
        failed: list[Exception] = []
        made = _beside(batches, failed)
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
            if self.look(name).transaction_version(commit.name) is not None:
                return False  # another worker was given the same task
            raise Overtaken(f"{name}, {commit.name}: {error}") from error
        except DeltaError:
            if failed:
                raise failed[0] from None
            raise
        return True

    def replace(self, name: str, batches: Iterable[pa.RecordBatch], commit: Commit) -> bool:
        """Put a bucket's rows in the place of those it had; `write` tells the rest."""
        return self.write(name, f"{BUCKET} = {commit.bucket}", batches, commit)

    def append(self, name: str, batches: Iterable[pa.RecordBatch], commit: Commit) -> bool:
        """Add a run's rows of a bucket to a log, once; `write` tells the rest."""
        where = f"{BUCKET} = {commit.bucket} AND {ADDED_IN} = {commit.run_id}"
        return self.write(name, where, added_in(commit.run_id, batches), commit)

    def sync_to_disk(self, since: Versions, until: Versions) -> None:
        """Wait until the disk has the versions of tables that were made since others."""
        if is_folder(self.root):
            for name, version in until.items():
                if version > since.get(name, -1):
                    sync_table(Path(self.root, name), since.get(name, -1), version)

    # What buckets hand each other ---------------------------------------------------------------

    def stage(self, rows: Iterable[tuple[int, int, bytes]], commit: Commit) -> bool:
        """Hand packed values to buckets, once: for each the target, a number and the value."""

        def batches() -> Iterator[pa.RecordBatch]:
            rest = iter(rows)
            while some := list(islice(rest, _STAGED_AT_ONCE)):
                targets, numbers, data = zip(*some, strict=True)
                same = (commit.run_id, commit.step, commit.bucket)
                columns = [*([each] * len(some) for each in same), targets, numbers, data]
                arrays = [pa.array(x, of.type) for x, of in zip(columns, STAGED, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=STAGED)

        where = f"run_id = {commit.run_id} AND step = '{commit.step}' AND source = {commit.bucket}"
        return self.write("staged", where, batches(), commit)

    def staged(self, run_id: int, step: str, **where_else: int) -> Iterator[tuple[int, int, bytes]]:
        """What has been handed over, in any order: the source, the number and the value of each.

        Args:
            run_id: by which run.
            step: in which of its steps.
            where_else: values of other columns of `staged`.
        """
        more = "".join(f" AND {name} = {value}" for name, value in where_else.items())
        where = f"run_id = {run_id} AND step = '{step}'{more}"
        return self.rows("staged", None, where, ("source", "number", "data"))

    def has_staged(self, commit: Commit) -> bool:
        """Whether a bucket has handed over what it had to in a step."""
        return self.look("staged").transaction_version(commit.name) is not None

    def newest_staged(self) -> int:
        """Return the newest run that handed something over, or 0."""
        try:
            commits = self.open("staged").history(_LOOKED_BACK)
        except TableNotFoundError:
            return 0
        return max(int(str(each.get(_MADE_BY, "0")).split("/")[0]) for each in commits)

    # Old versions ------------------------------------------------------------------------------

    def go_back(self, name: str, version: int) -> int:
        """Make a table what it was at a version, with all columns; return its version then."""
        while True:
            newest = self.look(name)
            if newest.version() == version and not _missing_columns(name, newest):
                return version
            table = self.open(name)
            try:
                if table.version() != version:
                    table.restore(version)
                # Not the newest version: whoever has written since then was not asked to.
                restored = table.version()
                if not (missing := _missing_columns(name, table)):
                    return restored
                table.alter.add_columns(missing)
            except CommitFailedError:
                continue  # something has been written meanwhile, which is to go as well
            if table.version() == restored + 1:
                return restored + 1

    def only_by(self, run_id: int, attempt: int, name: str, base: int, until: int) -> bool:
        """Whether all that was written between two versions of a table are writes of an attempt."""
        if base == until:
            return True
        # Newest first, and Delta adds the commits after `until`: the oldest are those asked for.
        commits = self.look(name, until).history(until - base)[base - until :]
        made_by = [str(commit.get(_MADE_BY, "")).split("/") for commit in commits]
        return len(commits) == until - base and all(
            (by[0], by[-1]) == (str(run_id), str(attempt)) for by in made_by
        )

    def optimize(self, name: str, commit: Commit) -> int:
        """Write the many small files of each bucket as few; the version that has them."""
        table = self.open(name)
        with suppress(CommitFailedError):  # another has written meanwhile
            table.optimize.compact(
                max_concurrent_tasks=1,
                writer_properties=_WRITER,
                commit_properties=commit.properties(),
            )
        return table.version()

    def vacuum(self, name: str, keep: Collection[int | None], hours: int = 0) -> None:
        """Remove the files that neither a table has now nor had at some versions.

        Args:
            name: the table.
            keep: the versions.
            hours: files that it had until so long ago are left as well.
        """
        versions = sorted(version for version in keep if version is not None)
        # What was never part of it may be of a write that has not ended.
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
        """The files that a table has at a version, each with its size."""
        files = self.open(name, version).get_add_actions(flatten=True)
        paths, sizes = (files.column(each).to_pylist() for each in ("path", "size_bytes"))
        return {f"{name}/{path}": size for path, size in zip(paths, sizes, strict=True)}

    def drop_staged(self, until: int) -> None:
        """Drop what runs up to one have handed over."""
        with suppress(CommitFailedError):  # a late worker hands something over; next time
            self.open("staged").delete(f"run_id <= {until}")
