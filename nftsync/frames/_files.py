"""Frames in files: Parquet that loses nothing, and CSV that a spreadsheet opens safely."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from nftsync import __version__
from nftsync.errors import InputError, StoreError
from nftsync.frames._columns import Amounts, text, time_texts
from nftsync.text import neutralized
from nftsync.whole_files import whole_file

__all__ = ["load", "note", "rows_of", "save"]


#: Rows that are Python objects at once.
_ROWS_STEP = 10_000

#: Columns of the tables that a frame has under another name: its `amount` is integers.
_IN_FRAME = {"amount": "amount_text"}


def rows_of(
    frame: pd.DataFrame, columns: Sequence[str], *, step: int = _ROWS_STEP
) -> Iterator[list[tuple[Any, ...]]]:
    """Read a frame's rows, some at a time.

    Args:
        frame: a frame of `nftsync.frames`.
        columns: columns of the table that it shows, in the order that is wanted.
        step: how many rows at a time.

    Returns:
        Lists of tuples: text as str, times as text in the stored form, integers as int; None
        where a value is missing.
    """
    for start in range(0, len(frame), step):
        part = frame.iloc[start : start + step]
        values = [_values(part[_IN_FRAME.get(name, name)]) for name in columns]
        yield list(zip(*values, strict=True))


def _values(column: pd.Series[Any]) -> list[Any]:
    if column.dtype.kind == "M":
        return _times(column)
    values: list[Any] = pa.array(column, from_pandas=True).to_pylist()
    return values


def _times(column: pd.Series[Any]) -> list[str | None]:
    if column.dt.tz is None:
        return time_texts(column.to_numpy(dtype="M8[us]"), zone="")
    return time_texts(column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy(dtype="M8[us]"))


def save(frame: pd.DataFrame, path: str | os.PathLike[str]) -> Path:
    """Write a frame to a file, which appears under its name once it is whole.

    A file of that name is replaced. Like an export, the file is its owner's only.

    Parquet loses nothing, and `load` brings back the same: columns of Python integers become text,
    as uint256 fits no machine type, with a note on the field; times, durations, categories
    (but for unused ones), `Int64` and the index keep their kinds. In CSV such integers are digits,
    times have the stored form
    (`2026-01-31T12:00:00.000000Z`; without a time zone, no Z), durations are seconds, truth
    values 0 or 1, bytes base64; what is missing is empty; and text that a spreadsheet would run as
    a formula gets a single quote in front.

    Args:
        frame: one of ours, one derived from it, or any other.
        path: ends in `.parquet` or `.csv`; its folder is made where it is missing.

    Returns:
        The file's absolute path.

    Raises:
        InputError: `path` is none or has another ending, `frame` is no DataFrame, or it holds
            what such a file cannot hold.
        StoreError: the file cannot be written.
    """
    path = _named(
        path, "the frame comes first, then the path: frames.save(frame, 'holdings.parquet')"
    )
    write = {".csv": _write_csv, ".parquet": _write_parquet}.get(path.suffix.lower())
    if write is None:
        raise InputError(f"{path} ends neither in .parquet nor in .csv; name a file that does")
    if not isinstance(frame, pd.DataFrame):
        instead = "`to_frame()` makes one" if isinstance(frame, pd.Series) else "give one first"
        raise InputError(f"a {type(frame).__name__} is no DataFrame; {instead}")
    path = path.resolve()
    with whole_file(path, replace=True) as partial, partial.open("wb") as file:
        write(frame, file)
    return path


def load(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a Parquet file of `save`, of `nftsync export`, or of anyone.

    What `save` wrote comes back the same: exact integers, times, categories, index; what was
    missing in a column of Python objects is None. Amounts of an export come as frames have them:
    `amount` exact, `amount_text` as sent, `amount_float`. Other files come as pandas reads them.

    Args:
        path: ends in `.parquet`.

    Raises:
        InputError: there is no such file, it is no Parquet file, or it does not hold what its
            notes say.
        StoreError: it cannot be read.
    """
    path = _named(path, "give one: frames.load('holdings.parquet')")
    if path.suffix.lower() != ".parquet":
        raise InputError(
            f"{path} does not end in .parquet; other files do not say what their columns hold"
        )
    try:
        with pq.ParquetFile(path) as file:
            return _frame_from(file.read())
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except FileNotFoundError:
        raise InputError(f"there is no file {path.absolute()}") from None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no Parquet file, or a damaged one") from error


def _named(path: object, advice: str) -> Path:
    if isinstance(path, str | os.PathLike):
        name = os.fspath(path)
        if isinstance(name, str):
            return Path(name)
    raise InputError(f"a {type(path).__name__} is no path of a file; {advice}")


