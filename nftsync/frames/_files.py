"""Frames in files: Parquet that loses nothing, and CSV that a spreadsheet opens safely."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from nftsync.errors import InputError, StoreError
from nftsync.frames._csv import write_csv
from nftsync.frames._from_arrow import frame_from
from nftsync.frames._to_arrow import table_of

__all__ = ["load", "save"]


def save(frame: pd.DataFrame, path: str | os.PathLike[str]) -> Path:
    """Write a frame to a file, which appears under its name once it is whole.

    A file of that name is replaced. Like an export, the file is its owner's only.

    Parquet loses nothing, and `load` brings back the same: columns of Python integers become text,
    as uint256 fits no machine type, with a note on the field; times, durations, categories,
    `Int64` and the index keep their kinds. In CSV such integers are digits, times have the stored
    form (`2026-01-31T12:00:00.000000Z`; without a time zone, no Z), durations are seconds, truth
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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(".partial", f".{path.name}.", path.parent)
        partial = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                write(frame, file)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error


def _write_parquet(frame: pd.DataFrame, file: BinaryIO) -> None:
    pq.write_table(table_of(frame), file, compression="zstd")


_WRITERS: dict[str, Callable[[pd.DataFrame, BinaryIO], None]] = {
    ".csv": write_csv,
    ".parquet": _write_parquet,
}
