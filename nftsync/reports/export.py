"""Exports of the public tables and views; a workbook also has a statement and the transfers."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import pandas as pd

from nftsync import frames
from nftsync.columnar.balances import read_balance_frame
from nftsync.columnar.columns import rows_of
from nftsync.errors import InputError
from nftsync.export.formats import Chunk, write_csv, write_rows
from nftsync.export.frame_files import chunks_of, kinds_of
from nftsync.export.workbook import Sheet, check_fits, workbook
from nftsync.store.catalog import TABLES, Column, ColumnKind, columns_of
from nftsync.store.history import history_begin, known_time, whole_time
from nftsync.store.schema import reading
from nftsync.terminal import progress_bar
from nftsync.text import counted
from nftsync.times import now, utc_times
from nftsync.version import __version__
from nftsync.whole_files import create_private, whole_directory, whole_file

ExportFormat: TypeAlias = Literal["parquet", "csv", "xlsx"]

#: Rows per chunk in memory; fewer for tables with bodies of up to 256 KiB.
CHUNK = 50_000
_CHUNK_OF_BODIES = 500
#: Tables that can be read as of a time.
_AS_OF: dict[str, Callable[..., pd.DataFrame]] = {
    "tokens": frames.tokens,
    "balances": read_balance_frame,
    "holdings": partial(frames.holdings, hidden=True),
}


class ExportedFile(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A table in an export: a file, or a sheet of a workbook. CSV lacks the `kinds` of columns."""

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


class _Table(NamedTuple):
    """Content of a file, or of a sheet below the lines `above`."""

    columns: Mapping[str, Column]
    rows: Iterable[Chunk]
    above: Sequence[str] = ()

    def kinds(self) -> dict[str, ColumnKind]:
        return {name: column.kind for name, column in self.columns.items()}


