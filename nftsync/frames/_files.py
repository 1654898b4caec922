"""Frames in files: Parquet that loses nothing, and CSV that a spreadsheet opens safely."""

from __future__ import annotations

import base64
import csv
import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from nftsync.errors import InputError, StoreError
from nftsync.frames._arrow_files import frame_from, table_of
from nftsync.text import neutralized
from nftsync.whole_files import whole_file

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load", "rows_of", "save", "write_csv"]


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
        naive = column.dt.tz_localize(None).to_numpy(dtype="M8[us]")
        texts = np.datetime_as_string(naive, unit="us").tolist()
        return [None if text == "NaT" else f"{text}Z" for text in texts]
    values: list[Any] = pa.array(column, from_pandas=True).to_pylist()
    return values


#: Rows that are Python objects at once.
_CSV_STEP = 50_000


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
        for start in range(0, len(frame), _CSV_STEP):
            part = frame.iloc[start : start + _CSV_STEP]
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
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        raise InputError(f"{path} ends neither in .parquet nor in .csv; name a file that does")
    if not isinstance(frame, pd.DataFrame):
        instead = "`to_frame()` makes one" if isinstance(frame, pd.Series) else "give one first"
        raise InputError(f"a {type(frame).__name__} is no DataFrame; {instead}")
    path = path.resolve()
    _write(path, frame, write)
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
            return frame_from(file.read())
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


def _write(
    path: Path, frame: pd.DataFrame, write: Callable[[pd.DataFrame, BinaryIO], None]
) -> None:
    with whole_file(path, replace=True) as partial, partial.open("wb") as file:
        write(frame, file)


def _write_parquet(frame: pd.DataFrame, file: BinaryIO) -> None:
    pq.write_table(table_of(frame), file, compression="zstd")


_WRITERS: dict[str, Callable[[pd.DataFrame, BinaryIO], None]] = {
    ".csv": write_csv,
    ".parquet": _write_parquet,
}
