"""Export of the public tables and views, one file each or one workbook, at one moment."""

from __future__ import annotations

import hashlib
import sqlite3
import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from nftsync.columnar.balances import read_balance_frame
from nftsync.columnar.columns import rows_of
from nftsync.columnar.holdings import read_holdings, why_nothing
from nftsync.columnar.source import reading as reading_columns
from nftsync.columnar.tokens import read_token_frame
from nftsync.errors import NftsyncWarning
from nftsync.export.formats import Rows, write_csv, write_rows
from nftsync.export.workbook import Sheet, check_fits, workbook
from nftsync.store.catalog import TABLES, ColumnKind, columns_of
from nftsync.store.filters import Filters
from nftsync.store.history import known_time
from nftsync.store.schema import reading
from nftsync.terminal import progress_bar
from nftsync.text import counted
from nftsync.times import now
from nftsync.version import __version__
from nftsync.whole_files import create_private, whole_directory

ExportFormat: TypeAlias = Literal["parquet", "csv", "xlsx"]

#: Rows of a chunk. Bodies may be large (a webhook's up to 256 KiB), and a chunk is in memory.
_CHUNK = 50_000
_CHUNK_OF_BODIES = 500


class ExportedFile(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One table of an export.

    Attributes:
        name: of the file.
        rows: how many it has.
        columns: their names, in order.
        kinds: what each of them holds (`nftsync.store.catalog.ColumnKind`), which CSV cannot say.
        sha256: of its bytes.
        sheet: which sheet of the file, if that is a workbook.
    """

    name: str
    rows: int
    columns: list[str]
    kinds: list[ColumnKind]
    sha256: str
    sheet: str | None = None


class Manifest(msgspec.Struct, kw_only=True):
    """What `manifest.json` of an export says.

    Attributes:
        nftsync: the version that wrote it.
        exported_at: the moment that all files show.
        as_of: the time of which they show what was known; None: of the moment itself.
        database: the name of the database's file.
        format: of the files.
        files: an entry for each table and view.
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
    chunk_rows: int = _CHUNK,
) -> Manifest:
    """Write each public table and view to a file or sheet, and a manifest; or nothing at all.

    Args:
        database: what to export.
        directory: where to; it must not exist yet, or be empty.
        file_format: of the files.
        as_of: a time in the stored form: balances, holdings and tokens as they were known then,
            logs up to it; wallets are today's, and so is how often a state that began by then was
            read.
        progress: show a progress bar; None shows it on a terminal.
        chunk_rows: rows that are in memory at once.

    Raises:
        InputError: `directory` is there and not empty, or no directory; the time is still to come;
            or a table has more rows than an Excel sheet.
        StoreError: the database cannot be read, or the files cannot be written.
    """
    with reading(database) as connection, whole_directory(directory.resolve()) as partial:
        as_of = None if as_of is None else known_time(connection, as_of)
        manifest = Manifest(
            nftsync=__version__,
            exported_at=now(),
            as_of=as_of,
            database=database.name,
            format=file_format,
            files=[],
        )
        counts = {name: _count(connection, name, as_of) for name in TABLES}
        if file_format == "xlsx" and as_of is None:
            for name, count in counts.items():
                check_fits(name, count)
        total = sum(counts.values())
        with closing(progress_bar("Exporting", total, unit="rows", shown=progress)) as bar:
            tables = (
                (
                    name,
                    _kinds(name, as_of),
                    _Counted(_rows(connection, name, as_of, chunk_rows), bar),
                )
                for name in TABLES
            )
            if file_format == "xlsx":
                manifest.files += _written_workbook(partial / _WORKBOOK, tables, manifest)
            else:
                for name, kinds, rows in tables:
                    path = partial / f"{name}.{file_format}"
                    manifest.files.append(_written(path, kinds, rows))
        create_private(partial / "manifest.json")
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        (partial / "manifest.json").write_bytes(text)
    return manifest


def _count(connection: sqlite3.Connection, name: str, as_of: str | None) -> int:
    """How many rows there are, for a progress bar: as of a time it may be somewhat fewer."""
    parameters = () if as_of is None or TABLES[name].since is None else (as_of,)
    query = TABLES[name].select_count(until=as_of is not None)
    return int(connection.execute(query, parameters).fetchone()[0])


