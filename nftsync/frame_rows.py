"""From a frame back to rows as the tables have them: text, times in the stored form, None."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["rows_of"]

#: Rows that are Python objects at once.
_STEP = 10_000

#: Columns of the tables that a frame has under another name: its `amount` is integers.
_IN_FRAME = {"amount": "amount_text"}


def rows_of(
    frame: pd.DataFrame, columns: Sequence[str], *, step: int = _STEP
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
        naive = column.dt.tz_localize(None).to_numpy(dtype="M8[us]")
        texts = np.datetime_as_string(naive, unit="us").tolist()
        return [None if text == "NaT" else f"{text}Z" for text in texts]
    values: list[Any] = pa.array(column, from_pandas=True).to_pylist()
    return values
