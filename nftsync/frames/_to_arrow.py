"""A frame as an Arrow table that loses nothing: notes say what the types do not."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from nftsync.errors import InputError
from nftsync.field_notes import FieldKind, note
from nftsync.frames._columns import text
from nftsync.version import __version__

__all__ = ["SHAPE", "table_of"]

#: The table's metadata (JSON) in which stands what the columns do not show: which of them are the
#: index, with the levels' names, and the name of the columns' own index.
SHAPE = b"nftsync.shape"

#: What pandas calls the values of an object column, and how they are noted. Others are refused.
_OBJECT_KINDS: dict[str, FieldKind] = {
    "integer": "integer",
    "empty": "integer",  # a column of amounts without one is still text
    "decimal": "decimal",
    "string": "text",
    "boolean": "flag",
    "floating": "real",
    "bytes": "object",
    "date": "object",
}
_UNWRITABLE = (pa.ArrowException, TypeError, ValueError, OverflowError)


def table_of(frame: pd.DataFrame) -> pa.Table:
    """Turn a frame into a table whose types, with their notes, say all that the frame says.

    Raises:
        InputError: a column's name is no text or is there twice, or a column holds what a Parquet
            file has no type for.
    """
    flat, levels = _flattened(frame)
    _check_names(flat)
    columns, notes = {}, {}
    for name, column in flat.items():
        columns[name], notes[name] = _prepared(str(name), column)
    plain = pd.DataFrame(columns, index=flat.index, copy=False)
    plain.columns = flat.columns
    plain.attrs = frame.attrs
    try:
        table = pa.Table.from_pandas(plain, preserve_index=False)
    except _UNWRITABLE as error:
        raise InputError(f"the frame cannot be written: {_one_line(error)}") from error
    fields = [
        field.with_metadata({**(field.metadata or {}), **notes[field.name]})
        for field in table.schema
    ]
    shape = {"index": levels, "columns": _named(frame.columns.name)}
    metadata = {b"nftsync": __version__.encode(), SHAPE: json.dumps(shape).encode()}
    return table.cast(pa.schema(fields, {**table.schema.metadata, **metadata}))


def _flattened(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[list[str | None]]]:
    """Make columns of an index that is more than a count of the rows.

    Returns:
        The frame without that index, and of each of its levels the column and the level's name.
    """
    index, counted = frame.index, pd.RangeIndex(len(frame))
    if isinstance(index, pd.RangeIndex) and index.equals(counted) and index.name is None:
        return frame, []
    names: list[str] = []
    for place, name in enumerate(index.names):
        taken = _named(name) is None or name in frame.columns or name in names
        names.append(f"__index_level_{place}__" if taken else str(name))
    values = {name: index.get_level_values(place) for place, name in enumerate(names)}
    levels = pd.DataFrame(values, index=counted)
    flat = pd.concat([levels, frame.set_axis(counted, axis=0)], axis=1)
    return flat, [[column, name] for column, name in zip(names, index.names, strict=True)]


def _named(name: Any) -> str | None:
    if not isinstance(name, str | None):
        raise InputError(f"the index {name!r} has no text for a name; rename it")
    return name


def _check_names(frame: pd.DataFrame) -> None:
    for name in frame.columns:
        if not isinstance(name, str):
            raise InputError(f"the column {name!r} has no text for a name; rename it")
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise InputError(f"there are two columns {twice!r}; rename one")


def _prepared(name: str, column: pd.Series[Any]) -> tuple[Any, dict[bytes, bytes]]:
    """A column in a form that Arrow keeps, and the note that leads back."""
    dtype: Any = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        raise InputError(f"the column {name!r} is sparse; make it dense first")
    try:
        if isinstance(dtype, pd.CategoricalDtype):
            return _category(name, column)
        if isinstance(dtype, np.dtype) and dtype.kind == "O":
            return _object(name, column)
        if dtype.kind in "mM" and column.dt.unit == "s":
            return column, note("time", unit="s")  # a Parquet file has milliseconds at least
    except _UNWRITABLE as error:
        raise InputError(f"the column {name!r} cannot be written: {_one_line(error)}") from error
    return column, {}


def _object(name: str, column: pd.Series[Any]) -> tuple[Any, dict[bytes, bytes]]:
    found = pd.api.types.infer_dtype(column, skipna=True)
    kind = _OBJECT_KINDS.get(found)
    if kind is None:
        raise InputError(
            f"the column {name!r} holds objects that a Parquet file has no type for ({found});"
            " give them one kind, or make them text"
        )
    values: list[Any] = column.astype(object).where(column.notna(), None).tolist()
    if kind == "integer":
        values = [None if value is None else str(int(value)) for value in values]
    elif kind == "decimal":
        values = [None if value is None else str(value) for value in values]
    if kind in {"integer", "decimal", "text"}:
        return text(pa.array(values, pa.large_string())), note(kind)
    return pd.Series(values, dtype=object, index=column.index), note(kind)


def _category(name: str, column: pd.Series[Any]) -> tuple[Any, dict[bytes, bytes]]:
    """Categories become text; what they are, unused ones too, stands in the note."""
    categories = column.cat.categories
    texts = [str(category) for category in categories]
    if len(set(texts)) < len(texts):
        raise InputError(f"two categories of the column {name!r} look the same; rename one")
    inner = table_of(pd.DataFrame({"category": categories}))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, inner.schema) as stream:
        stream.write_table(inner)
    codes = column.cat.codes.to_numpy().astype("int64")
    codes[codes < 0] = len(texts)
    written = text(pa.array([*texts, None], pa.large_string()).take(pa.array(codes)))
    encoded = base64.b64encode(sink.getvalue()).decode()
    return written, note("category", categories=encoded, ordered=str(int(column.cat.ordered)))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
