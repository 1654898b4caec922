"""The whole database as files: each public table and view as Parquet or CSV, all of one moment."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import msgspec

from nftsync import __version__
from nftsync.errors import InputError, StoreError
from nftsync.reports.export_files import CsvFile, ParquetFile
from nftsync.store.catalog import TABLES, ColumnKind, columns_of
from nftsync.store.schema import reading
from nftsync.terminal import progress_bar
from nftsync.times import now

__all__ = [
    "ExportFormat",
    "ExportedFile",
    "Manifest",
    "Rows",
    "count_rows",
    "read_rows",
    "write_export",
]


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
    from nftsync.frames._files import rows_of

    if name == "tokens":
        frame = frames.tokens(connection, as_of=as_of)
    else:
        frame = frames.holdings(connection, as_of=as_of)
    return rows_of(frame, list(columns_of(name, as_of=True)), step=_CHUNK)


ExportFormat: TypeAlias = Literal["parquet", "csv"]

_WRITERS: dict[ExportFormat, Callable[[BinaryIO, dict[str, ColumnKind]], Any]] = {
    "parquet": ParquetFile,
    "csv": CsvFile,
}


class ExportedFile(msgspec.Struct, kw_only=True):
    """One file of an export.

    Attributes:
        name: of the file.
        rows: how many it has.
        columns: their names, in order.
        kinds: what each of them holds (`nftsync.store.catalog.ColumnKind`), which CSV cannot say.
        sha256: of its bytes.
    """

    name: str
    rows: int
    columns: list[str]
    kinds: list[ColumnKind]
    sha256: str


class Manifest(msgspec.Struct, kw_only=True):
    """What `manifest.json` of an export says.

    Attributes:
        nftsync: the version that wrote it.
        exported_at: the moment that all files show.
        as_of: the time of which they show what was known; None: of the moment itself.
        database: the name of the database's file.
        format: of the files.
        files: one for each table and view.
    """

    nftsync: str
    exported_at: str
    as_of: str | None
    database: str
    format: ExportFormat
    files: list[ExportedFile]


def write_export(
    database: Path,
    directory: Path,
    *,
    file_format: ExportFormat = "parquet",
    as_of: str | None = None,
    progress: bool | None = None,
) -> Manifest:
    """Write each public table and view to a file, and a manifest; or nothing at all.

    Args:
        database: what to export.
        directory: where to; it must not exist yet, or be empty.
        file_format: of the files.
        as_of: a time in the stored form: balances, holdings and tokens as they were known then,
            logs up to it; wallets are today's, and so is how often a state that began by then was
            read.
        progress: show a progress bar; None shows it on a terminal.

    Raises:
        InputError: `directory` is there and not empty, or no directory.
        StoreError: the database cannot be read, or the files cannot be written.
    """
    directory = directory.resolve()
    _refuse_in_use(directory)
    with reading(database) as connection, _written(directory) as partial:
        manifest = Manifest(
            nftsync=__version__,
            exported_at=now(),
            as_of=as_of,
            database=database.name,
            format=file_format,
            files=[],
        )
        total = sum(count_rows(connection, name, as_of) for name in TABLES)
        bar = progress_bar("Exporting", total, unit="rows", shown=progress)
        try:
            for name in TABLES:
                path = partial / f"{name}.{file_format}"
                columns = {
                    column: each.kind
                    for column, each in columns_of(name, as_of=as_of is not None).items()
                }
                rows = _counted(read_rows(connection, name, as_of), bar.update)
                manifest.files.append(_write(path, columns, rows, _WRITERS[file_format]))
        finally:
            bar.close()
        with _private(partial / "manifest.json") as file:
            file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    return manifest


def _write(
    path: Path,
    columns: dict[str, ColumnKind],
    rows: Rows,
    writer_of: Callable[[BinaryIO, dict[str, ColumnKind]], Any],
) -> ExportedFile:
    count = 0
    with _private(path) as file:
        writer = writer_of(file, columns)
        try:
            for chunk in rows:
                writer.write(chunk)
                count += len(chunk)
            writer.close()
        except BaseException:
            writer.abandon()
            raise
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ExportedFile(
        name=path.name,
        rows=count,
        columns=list(columns),
        kinds=list(columns.values()),
        sha256=digest,
    )


def _counted(rows: Rows, tell: Callable[[int], object]) -> Rows:
    for chunk in rows:
        yield chunk
        tell(len(chunk))


@contextmanager
def _private(path: Path) -> Iterator[BinaryIO]:
    """Create a file that only its owner may read."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        yield file


@contextmanager
def _written(directory: Path) -> Iterator[Path]:
    """A directory beside that one, which takes its place once the block is through.

    Raises:
        InputError: something came to its place meanwhile.
        StoreError: what was to be written could not be.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(".partial", f".{directory.name}.", directory.parent))
        try:
            yield partial
            partial.rename(directory)  # over an empty directory, but over nothing else
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
            _refuse_in_use(directory)
        hint = ""
        if error.errno == errno.EBUSY:
            hint = "; a mount point cannot be replaced, so name a new directory in it"
        raise StoreError(
            f"cannot write {directory}: {error.strerror or error}{hint}; nothing was exported"
        ) from error


def _refuse_in_use(directory: Path) -> None:
    """Refuse what an export would have to write over, or pull away under someone's feet."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise InputError(f"{directory} is there and is no directory; name a new one")
    if directory == Path.cwd():
        raise InputError("the working directory cannot be exported to; name a new one in it")
    if any(directory.iterdir()):
        raise InputError(
            f"{directory} is not empty; name a new directory, so that no other export's files"
            " are mixed with this one's"
        )
