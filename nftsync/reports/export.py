"""The whole database as files: each public table and view as Parquet or CSV, all of one moment."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from nftsync import __version__
from nftsync.errors import StoreError
from nftsync.frames._files import note
from nftsync.store.catalog import TABLES, ColumnKind, columns_of
from nftsync.store.schema import reading
from nftsync.text import neutralized, progress_bar
from nftsync.times import now
from nftsync.whole_files import create_private, whole_directory

__all__ = ["CsvFile", "ExportFormat", "ExportedFile", "Manifest", "ParquetFile", "write_export"]

ExportFormat: TypeAlias = Literal["parquet", "csv"]

#: Rows, each a tuple of the values of its table's columns.
Rows: TypeAlias = Sequence[tuple[Any, ...]]

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
    chunk_rows: int = _CHUNK,
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
        chunk_rows: rows that are in memory at once.

    Raises:
        InputError: `directory` is there and not empty, or no directory.
        StoreError: the database cannot be read, or the files cannot be written.
    """
    with reading(database) as connection, whole_directory(directory.resolve()) as partial:
        manifest = Manifest(
            nftsync=__version__,
            exported_at=now(),
            as_of=as_of,
            database=database.name,
            format=file_format,
            files=[],
        )
        total = sum(_count(connection, name, as_of) for name in TABLES)
        with closing(progress_bar("Exporting", total, unit="rows", shown=progress)) as bar:
            for name in TABLES:
                rows = _rows(connection, name, as_of, chunk_rows)
                columns = columns_of(name, as_of=as_of is not None)
                kinds = {column: each.kind for column, each in columns.items()}
                path = partial / f"{name}.{file_format}"
                manifest.files.append(_written(path, kinds, rows, bar))
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
    if as_of is not None and name in {"tokens", "holdings"}:
        from nftsync import frames  # pandas is slow to import
        from nftsync.frames._files import rows_of

        read = frames.tokens if name == "tokens" else frames.holdings
        yield from rows_of(
            read(connection, as_of=as_of), list(columns_of(name, as_of=True)), step=chunk
        )
        return
    parameters = () if as_of is None or table.since is None else (as_of,)
    query = table.select(until=as_of is not None)
    if as_of is not None and name == "balances":
        query, parameters = _BALANCES_AT, (as_of,)
    cursor = connection.execute(query, parameters)
    while rows := cursor.fetchmany(_CHUNK_OF_BODIES if "body" in table.columns else chunk):
        yield rows


def _written(
    path: Path, kinds: dict[str, ColumnKind], rows: Iterator[Rows], bar: Any
) -> ExportedFile:
    create_private(path)
    count = 0
    with path.open("wb") as file:
        writer = (ParquetFile if path.suffix == ".parquet" else CsvFile)(file, kinds)
        try:
            for chunk in rows:
                writer.write(chunk)
                count += len(chunk)
                bar.update(len(chunk))
            writer.close()
        except BaseException:
            with suppress(Exception):  # it will not be kept
                writer.close()
            raise
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ExportedFile(
        name=path.name,
        rows=count,
        columns=list(kinds),
        kinds=list(kinds.values()),
        sha256=digest,
    )


_TIME = pa.timestamp("us", "UTC")
_TYPES: dict[ColumnKind, pa.DataType] = {
    "text": pa.string(),
    "amount": pa.string(),
    "time": _TIME,
    "integer": pa.int64(),
    "flag": pa.bool_(),
    "real": pa.float64(),
    "bytes": pa.binary(),
}


class ParquetFile:
    """A Parquet file with declared types."""

    def __init__(self, file: BinaryIO, columns: Mapping[str, ColumnKind]) -> None:
        self._schema = pa.schema(
            [
                pa.field(name, _TYPES[kind], metadata=note("amount") if kind == "amount" else None)
                for name, kind in columns.items()
            ],
            {b"nftsync": __version__.encode(), b"pandas": _for_pandas(columns)},
        )
        self._kinds = list(columns.values())
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")

    def write(self, rows: Rows) -> None:
        """Append rows, one at least, as the tables have them; they become one row group."""
        columns = zip(*rows, strict=True)
        arrays = [_array(kind, values) for kind, values in zip(self._kinds, columns, strict=True)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        """Write the footer; without it the file is none."""
        try:
            self._writer.close()
        finally:
            self._writer.is_open = False  # or it tries again when it is collected, and complains


def _for_pandas(columns: Mapping[str, ColumnKind]) -> bytes:
    """What makes pandas read integers that may be missing as such, and not as floats."""
    integers = [
        {
            "name": name,
            "field_name": name,
            "pandas_type": "int64",
            "numpy_type": "Int64",
            "metadata": None,
        }
        for name, kind in columns.items()
        if kind == "integer"
    ]
    return json.dumps({"columns": integers, "index_columns": [], "column_indexes": []}).encode()


def _array(kind: ColumnKind, values: tuple[Any, ...]) -> pa.Array:
    if kind == "time":
        try:
            return pa.array(values, pa.string()).cast(_TIME)
        except pa.ArrowInvalid as error:
            raise StoreError(
                f"the database holds a time that nftsync did not write: {error}"
            ) from None
    if kind == "flag":
        return pa.array([None if value is None else value != 0 for value in values], pa.bool_())
    return pa.array(values, _TYPES[kind])


class CsvFile:
    """A CSV file (UTF-8, RFC 4180): missing values are empty, flags 0 or 1, bytes base64."""

    def __init__(self, file: BinaryIO, columns: Mapping[str, ColumnKind]) -> None:
        self._text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        self._writer = csv.writer(self._text)
        self._writer.writerow(map(neutralized, columns))
        self._kinds = list(columns.values())

    def write(self, rows: Rows) -> None:
        """Append rows, one at least, as the tables have them."""
        columns = zip(*rows, strict=True)
        cells = [_cells(kind, values) for kind, values in zip(self._kinds, columns, strict=True)]
        self._writer.writerows(zip(*cells, strict=True))

    def close(self) -> None:
        """Write what is left, and leave the file open."""
        self._text.detach()


def _cells(kind: ColumnKind, values: tuple[Any, ...]) -> Sequence[Any]:
    if kind == "bytes":
        values = tuple(
            None if value is None else base64.b64encode(value).decode("ascii") for value in values
        )
    elif kind not in {"text", "amount"}:
        return values
    return [None if value is None else neutralized(value) for value in values]
