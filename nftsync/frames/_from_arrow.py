"""An Arrow table as the frame that it was made of, by the notes on its fields."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from nftsync.errors import InputError
from nftsync.field_notes import kind_of, noted
from nftsync.frames._amounts import Amounts
from nftsync.frames._to_arrow import SHAPE

__all__ = ["frame_from"]

_INTEGER = re.compile("-?[0-9]+")


def frame_from(table: pa.Table) -> pd.DataFrame:
    """Turn a table into a frame.

    An amount of an export comes as frames have it: exact, its text beside it, and where its name
    is `amount` an approximation too. What has no note comes as pandas reads it.

    Args:
        table: of a Parquet file, ours or not.

    Raises:
        InputError: a column does not hold what its note says.
    """
    frame = table.to_pandas()
    metadata = table.schema.metadata or {}
    fields = {field.name: field for field in table.schema if kind_of(field.metadata)}
    if fields:
        columns: dict[str, Any] = {}
        for name, column in frame.items():
            field = fields.get(str(name))
            columns |= {name: column} if field is None else _restored(field, column, table)
        attrs, frame = frame.attrs, pd.DataFrame(columns, index=frame.index, copy=False)
        frame.attrs = attrs
    return _shaped(frame, json.loads(metadata[SHAPE])) if SHAPE in metadata else frame


def _shaped(frame: pd.DataFrame, shape: dict[str, Any]) -> pd.DataFrame:
    """Make the index of the columns that are one."""
    if levels := shape["index"]:
        attrs, frame = frame.attrs, frame.set_index([column for column, _ in levels])
        frame.index.names = [name for _, name in levels]
        frame.attrs = attrs
    return frame.rename_axis(columns=shape["columns"])


def _restored(field: pa.Field, column: pd.Series[Any], table: pa.Table) -> dict[str, Any]:
    kind = kind_of(field.metadata)
    try:
        if kind == "amount":
            return _amounts(field.name, table[field.name])
        if kind == "category":
            return {field.name: _category(field, table[field.name])}
        if kind == "time":
            return {field.name: column.dt.as_unit(noted(field.metadata, "unit"))}
        if kind in _OBJECTS:
            return {field.name: _objects(column, _OBJECTS[kind])}
    except (pa.ArrowException, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise InputError(
            f"the column {field.name!r} does not hold what its note says ({kind});"
            " something else than nftsync changed the file"
        ) from error
    return {field.name: column}


def _amounts(name: str, column: pa.ChunkedArray) -> dict[str, Any]:
    amounts = Amounts(column.cast(pa.large_string()).combine_chunks())
    found = {name: amounts.exact(), f"{name}_text": amounts.text()}
    return found | {f"{name}_float": amounts.approximate()} if name == "amount" else found


def _category(field: pa.Field, column: pa.ChunkedArray) -> Any:
    encoded = base64.b64decode(noted(field.metadata, "categories"))
    with pa.ipc.open_stream(encoded) as stream:
        categories = pd.Index(frame_from(stream.read_all())["category"]).rename(None)
    texts = pa.array([str(category) for category in categories], pa.large_string())
    places = pa.compute.index_in(column.cast(pa.large_string()), value_set=texts)
    if places.null_count != column.null_count:
        raise ValueError("a category that its note does not name")
    codes = places.combine_chunks().fill_null(-1).to_numpy()
    ordered = noted(field.metadata, "ordered") == "1"
    return pd.Categorical.from_codes(codes, categories=categories, ordered=ordered)


def _integer(written: Any) -> int:
    if _INTEGER.fullmatch(written) is None:
        raise ValueError("no integer")
    return int(written)


def _same(value: Any) -> Any:
    return value


_OBJECTS: dict[str, Callable[[Any], Any]] = {
    "integer": _integer,
    "decimal": Decimal,
    "text": str,
    "flag": bool,
    "real": float,
    "object": _same,
}


def _objects(column: pd.Series[Any], read: Callable[[Any], Any]) -> Any:
    """An object column; what is missing is None."""
    values = np.empty(len(column), dtype=object)
    missing = column.isna().to_numpy()
    values[:] = [
        None if gone else read(value)
        for value, gone in zip(column.tolist(), missing.tolist(), strict=True)
    ]
    return pd.Series(values, dtype=object)  # stated, or pandas would make text of text
