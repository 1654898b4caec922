"""A frame as a CSV file that a spreadsheet opens safely."""

from __future__ import annotations

import base64
import csv
import io
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from nftsync.csv_cells import neutralized
from nftsync.errors import InputError

__all__ = ["write_csv"]

#: Rows that are Python objects at once.
_STEP = 50_000


def write_csv(frame: pd.DataFrame, file: BinaryIO) -> None:
    """Write a frame as CSV (UTF-8, RFC 4180), an index that has a name before its columns.

    Args:
        frame: what to write.
        file: open to be written; stays open.

    Raises:
        InputError: text that UTF-8 cannot hold.
    """
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index(allow_duplicates=True)
    out = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(out)
        writer.writerow([neutralized(str(name)) for name in frame.columns])
        for start in range(0, len(frame), _STEP):
            part = frame.iloc[start : start + _STEP]
            cells = [_cells(part.iloc[:, place]) for place in range(part.shape[1])]
            writer.writerows(zip(*cells, strict=True))
    except UnicodeEncodeError as error:
        raise InputError("the frame holds text with half a character (a lone surrogate)") from error
    finally:
        out.detach()


def _cells(column: pd.Series[Any]) -> list[Any]:
    dtype: Any = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return _cells(column.astype(dtype.categories.dtype if not column.hasnans else object))
    if dtype.kind == "M":
        return _times(column)
    if dtype.kind == "m":
        column = column.dt.total_seconds()
    missing = column.isna().tolist()
    return [
        None if gone else _cell(value) for value, gone in zip(column.tolist(), missing, strict=True)
    ]


def _times(column: pd.Series[Any]) -> list[str | None]:
    zone = ""
    if column.dt.tz is not None:
        column, zone = column.dt.tz_convert("UTC").dt.tz_localize(None), "Z"
    texts = np.datetime_as_string(column.to_numpy(dtype="M8[us]"), unit="us").tolist()
    return [None if text == "NaT" else f"{text}{zone}" for text in texts]


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
