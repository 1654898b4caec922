"""The whole database as files: each public table and view as Parquet or CSV, all of one moment."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import msgspec

from nftsync.errors import InputError, StoreError
from nftsync.export_files import CsvFile, ParquetFile
from nftsync.export_rows import Rows, count_rows, read_rows
from nftsync.progress import progress_bar
from nftsync.tables import TABLES, ColumnKind, columns_of, reading
from nftsync.times import now
from nftsync.version import __version__

__all__ = ["ExportFormat", "ExportedFile", "Manifest", "write_export"]

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
        kinds: what each of them holds (`nftsync.tables.ColumnKind`); a CSV file cannot say it.
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
                columns = columns_of(name, as_of=as_of is not None)
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
