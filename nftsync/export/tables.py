"""Exports of the public tables and views."""

from __future__ import annotations

import hashlib
import sqlite3
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from nftsync.columnar.balances import read_balance_frame
from nftsync.columnar.columns import rows_of
from nftsync.columnar.holdings import explain_empty, read_holdings
from nftsync.columnar.source import reading as reading_columns
from nftsync.columnar.tokens import read_token_frame
from nftsync.errors import NftsyncWarning
from nftsync.export.formats import Rows, write_csv, write_rows
from nftsync.export.workbook import Sheet, check_fits, workbook
from nftsync.store.catalog import TABLES, ColumnKind, columns_of
from nftsync.store.filters import Filters
from nftsync.store.history import known_time, whole_time
from nftsync.store.schema import reading
from nftsync.terminal import progress_bar
from nftsync.text import counted
from nftsync.times import now
from nftsync.version import __version__
from nftsync.whole_files import create_private, whole_directory

ExportFormat: TypeAlias = Literal["parquet", "csv", "xlsx"]

#: Rows per chunk in memory; fewer for tables with bodies of up to 256 KiB.
CHUNK = 50_000
_CHUNK_OF_BODIES = 500


class ExportedFile(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A table in an export: a file, or a sheet of a workbook.

    `kinds` has the kinds of its columns (`nftsync.store.catalog.ColumnKind`), which CSV lacks.
    """

    name: str
    rows: int
    columns: list[str]
    kinds: list[ColumnKind]
    sha256: str
    sheet: str | None = None


class Manifest(msgspec.Struct, kw_only=True):
    """Content of `manifest.json`; `exported_at` is the time of the data in all files."""

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
) -> Manifest:
    """Write all public tables and views, and a manifest, or nothing.

    Args:
        database: the source.
        directory: missing or empty.
        file_format: `parquet`, `csv` or `xlsx`.
        as_of: a stored time. Balances, holdings and tokens are as known then, and logs end there.
            Wallets and counts of reads are current.

    Raises:
        InputError: `directory` is not empty, `as_of` is in the future, or a table exceeds an Excel
            sheet.
    """
    with reading(database) as connection, whole_directory(directory.resolve()) as partial:
        if as_of is not None:
            as_of = whole_time(connection, known_time(connection, as_of))
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
        written: Counter[str] = Counter()
        with closing(progress_bar("Exporting", sum(counts.values()), unit="rows")) as bar:

            def chunks_of(name: str) -> Iterator[Rows]:
                for rows in _chunks(connection, name, as_of):
                    yield rows
                    written[name] += len(rows)
                    bar.update(len(rows))

            tables = {name: _kinds(name, as_of) for name in TABLES}
            if file_format == "xlsx":
                _write_workbook(partial / _WORKBOOK, tables, chunks_of, manifest)
            else:
                for name, kinds in tables.items():
                    _write_table(partial / f"{name}.{file_format}", kinds, chunks_of(name))
        for name, kinds in tables.items():
            in_workbook = file_format == "xlsx"
            path = partial / (_WORKBOOK if in_workbook else f"{name}.{file_format}")
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            manifest.files.append(
                ExportedFile(
                    name=path.name,
                    rows=written[name],
                    columns=list(kinds),
                    kinds=list(kinds.values()),
                    sha256=sha256,
                    sheet=name if in_workbook else None,
                )
            )
        create_private(partial / "manifest.json")
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        (partial / "manifest.json").write_bytes(text)
    return manifest


def _count(connection: sqlite3.Connection, name: str, as_of: str | None) -> int:
    """Count rows for a progress bar; with `as_of`, sometimes a few too many."""
    parameters = () if as_of is None or TABLES[name].since is None else (as_of,)
    query = TABLES[name].select_count(until=as_of is not None)
    return int(connection.execute(query, parameters).fetchone()[0])


def _chunks(connection: sqlite3.Connection, name: str, as_of: str | None) -> Iterator[Rows]:
    table = TABLES[name]
    if as_of is not None and name in {"tokens", "balances", "holdings"}:
        with reading_columns(connection) as source:
            if name == "tokens":
                frame = read_token_frame(source, as_of)
            elif name == "balances":
                frame = read_balance_frame(source, as_of)
            else:
                frame = read_holdings(source, as_of=as_of)
                unknown = explain_empty(source, Filters(), as_of) if frame.empty else None
                if unknown is not None:
                    warnings.warn(unknown, NftsyncWarning, stacklevel=2)
        yield from rows_of(frame, list(columns_of(name, as_of=True)), step=CHUNK)
        return
    parameters = () if as_of is None or table.since is None else (as_of,)
    cursor = connection.execute(table.select(until=as_of is not None), parameters)
    while rows := cursor.fetchmany(_CHUNK_OF_BODIES if "body" in table.columns else CHUNK):
        yield rows


def _kinds(name: str, as_of: str | None) -> dict[str, ColumnKind]:
    columns = columns_of(name, as_of=as_of is not None)
    return {name: column.kind for name, column in columns.items()}


def _write_table(path: Path, kinds: dict[str, ColumnKind], chunks: Iterator[Rows]) -> None:
    create_private(path)
    with path.open("wb") as file:
        if path.suffix == ".parquet":
            write_rows(file, kinds, chunks)
        else:
            write_csv(file, kinds.items(), chunks)


_WORKBOOK = "nftsync.xlsx"


def _write_workbook(
    path: Path,
    tables: dict[str, dict[str, ColumnKind]],
    chunks_of: Callable[[str], Iterator[Rows]],
    manifest: Manifest,
) -> None:
    create_private(path)
    with path.open("wb") as file, workbook(file, path.parent) as book:
        about = book.add("about")
        sheets = [
            book.write(book.add(name), list(kinds.items()), chunks_of(name))
            for name, kinds in tables.items()
        ]
        explained = [
            (name, column, *columns_of(name, as_of=manifest.as_of is not None)[column][1:4])
            for name, kinds in tables.items()
            for column in kinds
        ]
        headings = ("sheet", "column", "unit", "meaning", "source")
        columns: list[tuple[str, ColumnKind]] = [(heading, "text") for heading in headings]
        book.write(about, columns, [explained], above=_about(manifest, sheets))


def _about(manifest: Manifest, sheets: list[Sheet]) -> list[str]:
    as_of = f", as of {manifest.as_of}" if manifest.as_of else ""
    cut = [f"{counted(sheet.cut, 'text')} of {sheet.name}" for sheet in sheets if sheet.cut]
    cut_note = [f"Cut to fit a cell: {', '.join(cut)}. Parquet and CSV have the full text."]
    return [
        f"NFT holdings: {manifest.database}{as_of}",
        f"Written by nftsync {manifest.nftsync}; all sheets show {manifest.exported_at}.",
        "Times are UTC, shown to the second.",
        (
            "Amounts and ids are text, as Excel keeps only 15 digits of a number. "
            "=SUMPRODUCT(VALUE(range)) adds amounts of up to 15 digits."
        ),
        *(cut_note if cut else []),
        "; ".join(f"{sheet.name}: {counted(sheet.rows, 'row')}" for sheet in sheets),
    ]
