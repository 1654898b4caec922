"""Conversion of Arrow columns to frames, and of frames to rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.columnar.source import Numbers, Source
from nftsync.errors import StoreError
from nftsync.store.catalog import COLLECTION, TABLES, Column, ColumnKind, columns_of, ours
from nftsync.store.filters import Filters

TEXT = pa.large_string()
INTEGER = pa.int64()
Times: TypeAlias = npt.NDArray[np.datetime64]
_ARROW_TYPES: dict[ColumnKind, pa.DataType] = {
    "text": TEXT,
    "time": TEXT,
    "integer": INTEGER,
    "flag": INTEGER,
    "real": pa.float64(),
}
_STR = pd.StringDtype(storage="pyarrow", na_value=np.nan)


def coded(column: pa.Array) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Return a column's codes (-1: missing) and its distinct values."""
    encoded = column.dictionary_encode()
    return encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), encoded.dictionary


def taken(column: pa.Array, rows: npt.NDArray[np.integer]) -> pa.Array:
    """Return the values in some rows; null for row -1."""
    return column.take(pa.array(rows, mask=rows < 0))


def flags(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return a column of booleans as a mask; null is false."""
    return np.asarray(column.fill_null(False))


def text(column: pa.Array) -> Any:
    """Return a column of text."""
    return pd.arrays.ArrowStringArray(pa.chunked_array([column]), dtype=_STR)


def integers(column: pa.Array) -> Any:
    """Return a column of nullable integers."""
    # Arrow's own buffers are read-only.
    missing = column.is_null().to_numpy(zero_copy_only=False).copy()
    return pd.arrays.IntegerArray(column.fill_null(0).to_numpy().copy(), missing)


def moments(column: pa.Array) -> Times:
    """Return stored times as datetimes."""
    try:
        values = column.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid as error:
        raise StoreError(
            f"the database has a time that nftsync did not write ({error}); restore a backup"
        ) from None
    ticks: Numbers = values.cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
    return ticks.view("M8[us]")


def times(values: Times) -> Any:
    """Return datetimes in UTC."""
    return pd.DatetimeIndex(values).tz_localize("UTC").array


def time_texts(values: Times, zone: str = "Z") -> list[str | None]:
    """Return datetimes in the stored form, or None."""
    texts = np.datetime_as_string(values, unit="us").tolist()
    return [None if text == "NaT" else f"{text}{zone}" for text in texts]


def ages(since: Times, until: str) -> Any:
    """Return durations; 0 if the clock was set back meanwhile."""
    passed = moments(pa.array([until]))[0] - since
    return pd.TimedeltaIndex(np.maximum(passed, np.timedelta64(0, "us"))).array


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
    """Return a frame of finished columns."""
    return pd.DataFrame(dict(columns), copy=False)


def read_table(
    source: Source,
    name: str,
    filters: Filters = Filters(),  # noqa: B008 - it cannot change
    *,
    times: tuple[str, str] | None = None,
) -> pd.DataFrame:
    """Read a public table or view without amounts as a frame; for `times`, see `Filters.where`."""
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
    """Number distinct rows from 0, in order of appearance; later columns may have -1."""
    first, *rest = columns
    numbers: Numbers = pd.factorize(first)[0]
    for column in rest:
        width = int(column.max(initial=-1)) + 2
        numbers, _ = pd.factorize(numbers * width + column + 1)
    return numbers


def first_rows(group: Numbers) -> Numbers:
    """Return the first row of each group; groups are numbered without gaps."""
    first = np.zeros(group.max(initial=-1) + 1, dtype=np.int64)
    # The last write of a group wins: its first row.
    first[group[::-1]] = np.arange(len(group))[::-1]
    return first


def run_starts(*columns: npt.NDArray[Any]) -> Numbers:
    """Return the rows that differ from the previous row."""
    differs = np.ones(len(columns[0]), dtype=bool)
    differs[1:] = False
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


def distinct_by_group(group: Numbers, number: npt.NDArray[np.integer], count: int) -> Numbers:
    """Return how many distinct numbers each group has."""
    width = int(number.max(initial=0)) + 1
    # np.unique hashes, which takes five times as long here.
    key = np.sort(group * width + number)
    return np.bincount(key[run_starts(key)] // width, minlength=count)


class Readable(pd.DataFrame):  # type: ignore[misc]
    """Frame that shows its few rows in full; frames derived from it are plain."""

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def _repr_html_(self) -> str:
        """Return HTML with uncut text."""
        with pd.option_context("display.max_colwidth", None):
            page: str = self.to_html(na_rep="", justify="left", border=0)
        # Texts are escaped, so this matches tags only.
        return page.replace("<td>", '<td style="text-align: left">')

    def __repr__(self) -> str:
        texts = [name for name, kind in self.dtypes.items() if kind == "str"]
        widths = {name: max(map(len, [name, *self[name].fillna("")])) for name in texts}
        formatters = {name: f"{{:<{width}}}".format for name, width in widths.items()}
        shown: str = self.to_string(formatters=formatters, na_rep="", justify="left")
        return shown


@dataclass(frozen=True)
class Rows:
    """Fields of equal length."""

    def rows(self, which: npt.NDArray[np.bool_] | Numbers) -> Self:
        """Return some rows."""
        return type(self)(*(getattr(self, field.name)[which] for field in fields(self)))


#: Rows held as Python objects at a time.
ROWS_STEP = 10_000
#: A frame's name for a table's column; a frame's own `amount` is integers.
_IN_FRAME = {"amount": "amount_text"}


def rows_of(
    frame: pd.DataFrame, columns: Sequence[str], *, step: int = ROWS_STEP
) -> Iterator[list[tuple[Any, ...]]]:
    """Yield lists of rows, in the stored form, of a frame with the columns of its table."""
    for start in range(0, len(frame), step):
        part = frame.iloc[start : start + step]
        values = [values_of(part[_IN_FRAME.get(name, name)]) for name in columns]
        yield list(zip(*values, strict=True))


def records_of(frame: pd.DataFrame, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return dictionaries of `rows_of`'s values."""
    chunks = rows_of(frame, columns)
    return [dict(zip(columns, row, strict=True)) for rows in chunks for row in rows]


def values_of(column: pd.Series[Any]) -> list[Any]:
    """Return a column's values as in `rows_of`; durations are seconds."""
    if column.dtype.kind == "M":
        return time_texts(column.to_numpy("M8[us]"), zone="" if column.dt.tz is None else "Z")
    if column.dtype.kind == "m":
        column = column.dt.total_seconds()
    pairs = zip(column.tolist(), column.isna().tolist(), strict=True)
    return [None if missing else value for value, missing in pairs]


#: Columns of names, and the columns that a reader does not need beside them.
NAMED = {
    "wallet": ("wallet_id", "wallet_label", "label"),
    "collection": ("contract", "contract_address"),
    "nft": ("token_id", "name"),
    "collection_a": ("contract_a",),
    "collection_b": ("contract_b",),
    "from_wallet": ("from_wallet_id", "from_label"),
    "to_wallet": ("to_wallet_id", "to_label"),
    "counterparty_wallet": ("counterparty_wallet_id", "counterparty_label"),
}


_WALLET = ours(
    "the wallet's name, never missing: its label (and short id, if other wallets share it), or its"
    " short id",
    "made from all labels",
)
_NFT = ours(
    "the NFT's name, never missing: `name` without control characters, or else `collection` and"
    " `#` with the on-chain id",
    "made from the token's columns",
)


def frame_columns(name: str) -> dict[str, Column]:
    """Return the columns of a frame of a table, with names beside the columns of ids."""
    described = columns_of(name, as_of=True)
    names = {
        "wallet_group" if "wallet_group" in described else "wallet_id": ("wallet", _WALLET),
        "name" if "name" in described else "token_id": ("nft", _NFT),
        "contract": ("collection", COLLECTION),
    }
    columns: dict[str, Column] = {}
    for key, column in described.items():
        if column.kind == "amount":
            columns |= _amount_columns(key, column)
        elif column.kind != "bytes":
            columns[key] = column
        if key in names:
            columns.setdefault(*names[key])
    return columns


def _amount_columns(name: str, column: Column) -> dict[str, Column]:
    about = column.meaning
    exact = f"{about} (exact; also missing if not 1 to 100 ASCII digits)"
    sent = f"{about} (as the provider sent it)"
    columns = {
        name: column._replace(meaning=exact),
        f"{name}_text": column._replace(kind="text", meaning=sent),
    }
    if name == "amount":
        near = f"{about} (approximate; for plots, not for sums)"
        columns["amount_float"] = column._replace(kind="real", meaning=near)
    return columns