def write_export(
    database: Path,
    target: Path,
    *,
    file_format: ExportFormat | None = None,
    as_of: str | None = None,
) -> Manifest:
    """Write all public tables and views, and a manifest, or nothing.

    `target` is a missing or empty directory, or `FILE.xlsx` to write or replace (no manifest).
    At a stored time `as_of`, balances, holdings and tokens are as known then, and logs end there;
    wallets and counts of reads are current.
    """
    is_file = target.suffix.lower() == ".xlsx"
    file_format = file_format or ("xlsx" if is_file else "parquet")
    if is_file and file_format != "xlsx":
        raise InputError(f"{target} is the name of a workbook; name a directory for {file_format}")
    path = target.resolve()
    whole = whole_file(path, replace=True) if is_file else whole_directory(path)
    with reading(database) as connection, whole as partial:
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
        in_workbook = file_format == "xlsx"
        if in_workbook and as_of is None:
            for name, count in counts.items():
                check_fits(name, count)
        rows_of_table: Counter[str] = Counter()
        with progress_bar("Exporting", sum(counts.values()), unit="rows") as bar:

            def followed(name: str, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
                for rows in chunks:
                    yield rows
                    rows_of_table[name] += len(rows)
                    if name in counts:
                        bar.update(len(rows))

            tables = _sheets(connection, manifest) if in_workbook else {}
            for name in TABLES:
                columns = columns_of(name, as_of=as_of is not None)
                tables.setdefault(name, _Table(columns, _chunks(connection, name, as_of)))
            for name, table in tables.items():
                tables[name] = table._replace(rows=followed(name, table.rows))
            if in_workbook:
                book = partial if is_file else partial / _WORKBOOK
                _write_workbook(book, tables, manifest)
                paths = dict.fromkeys(tables, book)
            else:
                paths = {name: partial / f"{name}.{file_format}" for name in tables}
                for name, path in paths.items():
                    _write_table(path, tables[name])
        manifest.files += _files_of(tables, paths, rows_of_table, in_workbook=in_workbook)
        if not is_file:
            create_private(partial / "manifest.json")
            text = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
            (partial / "manifest.json").write_bytes(text)
    return manifest


def _files_of(
    tables: Mapping[str, _Table],
    paths: Mapping[str, Path],
    rows: Counter[str],
    *,
    in_workbook: bool,
) -> list[ExportedFile]:
    digests = {path: _sha256(path) for path in {*paths.values()}}
    return [
        ExportedFile(
            name=paths[name].name,
            rows=rows[name],
            columns=list(table.columns),
            kinds=list(table.kinds().values()),
            sha256=digests[paths[name]],
            sheet=name if in_workbook else None,
        )
        for name, table in tables.items()
    ]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _count(connection: sqlite3.Connection, name: str, as_of: str | None) -> int:
    # For a progress bar; with `as_of`, sometimes a few too many.
    query = TABLES[name].select_count(until=as_of is not None)
    return int(connection.execute(query, _until(name, as_of)).fetchone()[0])


def _until(name: str, as_of: str | None) -> tuple[str, ...]:
    return () if as_of is None or TABLES[name].since is None else (as_of,)


def _chunks(connection: sqlite3.Connection, name: str, as_of: str | None) -> Iterator[Chunk]:
    if as_of is not None and name in _AS_OF:
        frame = _AS_OF[name](connection, as_of=as_of)
        yield from rows_of(frame, list(columns_of(name, as_of=True)), step=CHUNK)
        return
    query = TABLES[name].select(until=as_of is not None)
    cursor = connection.execute(query, _until(name, as_of))
    while rows := cursor.fetchmany(_CHUNK_OF_BODIES if "body" in TABLES[name].columns else CHUNK):
        yield rows


def _write_table(path: Path, table: _Table) -> None:
    create_private(path)
    with path.open("wb") as file:
        if path.suffix == ".parquet":
            write_rows(file, table.kinds(), table.rows)
        else:
            write_csv(file, table.kinds().items(), table.rows)


# The workbook ------------------------------------------------------------------------------------

_WORKBOOK = "nftsync.xlsx"
#: Columns that come first in a sheet from a frame: names before ids.
_FIRST = {
    "holdings": ("nft", "wallet", "wallet_group", "collection", "amount", "held_since"),
    "transfers": (
        *("observed_at", "nft", "from_wallet", "to_wallet", "from_group", "to_group"),
        *("collection", "amount", "kind"),
    ),
}
#: Lines above the statement, and above the transfers.
_STATEMENT = (
    "opening + initial + received - sent = closing, in holdings, and in amounts.",
    "A row `hidden`, if any, has the hidden tokens. All other sheets include them.",
)
_TRANSFERS = (
    "A side is empty if it is unknown or ambiguous.",
    "Changes to or from an amount that is not a whole number are only in balance_changes.",
)
#: Characters in a line above a table.
_LINE = 120


def _sheets(connection: sqlite3.Connection, manifest: Manifest) -> dict[str, _Table]:
    as_of, end = manifest.as_of, manifest.as_of or manifest.exported_at
    holdings = frames.holdings(connection, as_of=as_of, hidden=True)
    holdings["amount"] = holdings.pop("amount_text")
    holdings = holdings.drop(columns="amount_float")
    as_sent = columns_of("holdings", as_of=as_of is not None)
    sheets = {"holdings": _of_frame("holdings", holdings, columns=as_sent)}
    start = history_begin(connection)
    if start is not None and start <= end:
        wallets = frames.wallets(connection)
        by = "wallet_group" if wallets["wallet_group"].nunique() else "collection"
        statement = frames.statement(connection, start, as_of, by).fillna({by: "none"})
        transfers = frames.transfers(connection, start, as_of, hidden=True)
        first = utc_times(statement.attrs["start"])
        span = f"From {first} to {utc_times(end)}. The history begins at the end of the first sync."
        sheets["statement"] = _of_frame("statement", statement, span, *_STATEMENT)
        sheets["transfers"] = _of_frame("transfers", transfers, span, *_TRANSFERS)
    return sheets


def _of_frame(
    name: str, frame: pd.DataFrame, *lines: str, columns: Mapping[str, Column] | None = None
) -> _Table:
    # `columns` has those that differ from the frame's notes.
    first = _FIRST.get(name, ())
    frame = frame[[*first, *(column for column in frame if column not in first)]]
    explained = _explained("holdings") | _explained(name)
    noted = {column: explained[column]._replace(kind=kind) for column, kind in kinds_of(frame)}
    above = [name.capitalize(), *lines] if lines else []
    return _Table(noted | dict(columns or {}), chunks_of(frame), above)


def _explained(frame: str) -> dict[str, Column]:
    notes = frames.explain(frame)[["column", "unit", "meaning", "source"]]
    return {name: Column("text", *note) for name, *note in notes.itertuples(index=False)}


def _write_workbook(path: Path, tables: Mapping[str, _Table], manifest: Manifest) -> None:
    path.touch(mode=0o600)
    with path.open("wb") as file, workbook(file, path.parent) as book:
        names = list(tables)
        added = {name: book.add(name) for name in (*names[:3], "about", *names[3:])}
        sheets = [
            book.write(
                added[name],
                list(table.kinds().items()),
                table.rows,
                above=table.above,
                total=name == "statement",
            )
            for name, table in tables.items()
        ]
        explained = [
            (name, column, note.unit, note.source, note.meaning)
            for name, table in tables.items()
            for column, note in table.columns.items()
        ]
        headings = ("sheet", "column", "unit", "source", "meaning")
        columns: list[tuple[str, ColumnKind]] = [(heading, "text") for heading in headings]
        book.write(added["about"], columns, [explained], above=_about(manifest, sheets))


def _about(manifest: Manifest, sheets: Sequence[Sheet]) -> list[str]:
    as_of = f", as of {utc_times(manifest.as_of)}" if manifest.as_of else ""
    cut = [f"{counted(sheet.cut, 'text')} of {sheet.name}" for sheet in sheets if sheet.cut]
    cut_note = [f"Cut to fit a cell: {', '.join(cut)}. Parquet and CSV have the full text."]
    at = utc_times(manifest.exported_at)
    rows = "; ".join(f"{sheet.name}: {counted(sheet.rows, 'row')}" for sheet in sheets)
    return [
        f"NFT holdings: {manifest.database}{as_of}",
        f"Written by nftsync {manifest.nftsync}; all sheets show {at}. Times are UTC.",
        "Numbers of more than 15 digits are text in shaded cells, which SUM leaves out.",
        "Printed pages show the first columns, as many as fit.",
        *(cut_note if cut else []),
        *wrap(rows, _LINE),
    ]
