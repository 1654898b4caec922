"""An Arrow table as the frame that it was made of, by the notes on its fields."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from nftsync import __version__
from nftsync.errors import InputError
from nftsync.frames._columns import Amounts, text

__all__ = ["SHAPE", "frame_from", "note", "table_of"]


#: `amount`: as the provider sent it. The others are columns of Python objects: integers of any
#: size, decimals, text, truth values, floats. `category`: text of categories, which stand in
#: `nftsync.categories`.
FieldKind: TypeAlias = Literal[
    "amount", "category", "decimal", "flag", "integer", "object", "real", "text", "time"
]

_KIND = b"nftsync.kind"
_COMMENTS: dict[FieldKind, str] = {
    "amount": "exact decimal text as sent; uint256 fits no machine type",
    "integer": "exact integers as decimal text; uint256 fits no machine type",
    "decimal": "exact decimal numbers as text",
}


def note(kind: FieldKind, **more: str) -> dict[bytes, bytes]:
    """The metadata of a field.

    Args:
        kind: what the column holds.
        more: what else is to be known of it, by name.
    """
    made = {_KIND: kind.encode()}
    if kind in _COMMENTS:
        made[b"comment"] = _COMMENTS[kind].encode()
    return made | {f"nftsync.{name}".encode(): text.encode() for name, text in more.items()}


def kind_of(metadata: dict[bytes, bytes] | None) -> str | None:
    """The kind that a field's metadata notes; None: it notes none."""
    kind = (metadata or {}).get(_KIND)
    return None if kind is None else kind.decode(errors="replace")


def noted(metadata: dict[bytes, bytes], name: str) -> str:
    """What else a field's metadata notes.

    Raises:
        KeyError: nothing of that name.
    """
    return metadata[f"nftsync.{name}".encode()].decode()


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
            return _arrow_category(name, column)
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


def _arrow_category(name: str, column: pd.Series[Any]) -> tuple[Any, dict[bytes, bytes]]:
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
            return {field.name: _pandas_category(field, table[field.name])}
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


def _pandas_category(field: pa.Field, column: pa.ChunkedArray) -> Any:
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