def _rows(
    connection: sqlite3.Connection, name: str, as_of: str | None, chunk: int
) -> Iterator[Rows]:
    """The rows of a table, as it is or as of a time."""
    table = TABLES[name]
    if as_of is not None and name in {"tokens", "balances", "holdings"}:
        with reading_columns(connection) as source:
            if name == "tokens":
                frame = read_token_frame(source, as_of)
            elif name == "balances":
                frame = read_balance_frame(source, as_of)
            else:
                frame = read_holdings(source, as_of=as_of)
                unknown = why_nothing(source, Filters(), as_of) if frame.empty else None
                if unknown is not None:
                    warnings.warn(unknown, NftsyncWarning, stacklevel=2)
        yield from rows_of(frame, list(columns_of(name, as_of=True)), step=chunk)
        return
    parameters = () if as_of is None or table.since is None else (as_of,)
    cursor = connection.execute(table.select(until=as_of is not None), parameters)
    while rows := cursor.fetchmany(_CHUNK_OF_BODIES if "body" in table.columns else chunk):
        yield rows


def _kinds(name: str, as_of: str | None) -> dict[str, ColumnKind]:
    """What the columns of a table hold."""
    columns = columns_of(name, as_of=as_of is not None)
    return {column: each.kind for column, each in columns.items()}


class _Counted:
    """Rows that count themselves as they are written."""

    def __init__(self, chunks: Iterator[Rows], bar: Any) -> None:
        self.count = 0
        self._chunks = chunks
        self._bar = bar

    def __iter__(self) -> Iterator[Rows]:
        for rows in self._chunks:
            yield rows
            self.count += len(rows)
            self._bar.update(len(rows))


#: A table's name, what its columns hold, and its rows.
_Tables: TypeAlias = Iterable[tuple[str, dict[str, ColumnKind], _Counted]]


def _written(path: Path, kinds: dict[str, ColumnKind], rows: _Counted) -> ExportedFile:
    create_private(path)
    with path.open("wb") as file:
        if path.suffix == ".parquet":
            write_rows(file, kinds, rows)
        else:
            write_csv(file, kinds.items(), rows)
    return _entry(path, kinds, rows.count)


def _entry(
    path: Path, kinds: dict[str, ColumnKind], rows: int, sheet: str | None = None
) -> ExportedFile:
    """What a manifest says of a table that is written."""
    with path.open("rb") as written:
        sha256 = hashlib.file_digest(written, "sha256").hexdigest()
    columns, cells = list(kinds), list(kinds.values())
    return ExportedFile(
        name=path.name, rows=rows, columns=columns, kinds=cells, sha256=sha256, sheet=sheet
    )


_WORKBOOK = "nftsync.xlsx"


def _written_workbook(path: Path, tables: _Tables, manifest: Manifest) -> list[ExportedFile]:
    """Write a sheet a table, behind one that explains their columns."""
    create_private(path)
    sheets: dict[str, Sheet] = {}
    kinds_of: dict[str, dict[str, ColumnKind]] = {}
    with path.open("wb") as file, workbook(file, path.parent) as book:
        about = book.add("about")
        for name, kinds, rows in tables:
            kinds_of[name] = kinds
            sheets[name] = book.write(book.add(name), list(kinds.items()), rows)
        explained = [
            (name, column, *columns_of(name, as_of=manifest.as_of is not None)[column][1:4])
            for name, kinds in kinds_of.items()
            for column in kinds
        ]
        headings = ("sheet", "column", "unit", "meaning", "source")
        columns: list[tuple[str, ColumnKind]] = [(heading, "text") for heading in headings]
        book.write(about, columns, [explained], above=_about(manifest, sheets.values()))
    return [_entry(path, kinds, sheets[name].rows, name) for name, kinds in kinds_of.items()]


def _about(manifest: Manifest, sheets: Iterable[Sheet]) -> list[str]:
    """What stands over the list of columns."""
    known = f", as known at {manifest.as_of}" if manifest.as_of else ""
    cut = [f"{counted(sheet.cut, 'text')} of {sheet.name}" for sheet in sheets if sheet.cut]
    return [
        f"NFT holdings: {manifest.database}{known}",
        f"Written by nftsync {manifest.nftsync}; all sheets show {manifest.exported_at}.",
        "Times are UTC, shown to the second.",
        (
            "Amounts and ids are text, to the last digit: Excel would keep 15 digits of a number. "
            "Where they are short, =SUMPRODUCT(VALUE(range)) adds them."
        ),
        *(
            [f"Longer than a cell may be, and cut: {', '.join(cut)}; Parquet and CSV have all."]
            if cut
            else []
        ),
        "; ".join(f"{sheet.name}: {counted(sheet.rows, 'row')}" for sheet in sheets),
    ]
