"""From Arrow columns to the columns of a frame, and the few kinds that frames have."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.errors import InputError, StoreError
from nftsync.frames._source import Numbers, Source
from nftsync.store.catalog import TABLES, Column, ColumnKind
from nftsync.store.filters import Filters
from nftsync.store.present import known_time
from nftsync.text import quoted
from nftsync.times import Edge, parse_time

TEXT = pa.large_string()
INTEGER = pa.int64()

_ARROW_TYPES: dict[ColumnKind, pa.DataType] = {
    "text": TEXT,
    "time": TEXT,
    "integer": INTEGER,
    "flag": INTEGER,
    "real": pa.float64(),
}

#: A time as a caller may give it.
Moment: TypeAlias = "str | date | datetime | np.datetime64"

Times: TypeAlias = npt.NDArray[np.datetime64]

#: Characters of a value that an error repeats.
_LONGEST = 60

_STR = pd.StringDtype(storage="pyarrow", na_value=np.nan)


def stored_time(source: Source, value: Moment, edge: Edge) -> str:
    """Bring a time that a caller gave into the stored form.

    Args:
        source: the database that it is about.
        value: text, a date or a datetime.
        edge: what a day is, its start or its end; of today the present in place of its end.

    Raises:
        InputError: it names no time, or one that is still to come.
    """
    if isinstance(value, np.datetime64) and not np.isnat(value):
        moment = pd.Timestamp(value)
        value = moment.date() if np.datetime_data(value)[0] == "D" else moment
    if not isinstance(value, str | date) or value is pd.NaT:
        raise InputError(f"{shown(value)} is not a time; give text, a date or a datetime")
    if isinstance(value, str) and len(value) > _LONGEST:
        raise InputError(f"{shown(value)} is not a time; write 2026-01-31T12:00:00Z")
    return known_time(source.cursor, parse_time(value, edge))


def shown(value: object) -> str:
    """How an error names what a caller gave: text cut short, short values as is, else the kind."""
    if isinstance(value, str):
        return quoted(value)
    if value is None or pd.api.types.is_scalar(value):
        written = repr(value)
        if len(written) <= _LONGEST:
            return written
    return f"a {type(value).__name__}"


def coded(column: pa.Array) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Split a column into codes (-1: missing) and the distinct values that they number."""
    encoded = column.dictionary_encode()
    return encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), encoded.dictionary


def moments(column: pa.Array) -> Times:
    """Turn a column of stored times into datetimes.

    Raises:
        StoreError: one is no time; something else than nftsync wrote it.
    """
    try:
        values = column.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid as error:
        raise StoreError(f"the database holds a time that nftsync did not write: {error}") from None
    ticks: Numbers = values.cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
    return ticks.view("M8[us]")


def times(values: Times) -> Any:
    """Make a frame's column of datetimes, in UTC."""
    return pd.DatetimeIndex(values).tz_localize("UTC").array


def time_texts(values: Times, zone: str = "Z") -> list[str | None]:
    """Write datetimes in the stored form; None where one is missing."""
    texts = np.datetime_as_string(values, unit="us").tolist()
    return [None if text == "NaT" else f"{text}{zone}" for text in texts]


def text(column: pa.Array) -> Any:
    """Make a frame's column of text; what is missing shows as NaN."""
    return pd.arrays.ArrowStringArray(pa.chunked_array([column]), dtype=_STR)


def integers(column: pa.Array) -> Any:
    """Make a frame's column of integers that may be missing."""
    # Copied, as what Arrow lends cannot be written.
    missing = column.is_null().to_numpy(zero_copy_only=False).copy()
    return pd.arrays.IntegerArray(column.fill_null(0).to_numpy().copy(), missing)


def _finished(column: Column, values: pa.Array) -> Any:
    if column.kind == "text":
        return text(values)
    if column.kind == "time":
        return times(moments(values))
    if column.kind == "flag":
        return values.to_numpy() != 0
    if column.kind == "integer" and not column.always:
        return integers(values)
    return values.to_numpy().copy()


def frame_of(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Put finished columns together."""
    return pd.DataFrame(dict(columns), copy=False)


def read_table(
    source: Source,
    name: str,
    filters: Filters = Filters(),  # noqa: B008 - it cannot change
    *,
    times: tuple[str, str] | None = None,
) -> pd.DataFrame:
    """Read a frame whose columns are those of a public table or view without amounts.

    Args:
        source: where to read.
        name: of the table.
        filters: which rows.
        times: as in `Filters.where`; None is the time when a row came to be.
    """
    table = TABLES[name]
    columns = {name: column for name, column in table.columns.items() if column.kind != "bytes"}
    if times is None and table.since is not None:
        times = (table.since, table.since)
    condition, parameters = filters.where(times=times)
    arrays = source.columns(
        f"SELECT {', '.join(columns)} FROM {table.rows} WHERE {condition} ORDER BY {table.order}",
        [_ARROW_TYPES[column.kind] for column in columns.values()],
        parameters,
    )
    return frame_of(
        {name: _finished(columns[name], array) for name, array in zip(columns, arrays, strict=True)}
    )


def numbered_together(*columns: npt.NDArray[np.integer]) -> Numbers:
    """Give the same number, from 0 in the order they come, to rows that agree in some columns.

    Args:
        columns: numbers; from -1 up in all columns but the first.
    """
    first, *rest = columns
    numbers: Numbers = pd.factorize(first)[0]
    for column in rest:
        width = int(column.max(initial=-1)) + 2
        numbers, _ = pd.factorize(numbers * width + column + 1)
    return numbers


def first_of_each(group: Numbers) -> Numbers:
    """The first row of each group, of groups that are numbered from 0 without a gap."""
    first = np.zeros(group.max(initial=-1) + 1, dtype=np.int64)
    # Of several rows the last that is written stays: the first of the column.
    first[group[::-1]] = np.arange(len(group))[::-1]
    return first


def run_starts(*columns: npt.NDArray[Any]) -> Numbers:
    """Where rows begin that differ from the one before in some column."""
    differs = np.ones(len(columns[0]), dtype=bool)
    differs[1:] = False
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


def distinct_in_each(group: Numbers, number: npt.NDArray[np.integer], count: int) -> Numbers:
    """Count the distinct numbers, from 0 up, of each of `count` groups."""
    width = int(number.max(initial=0)) + 1
    # Sorted by hand, as np.unique hashes, which takes five times as long here.
    key = np.sort(group * width + number)
    return np.bincount(key[run_starts(key)] // width, minlength=count)
