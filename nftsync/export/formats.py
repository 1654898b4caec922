"""Writers of CSV (with formulas neutralized) and Parquet; `workbook` writes Excel."""

from __future__ import annotations

import base64
import csv
import io
import re
import string
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from nftsync.errors import StoreError
from nftsync.store.catalog import ColumnKind
from nftsync.version import __version__

#: Rows of values: times as stored text, durations in seconds, None if missing.
Chunk: TypeAlias = Sequence[tuple[Any, ...]]

#: Kinds that cannot be formulas.
_PLAIN = {"time", "integer"}


def write_csv(
    file: BinaryIO, columns: Collection[tuple[str, ColumnKind]], chunks: Iterable[Chunk]
) -> None:
    """Write rows as CSV (UTF-8, RFC 4180).

    Missing values are empty, flags 0 or 1, and bytes base64. See `neutralized` for formulas.
    """
    headings, kinds = zip(*columns, strict=True) if columns else ((), ())
    out = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(out)
        writer.writerow(map(neutralized, headings))
        for rows in chunks:
            values = zip(kinds, zip(*rows, strict=True), strict=True)
            cells = (column if kind in _PLAIN else map(_cell, column) for kind, column in values)
            writer.writerows(zip(*cells, strict=True))
    finally:
        out.detach()


def _cell(value: Any) -> Any:
    if isinstance(value, bool | np.bool_):
        return int(value)
    if isinstance(value, bytes):
        value = base64.b64encode(value).decode("ascii")
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float) and np.isfinite(value):
        return repr(float(value))
    return neutralized(str(value))


#: Characters that spreadsheets may skip before a formula: white space, controls, characters without
#: width. Tabs and line breaks are excluded, because a cell could begin there.
_SKIPPED = (
    "[\x00-\x08\x0b\x0c\x0e-\x20\x7f-\xa0\xad"
    "\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2069\u3000\ufeff]*"
)
#: Start of a formula, in full-width and small forms too. `neutralized` may have put the quote
#: before it.
_FORMULA = f"'*{_SKIPPED}[=+\\-@＝＋－＠﹦﹢﹣﹫]"
_AT_START = re.compile(f"{_FORMULA}|'*[\t\r\n]")
#: Where semicolons separate cells, as in much of Europe, spreadsheets split even quoted text. A tab
#: or a line break can begin a cell too.
_SEPARATOR = re.compile("[;\t\r\n]")
_WITHIN = re.compile(f"{_SEPARATOR.pattern}(?={_FORMULA})")

#: First characters of most cells, and never of a formula: a quick check before the slow one.
_HARMLESS = frozenset(f"{string.ascii_letters}{string.digits}{{[") | {""}


def neutralized(cell: str) -> str:
    """Put a quote before each place where a spreadsheet could start a formula.

    A formula can start the cell, or follow a semicolon, tab or line break.
    """
    if _SEPARATOR.search(cell):
        cell = _WITHIN.sub(r"\g<0>'", cell)
    return f"'{cell}" if cell[:1] not in _HARMLESS and _AT_START.match(cell) else cell


#: The key in a field's metadata that marks exact integers: amounts as sent, or Python integers.
EXACT = b"nftsync.kind"
_NO_TYPE = b"uint256 fits no machine type"
AMOUNT = {EXACT: b"amount", b"comment": b"exact decimal text as sent; " + _NO_TYPE}
INTEGER = {EXACT: b"integer", b"comment": b"exact integers as decimal text; " + _NO_TYPE}


def write_parquet(file: BinaryIO, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    about = {**(schema.metadata or {}), b"nftsync": __version__.encode()}
    writer = pq.ParquetWriter(file, schema.with_metadata(about), compression="zstd")
    try:
        for table in tables:
            writer.write_table(table)
        writer.close()
    finally:
        writer.is_open = False  # otherwise garbage collection closes it again, and complains


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


def write_rows(file: BinaryIO, columns: Mapping[str, ColumnKind], chunks: Iterable[Chunk]) -> None:
    """Write rows to Parquet with declared types, one row group per chunk."""
    fields = [
        pa.field(name, _TYPES[kind], metadata=AMOUNT if kind == "amount" else None)
        for name, kind in columns.items()
    ]
    schema = pa.schema(fields, {b"pandas": _for_pandas(columns)})

    def table(rows: Chunk) -> pa.Table:
        values = zip(columns.values(), zip(*rows, strict=True), strict=True)
        return pa.Table.from_arrays([_array(*column) for column in values], schema=schema)

    write_parquet(file, schema, map(table, chunks))


def _for_pandas(columns: Mapping[str, ColumnKind]) -> bytes:
    """Return metadata that makes pandas read integers as Int64, not float."""
    integers = {name: "Int64" for name, kind in columns.items() if kind == "integer"}
    empty = pd.DataFrame({name: pd.array([], kind) for name, kind in integers.items()})
    metadata: bytes = pa.Schema.from_pandas(empty, preserve_index=False).metadata[b"pandas"]
    return metadata


def _array(kind: ColumnKind, values: tuple[Any, ...]) -> pa.Array:
    if kind == "time":
        try:
            return pa.array(values, pa.string()).cast(_TIME)
        except pa.ArrowInvalid as error:
            raise StoreError(
                f"the database has a time that nftsync did not write ({error}); restore a backup"
            ) from None
    if kind == "flag":
        return pa.array([None if value is None else value != 0 for value in values], pa.bool_())
    return pa.array(values, _TYPES[kind])
