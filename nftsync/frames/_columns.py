"""From Arrow columns to the columns of a frame, and the few kinds that frames have."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.errors import InputError, StoreError
from nftsync.exact_sum import exact
from nftsync.frames._source import Numbers, Parameters, Source
from nftsync.store.catalog import TABLES, Column, ColumnKind
from nftsync.times import parse_time

__all__ = [
    "INTEGER",
    "TEXT",
    "Amounts",
    "Moment",
    "Times",
    "approximate",
    "coded",
    "distinct_in_each",
    "first_of_each",
    "frame_of",
    "integers",
    "is_zero",
    "moments",
    "numbered_together",
    "read_table",
    "run_starts",
    "shown",
    "stored_time",
    "sums_in_each",
    "text",
    "time_texts",
    "times",
]


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
    source: Source, name: str, where: str = "", parameters: Parameters = ()
) -> pd.DataFrame:
    """Read a frame whose columns are those of a public table or view without amounts.

    Args:
        source: where to read.
        name: of the table.
        where: a condition, with its WHERE; none is all rows.
        parameters: for the placeholders in it.
    """
    table = TABLES[name]
    columns = {name: column for name, column in table.columns.items() if column.kind != "bytes"}
    arrays = source.columns(
        f"SELECT {', '.join(columns)} FROM {table.rows} {where} ORDER BY {table.order}",  # noqa: S608
        [_ARROW_TYPES[column.kind] for column in columns.values()],
        parameters,
    )
    return frame_of(
        {name: _finished(columns[name], array) for name, array in zip(columns, arrays, strict=True)}
    )


_DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?", re.ASCII)


def approximate(amount: str) -> float:
    """The nearest float of a plain decimal number; NaN of any other text, or past the range."""
    if _DECIMAL.fullmatch(amount) is None:
        return math.nan
    value = float(amount)
    return value if math.isfinite(value) else math.nan


def is_zero(amount: str) -> bool:
    """Whether a balance of this amount is no holding: one or more `0` and nothing else."""
    return amount != "" and not amount.strip("0")


class Amounts:
    """A column of amounts, of which each distinct text is looked at once."""

    def __init__(
        self, column: pa.Array, parts: tuple[npt.NDArray[np.int32], pa.Array] | None = None
    ) -> None:
        self._column = column
        self.codes, self._distinct = parts or coded(column)
        self._texts: list[str] = self._distinct.to_pylist()

    def __len__(self) -> int:
        return len(self._column)

    def chosen(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Amounts:
        """The amounts of some rows, given by position or by a mask."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        return Amounts(self._column.take(pa.array(rows)), (self.codes[rows], self._distinct))

    def sizes(self) -> npt.NDArray[np.object_]:
        """By code: 0 where it is no holding, None where it is no whole number, else how much.

        Code -1, of what is missing, finds the 0 that stands last.
        """
        sizes = np.empty(len(self._texts) + 1, dtype=object)
        sizes[:-1] = [0 if is_zero(amount) else exact(amount) for amount in self._texts]
        sizes[-1] = 0
        return sizes

    def meanings(self) -> Numbers:
        """A number per row that is equal where amounts mean the same; 0 is no holding."""
        numbers: dict[int | str, int] = {0: 0}
        meant = [
            numbers.setdefault(amount if size is None else size, len(numbers))
            for amount, size in zip([*self._texts, ""], self.sizes(), strict=True)
        ]
        return np.array(meant)[self.codes]

    def exact(self) -> npt.NDArray[np.object_]:
        """Python integers; None where the text is missing or not 1 to 100 ASCII digits."""
        # None stands last, where code -1 finds it.
        values = np.empty(len(self._texts) + 1, dtype=object)
        values[:-1] = [exact(amount) for amount in self._texts]
        return values[self.codes]

    def held(self) -> npt.NDArray[np.object_]:
        """The same, but None also where it is no holding."""
        values = self.exact()
        values[~self.nonzero()] = None
        return values

    def approximate(self) -> npt.NDArray[np.float64]:
        """Floats; NaN where the text is missing or no plain decimal number."""
        values = [*map(approximate, self._texts), math.nan]
        return np.array(values)[self.codes]

    def nonzero(self) -> npt.NDArray[np.bool_]:
        """Whether each is there and is a holding."""
        values = [*(not is_zero(amount) for amount in self._texts), False]
        return np.array(values)[self.codes]

    def text(self) -> Any:
        """The column of a frame that shows them as they were sent."""
        return text(self._column)


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


def sums_in_each(
    group: Numbers, amounts: npt.NDArray[np.object_], count: int
) -> npt.NDArray[np.object_]:
    """Sum the known amounts of each of `count` groups, exactly; 0 where none is known."""
    known = np.flatnonzero(pd.notna(amounts))
    known = known[np.argsort(group[known], kind="stable")]
    sums = np.zeros(count, dtype=object)
    if len(known):
        group = group[known]
        starts = run_starts(group)
        sums[group[starts]] = np.add.reduceat(amounts[known], starts)
    return sums
