"""From Arrow columns to the columns of a frame, and the few kinds that frames have."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.errors import InputError, StoreError
from nftsync.frames._source import Numbers, Parameters, Source
from nftsync.times import parse_time

__all__ = [
    "ARROW_TYPES",
    "INTEGER",
    "TEXT",
    "Kind",
    "Moment",
    "Times",
    "coded",
    "frame_of",
    "integers",
    "moments",
    "read_frame",
    "shown",
    "stored_time",
    "text",
    "times",
]

TEXT = pa.large_string()
INTEGER = pa.int64()

#: `integer` may be missing, `count` never is.
Kind: TypeAlias = Literal["text", "time", "count", "integer", "flag", "real"]

ARROW_TYPES: dict[Kind, pa.DataType] = {
    "text": TEXT,
    "time": TEXT,
    "count": INTEGER,
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


def stored_time(value: Moment) -> str:
    """Bring a time that a caller gave into the stored form.

    Raises:
        InputError: it names no time.
    """
    if isinstance(value, np.datetime64) and not np.isnat(value):
        value = pd.Timestamp(value)
    if not isinstance(value, str | date) or value is pd.NaT:
        raise InputError(f"{shown(value)} is not a time; give text, a date or a datetime")
    if isinstance(value, str) and len(value) > _LONGEST:
        raise InputError(f"{shown(value)} is not a time; write 2026-01-31T12:00:00Z")
    return parse_time(value)


def shown(value: object) -> str:
    """How an error names what a caller gave: text cut short, short values as is, else the kind."""
    if isinstance(value, str):
        return repr(value) if len(value) <= _LONGEST else f"{value[:_LONGEST]!r}..."
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


def text(column: pa.Array) -> Any:
    """Make a frame's column of text; what is missing shows as NaN."""
    return pd.arrays.ArrowStringArray(pa.chunked_array([column]), dtype=_STR)


def integers(column: pa.Array) -> Any:
    """Make a frame's column of integers that may be missing."""
    # Copied, as what Arrow lends cannot be written.
    missing = column.is_null().to_numpy(zero_copy_only=False).copy()
    return pd.arrays.IntegerArray(column.fill_null(0).to_numpy().copy(), missing)


def _finished(kind: Kind, column: pa.Array) -> Any:
    if kind == "text":
        return text(column)
    if kind == "time":
        return times(moments(column))
    if kind == "integer":
        return integers(column)
    if kind == "flag":
        return column.to_numpy() != 0
    return column.to_numpy().copy()


def frame_of(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Put finished columns together."""
    return pd.DataFrame(dict(columns), copy=False)


def read_frame(
    source: Source,
    columns: Mapping[str, Kind],
    origin: str,
    parameters: Parameters = (),
) -> pd.DataFrame:
    """Read a frame whose columns are those of a table or join.

    Args:
        source: where to read.
        columns: the name and kind of each.
        origin: what follows FROM.
        parameters: for the placeholders in it.
    """
    arrays = source.columns(
        f"SELECT {', '.join(columns)} FROM {origin}",  # noqa: S608
        [ARROW_TYPES[kind] for kind in columns.values()],
        parameters,
    )
    return frame_of(
        {
            name: _finished(kind, array)
            for (name, kind), array in zip(columns.items(), arrays, strict=True)
        }
    )