def _write_csv(frame: pd.DataFrame, file: BinaryIO) -> None:
    """Write UTF-8 as in RFC 4180, an index that has a name before the columns."""
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index(allow_duplicates=True)
    out = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(out)
        writer.writerow([neutralized(str(name)) for name in frame.columns])
        for start in range(0, len(frame), _ROWS_STEP):
            part = frame.iloc[start : start + _ROWS_STEP]
            cells = [_cells(part.iloc[:, place]) for place in range(part.shape[1])]
            writer.writerows(zip(*cells, strict=True))
    except UnicodeEncodeError as error:
        raise InputError("the frame holds text with half a character (a lone surrogate)") from error
    finally:
        out.detach()


def _cells(column: pd.Series[Any]) -> list[Any]:
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = _uncategorized(column)
    if column.dtype.kind == "M":
        return _times(column)
    if column.dtype.kind == "m":
        column = column.dt.total_seconds()
    missing = column.isna().tolist()
    return [
        None if gone else _cell(value) for value, gone in zip(column.tolist(), missing, strict=True)
    ]


def _cell(value: Any) -> Any:
    if isinstance(value, bool | np.bool_):
        return int(value)
    if isinstance(value, bytes):
        value = base64.b64encode(value).decode("ascii")
    if isinstance(value, int):
        return value
    if isinstance(value, float) and np.isfinite(value):
        return repr(float(value))
    return neutralized(str(value))


def _uncategorized(column: pd.Series[Any]) -> pd.Series[Any]:
    """The values that categories stand for."""
    categories = column.cat.categories
    values = pd.Series(pd.array(categories).take(column.cat.codes.to_numpy(), allow_fill=True))
    return values.astype(object) if categories.dtype == object else values


#: `amount`: as the provider sent it. `time`: of whole seconds, for which Parquet has no type. The
#: others are columns of Python objects: integers as text, or as Arrow has them.
_Kind: TypeAlias = Literal["amount", "integer", "object", "time"]

_KIND = b"nftsync.kind"
_COMMENTS: dict[_Kind, str] = {
    "amount": "exact decimal text as sent; uint256 fits no machine type",
    "integer": "exact integers as decimal text; uint256 fits no machine type",
}
#: The metadata of a field (JSON) whose values are categories: the row in which each stands first,
#: in their order, their type, and whether that order means anything.
_CATEGORY = b"nftsync.category"

#: What pandas calls the values of an object column; a column of amounts without one is still text.
_INTEGERS = ("integer", "empty")
_OBJECTS = ("string", "boolean", "floating", "bytes", "date", "decimal")
_UNWRITABLE = (pa.ArrowException, TypeError, ValueError, OverflowError)


def note(kind: _Kind) -> dict[bytes, bytes]:
    """The metadata of a field that holds this."""
    made = {_KIND: kind.encode()}
    return {**made, b"comment": _COMMENTS[kind].encode()} if kind in _COMMENTS else made


def _write_parquet(frame: pd.DataFrame, file: BinaryIO) -> None:
    """Write what Arrow keeps, with its notes for pandas, and notes of our own for the rest."""
    for names in (frame.columns.tolist(), [name for name in frame.index.names if name is not None]):
        for name in names:
            if not isinstance(name, str) or names.count(name) > 1:
                raise InputError(f"{name!r} is not text or names two columns; rename it")
    columns = {str(name): _prepared(f"column {name!r}", values) for name, values in frame.items()}
    index, levels = frame.index, []
    if not isinstance(index, pd.RangeIndex):
        for place, name in enumerate(index.names):
            level = pd.Series(index.get_level_values(place))
            levels.append(_prepared(f"index {name!r}", level))
        index = pd.MultiIndex.from_arrays([values for values, _ in levels], names=index.names)
    plain = pd.DataFrame({name: values for name, (values, _) in columns.items()}, copy=False)
    plain = plain.set_axis(index, axis=0).rename_axis(columns=frame.columns.name)
    plain.attrs = frame.attrs
    try:
        table = pa.Table.from_pandas(plain)
    except _UNWRITABLE as error:
        raise InputError(f"the frame cannot be written: {_one_line(error)}") from error
    notes = [noted for _, noted in (*columns.values(), *levels)]
    fields = [
        field.with_metadata({**(field.metadata or {}), **noted})
        for field, noted in zip(table.schema, notes, strict=True)
    ]
    metadata = {**table.schema.metadata, b"nftsync": __version__.encode()}
    pq.write_table(table.cast(pa.schema(fields, metadata)), file, compression="zstd")


