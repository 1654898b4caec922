"""The two formats of an export, each a file that takes rows a chunk at a time."""

from __future__ import annotations

import base64
import csv
import io
import re
import string
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from nftsync.errors import StoreError
from nftsync.tables import ColumnKind

__all__ = ["CsvFile", "ParquetFile", "neutralized"]

_AMOUNT_NOTE = {"comment": "exact decimal text as sent; uint256 fits no machine type"}
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

#: What spreadsheets skip before a formula: white space, controls, characters without width.
_SKIPPED = "[\\s\x00-\x20\x7f-\xa0\xad\u200b-\u200f\u2060-\u2064\ufeff]*"
#: What begins a formula, in its full-width and small forms too; a tab or a line break can begin
#: a cell, and so a formula, anew. A quote before it is one that this module may have put there.
_FORMULA = re.compile(f"'*(?:{_SKIPPED}[=+\\-@＝＋－＠﹦﹢﹣﹫]|[\t\r\n])")

#: What most cells begin with; a formula never does. Looked up before the slower expression.
_HARMLESS = frozenset(f"{string.ascii_letters}{string.digits}{{[") | {""}


def neutralized(cell: str) -> str:
    """Put a quote before a cell that a spreadsheet could run as a formula.

    What matches is quoted again where it is quoted already, so that taking one quote off each
    cell that begins with quotes and a formula gives back what was there.
    """
    return f"'{cell}" if _FORMULA.match(cell) else cell


class ParquetFile:
    """A Parquet file with declared types."""

    def __init__(self, file: BinaryIO, columns: Mapping[str, ColumnKind]) -> None:
        self._schema = pa.schema(
            pa.field(name, _TYPES[kind], metadata=_AMOUNT_NOTE if kind == "amount" else None)
            for name, kind in columns.items()
        )
        self._kinds = list(columns.values())
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")

    def write(self, rows: Sequence[tuple[Any, ...]]) -> None:
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

    def abandon(self) -> None:
        """Let go of a file that will not be kept."""
        with suppress(Exception):
            self.close()


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
        self._writer.writerow(columns)
        self._kinds = list(columns.values())

    def write(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Append rows, one at least, as the tables have them."""
        columns = zip(*rows, strict=True)
        cells = [_cells(kind, values) for kind, values in zip(self._kinds, columns, strict=True)]
        self._writer.writerows(zip(*cells, strict=True))

    def close(self) -> None:
        """Write what is left, and leave the file open."""
        self._text.detach()

    def abandon(self) -> None:
        """Let go of a file that will not be kept."""
        with suppress(OSError):
            self.close()


def _cells(kind: ColumnKind, values: tuple[Any, ...]) -> Sequence[Any]:
    if kind == "bytes":
        values = tuple(
            None if value is None else base64.b64encode(value).decode("ascii") for value in values
        )
    elif kind not in {"text", "amount"}:
        return values
    return [v if v is None or v[:1] in _HARMLESS else neutralized(v) for v in values]
