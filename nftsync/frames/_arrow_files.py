"""An Arrow table as the frame that it was made of, by the notes on its fields."""

from __future__ import annotations

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


#: `amount`: as the provider sent it. `time`: of whole seconds, for which Parquet has no type. The
#: others are columns of Python objects, as text or as pandas infers them.
FieldKind: TypeAlias = Literal["amount", "decimal", "integer", "object", "time"]

_KIND = b"nftsync.kind"
_COMMENTS: dict[FieldKind, str] = {
    "amount": "exact decimal text as sent; uint256 fits no machine type",
    "integer": "exact integers as decimal text; uint256 fits no machine type",
    "decimal": "exact decimal numbers as text",
}


def note(kind: FieldKind) -> dict[bytes, bytes]:
    """The metadata of a field that holds this."""
    made = {_KIND: kind.encode()}
    if kind in _COMMENTS:
        made[b"comment"] = _COMMENTS[kind].encode()
    return made


#: The table's metadata (JSON) in which stands what the columns do not show: which of them are the
#: index, with the levels' names, and the name of the columns' own index.
SHAPE = b"nftsync.shape"

#: The metadata of a field (JSON) whose values are categories: the row in which each stands first,
#: in their order, their type, and whether that order means anything.
_CATEGORY = b"nftsync.category"

#: What pandas calls the values of an object column, and how they are noted. Others are refused.
_OBJECT_KINDS: dict[str, FieldKind] = {
    "integer": "integer",
    "empty": "integer",  # a column of amounts without one is still text
    "decimal": "decimal",
    **dict.fromkeys(("string", "boolean", "floating", "bytes", "date"), "object"),
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
            return column, note("time")
    except _UNWRITABLE as error:
        raise InputError(f"the column {name!r} cannot be written: {_one_line(error)}") from error
    return column, {}


def _category(name: str, column: pd.Series[Any]) -> tuple[Any, dict[bytes, bytes]]:
    """The values that the categories stand for; unused ones are not kept."""
    column = column.cat.remove_unused_categories()
    categories, codes = column.cat.categories, column.cat.codes.to_numpy()
    first = np.empty(len(categories), dtype=np.int64)
    first[codes[::-1][codes[::-1] >= 0]] = np.flatnonzero(codes >= 0)[::-1]
    values = pd.Series(pd.array(categories).take(codes, allow_fill=True))
    if categories.dtype == object:
        values = values.astype(object)
    known = {"rows": first.tolist(), "type": str(categories.dtype), "ordered": column.cat.ordered}
    plain, noted = _prepared(name, values)
    return plain, {**noted, _CATEGORY: json.dumps(known).encode()}


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
    if kind != "object" or found == "string":
        return text(pa.array(values, pa.large_string())), note(kind)
    return pd.Series(values, dtype=object, index=column.index), note(kind)


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
    fields = {
        field.name: field
        for field in table.schema
        if field.metadata and not {_KIND, _CATEGORY}.isdisjoint(field.metadata)
    }
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
    kind = field.metadata.get(_KIND, b"").decode(errors="replace")
    try:
        if kind == "amount":
            return _amounts(field.name, table[field.name])
        if kind == "time":
            column = column.dt.as_unit("s")
        if kind in _OBJECTS:
            column = _objects(column, _OBJECTS[kind])
        if _CATEGORY in field.metadata:
            return {field.name: _categorical(column, json.loads(field.metadata[_CATEGORY]))}
    except (
        *(pa.ArrowException, ArithmeticError, AttributeError, IndexError),
        *(KeyError, TypeError, ValueError),
    ) as error:
        raise InputError(
            f"the column {field.name!r} does not hold what its note says ({kind or 'category'});"
            " something else than nftsync changed the file"
        ) from error
    return {field.name: column}


def _amounts(name: str, column: pa.ChunkedArray) -> dict[str, Any]:
    amounts = Amounts(column.cast(pa.large_string()).combine_chunks())
    found = {name: amounts.exact(), f"{name}_text": amounts.text()}
    return found | {f"{name}_float": amounts.approximate()} if name == "amount" else found


def _categorical(column: pd.Series[Any], known: dict[str, Any]) -> Any:
    categories = pd.Index(column.iloc[known["rows"]].astype(known["type"])).rename(None)
    codes = categories.get_indexer(column)
    if ((codes < 0) & column.notna()).any():
        raise ValueError("a category that its note does not name")
    return pd.Categorical.from_codes(codes, categories=categories, ordered=known["ordered"])


def _integer(written: Any) -> int:
    if _INTEGER.fullmatch(written) is None:
        raise ValueError("no integer")
    return int(written)


_OBJECTS: dict[str, Callable[[Any], Any]] = {
    "integer": _integer,
    "decimal": Decimal,
    "object": lambda value: value,
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