def _prepared(where: str, column: pd.Series[Any]) -> tuple[Any, dict[bytes, bytes]]:
    """A column in a form that Arrow keeps, and the note that leads back."""
    dtype: Any = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        raise InputError(f"the {where} is sparse; make it dense first")
    try:
        if isinstance(dtype, pd.CategoricalDtype):
            return _category(where, column)
        if isinstance(dtype, np.dtype) and dtype.kind == "O":
            return _object(where, column)
    except _UNWRITABLE as error:
        raise InputError(f"the {where} cannot be written: {_one_line(error)}") from error
    seconds = dtype.kind in "mM" and column.dt.unit == "s"
    return column.array, note("time") if seconds else {}


def _category(where: str, column: pd.Series[Any]) -> tuple[Any, dict[bytes, bytes]]:
    """The values that the categories stand for; unused ones are not kept."""
    column = column.cat.remove_unused_categories()
    categories, codes = column.cat.categories, column.cat.codes.to_numpy()
    first = np.empty(len(categories), dtype=np.int64)
    first[codes[::-1][codes[::-1] >= 0]] = np.flatnonzero(codes >= 0)[::-1]
    known = {"rows": first.tolist(), "type": str(categories.dtype), "ordered": column.cat.ordered}
    plain, noted = _prepared(where, _uncategorized(column))
    return plain, {**noted, _CATEGORY: json.dumps(known).encode()}


def _object(where: str, column: pd.Series[Any]) -> tuple[Any, dict[bytes, bytes]]:
    found = pd.api.types.infer_dtype(column, skipna=True)
    values: list[Any] = column.where(column.notna(), None).tolist()
    if found in _INTEGERS:
        values = [None if value is None else str(int(value)) for value in values]
        return text(pa.array(values, pa.large_string())), note("integer")
    if found not in _OBJECTS:
        raise InputError(
            f"the {where} holds objects that a Parquet file has no type for ({found});"
            " give them one kind, or make them text"
        )
    return pd.arrays.ArrowExtensionArray(pa.array(values)), note("object")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _frame_from(table: pa.Table) -> pd.DataFrame:
    """Turn a table into a frame; what has no note comes as pandas reads it."""
    frame = table.to_pandas()
    noted = {
        field.name: field
        for field in table.schema
        if field.metadata and not {_KIND, _CATEGORY}.isdisjoint(field.metadata)
    }
    if not noted:
        return frame
    columns: dict[str, Any] = {}
    for name, column in frame.items():
        field = noted.get(str(name))
        columns |= {name: column} if field is None else _restored(field, column, table)
    restored = pd.DataFrame(columns, index=frame.index, copy=False)
    levels = (table.schema.pandas_metadata or {}).get("index_columns", [])
    for place, name in enumerate(levels):
        if isinstance(name, str) and name in noted:
            level = pd.Series(frame.index.get_level_values(place))
            levels[place] = _restored(noted[name], level, table)[name]
        elif isinstance(name, str):
            levels[place] = frame.index.get_level_values(place)
    if levels and not isinstance(frame.index, pd.RangeIndex):
        restored = restored.set_index(levels).rename_axis(index=frame.index.names)
    restored.attrs = frame.attrs
    return restored.rename_axis(columns=frame.columns.name)


def _restored(field: pa.Field, column: pd.Series[Any], table: pa.Table) -> dict[str, Any]:
    """The columns that a noted field is in a frame: an amount of an export is several."""
    name, kind = field.name, field.metadata.get(_KIND, b"").decode(errors="replace")
    try:
        if kind == "amount":
            amounts = Amounts(table[name].cast(pa.large_string()).combine_chunks())
            found = {name: amounts.exact(), f"{name}_text": amounts.text()}
            about = {"amount_float": amounts.approximate()} if name == "amount" else {}
            return {**found, **about}
        if kind == "time":
            column = column.dt.as_unit("s")
        if kind in {"integer", "object"}:
            values = column.astype(object).where(column.notna(), None).tolist()
            if kind == "integer":
                values = [None if value is None else _integer(value) for value in values]
            column = pd.Series(values, index=column.index, dtype=object)
        if _CATEGORY in field.metadata:
            return {name: _categorical(column, json.loads(field.metadata[_CATEGORY]))}
    except (
        *(pa.ArrowException, ArithmeticError, AttributeError, IndexError),
        *(KeyError, TypeError, ValueError),
    ) as error:
        raise InputError(
            f"the column {name!r} does not hold what its note says ({kind or 'category'});"
            " something else than nftsync changed the file"
        ) from error
    return {name: column}


def _categorical(column: pd.Series[Any], known: dict[str, Any]) -> Any:
    categories = pd.Index(column.iloc[known["rows"]].astype(known["type"])).rename(None)
    codes = categories.get_indexer(column)
    if ((codes < 0) & column.notna()).any():
        raise ValueError("a category that its note does not name")
    return pd.Categorical.from_codes(codes, categories=categories, ordered=known["ordered"])


def _integer(written: str) -> int:
    if re.fullmatch("-?[0-9]+", written) is None:
        raise ValueError("no integer")
    return int(written)
