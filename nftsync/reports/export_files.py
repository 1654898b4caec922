"""The two formats of an export, each a file that takes rows a chunk at a time."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from nftsync import __version__
from nftsync.errors import StoreError
from nftsync.frames._arrow_files import note
from nftsync.store.catalog import ColumnKind
from nftsync.text import neutralized

__all__ = ["CsvFile", "ParquetFile"]

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
    return [None if value is None else neutralized(value) for value in values]
