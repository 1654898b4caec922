"""Save and load frames: Parquet without loss, CSV and Excel safe to open in a spreadsheet."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from nftsync.columnar.amounts import Amounts, Exact, amount_columns
from nftsync.columnar.columns import ROWS_STEP, text, values_of
from nftsync.errors import InputError, StoreError
from nftsync.export.formats import EXACT, CellKind, Rows, note, write_csv, write_parquet
from nftsync.export.workbook import MOST_DIGITS, check_fits, sheet_name, workbook
from nftsync.whole_files import whole_file


def save(frame: pd.DataFrame, path: str | os.PathLike[str]) -> Path:
    """Write a frame to a file, which appears under its name once it is whole.

    A file of that name is replaced. Like an export, the file is its owner's only.

    Parquet loses no value, and `load` brings back the same: columns of Python integers become text,
    as uint256 fits no machine type, with a note on the field; text, times, durations, categories of
    text, `Int64` and the index keep their kinds. In CSV such integers are digits, times have the
    stored form (`2026-01-31T12:00:00.000000Z`; without a time zone, no Z), durations are seconds,
    truth values 0 or 1, bytes base64; what is missing is empty; and text that a spreadsheet would
    run as a formula gets a single quote in front.

    An Excel workbook has one sheet, of the file's name. Text is text there, never a formula or a
    link; times are dates, shown with UTC where they have a zone; integers are numbers if each of
    their column has at most 15 digits, which is what Excel keeps, and else digits as text, all of
    them. Texts of more than 32,767 characters are cut and say so.

    Args:
        frame: one of ours, one derived from it, or any other.
        path: ends in `.parquet`, `.csv` or `.xlsx`; its folder is made where it is missing.

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
    writers = {".csv": _write_csv, ".parquet": _write_parquet, ".xlsx": _write_workbook}
    write = writers.get(path.suffix.lower())
    if write is None:
        raise InputError(f"{path} does not end in .parquet, .csv or .xlsx; name a file that does")
    if not isinstance(frame, pd.DataFrame):
        instead = "`to_frame()` makes one" if isinstance(frame, pd.Series) else "give one first"
        raise InputError(f"a {type(frame).__name__} is no DataFrame; {instead}")
    path = path.resolve()
    with whole_file(path, replace=True) as partial, partial.open("wb") as file:
        try:
            write(frame if write is _write_parquet else _with_index(frame), file)
        except UnicodeEncodeError as error:
            raise InputError(_HALF) from error
    return path


def load(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a Parquet file of `save`, of `nftsync export`, or of anyone.

    What `save` wrote comes back the same: exact integers, times, categories, index. Amounts of an
    export come as frames have them: `amount` exact, `amount_text` as sent, `amount_float`. All else
    comes as pandas reads it.

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


_HALF = "the frame holds text with half a character (a lone surrogate)"


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with an index that has a name before its columns."""
    if any(name is not None for name in frame.index.names):
        return frame.reset_index(allow_duplicates=True)
    return frame


def _write_csv(frame: pd.DataFrame, file: BinaryIO) -> None:
    write_csv(file, _kinds(frame), _chunks(frame))


def _write_workbook(frame: pd.DataFrame, file: BinaryIO) -> None:
    """Write one sheet, of the file's name."""
    path = Path(file.name)
    name = sheet_name(path.stem)
    check_fits(name, *frame.shape)
    columns = [
        (heading, "amount" if kind == "integer" and not _is_short(frame.iloc[:, place]) else kind)
        for place, (heading, kind) in enumerate(_kinds(frame))
    ]
    with workbook(file, path.parent) as book:
        book.write(book.add(name), columns, _chunks(frame))


def _chunks(frame: pd.DataFrame) -> Iterator[Rows]:
    for start in range(0, len(frame), ROWS_STEP):
        part = frame.iloc[start : start + ROWS_STEP]
        columns = [values_of(part.iloc[:, place]) for place in range(part.shape[1])]
        yield list(zip(*columns, strict=True))


def _kinds(frame: pd.DataFrame) -> list[tuple[str, CellKind]]:
    return [
        (str(name), _cell_kind(frame.iloc[:, place])) for place, name in enumerate(frame.columns)
    ]


_CELL_KINDS: dict[str, CellKind] = {
    "boolean": "flag",
    "floating": "real",
    "bytes": "bytes",
    "integer": "integer",
}


def _cell_kind(column: pd.Series[Any]) -> CellKind:
    if column.dtype.kind in "Mm":
        return "time" if column.dtype.kind == "M" else "duration"
    values = column.astype(object) if isinstance(column.dtype, pd.CategoricalDtype) else column
    return _CELL_KINDS.get(pd.api.types.infer_dtype(values, skipna=True), "text")


def _is_short(column: pd.Series[Any]) -> bool:
    """Whether Excel keeps all digits of a column of integers."""
    return all(value is None or abs(value) < 10**MOST_DIGITS for value in values_of(column))


#: The metadata of a field that holds categories of text: all of these in their order, and whether
#: that means anything (JSON).
_CATEGORIES = b"nftsync.categories"
_UNREADABLE = (pa.ArrowException, ArithmeticError, AttributeError, KeyError, TypeError, ValueError)


def _write_parquet(frame: pd.DataFrame, file: BinaryIO) -> None:
    """Write what Arrow keeps, with its notes for pandas, and notes of our own for the rest."""
    for names in (frame.columns.tolist(), [name for name in frame.index.names if name is not None]):
        for name in names:
            if not isinstance(name, str) or names.count(name) > 1:
                raise InputError(f"{name!r} is not text or names two columns; rename it")
    notes: dict[str, dict[bytes, bytes]] = {}
    plain: dict[str, Any] = {}
    try:
        for name, column in frame.items():
            if isinstance(column.dtype, pd.CategoricalDtype):
                notes[str(name)] = _noted_categories(column)
                if not notes[str(name)]:
                    column = pd.Series(pd.array(column.tolist()), column.index)
                    plain[str(name)] = column
            if column.dtype == object and _are_integers(str(name), column):
                notes[str(name)] = note("integer")
                digits = [None if value is None else str(int(value)) for value in values_of(column)]
                plain[str(name)] = text(pa.array(digits, pa.large_string()))
        table = pa.Table.from_pandas(frame.assign(**plain))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"the frame cannot be written: {' '.join(str(error).split())}") from error
    fields = [
        field.with_metadata({**(field.metadata or {}), **notes.get(field.name, {})})
        for field in table.schema
    ]
    schema = pa.schema(fields, table.schema.metadata)
    write_parquet(file, schema, [table.cast(schema)])


def _are_integers(name: str, column: pd.Series[Any]) -> bool:
    found = pd.api.types.infer_dtype(column, skipna=True)
    if found.startswith("mixed"):
        raise InputError(
            f"the column {name!r} holds objects that a Parquet file has no type for ({found});"
            " give them one kind, or make them text"
        )
    # A column of amounts without one is still text.
    return found in ("integer", "empty")


def _noted_categories(column: pd.Series[Any]) -> dict[bytes, bytes]:
    """The note on categories of text; others come back as the values that they stand for."""
    categories = column.cat.categories
    if categories.inferred_type not in {"string", "empty"}:
        return {}
    known = {"names": categories.tolist(), "ordered": column.cat.ordered}
    return {_CATEGORIES: json.dumps(known).encode()}


def _frame_from(table: pa.Table) -> pd.DataFrame:
    """Turn a table into a frame; what has no note comes as pandas reads it."""
    frame = table.to_pandas()
    columns: dict[Any, Any] = {}
    exact: dict[str, Exact] = {}
    for name, column in frame.items():
        field = table.schema.field(name) if name in table.schema.names else None
        noted = (field.metadata if field is not None else None) or {}
        try:
            if noted.get(EXACT) == b"amount":
                amounts = Amounts(pa.array(column, pa.large_string(), from_pandas=True))
                exact[str(name)] = amounts.exact()
                columns |= {name: None, f"{name}_text": amounts.text()}
                columns |= {"amount_float": amounts.approximate()} if name == "amount" else {}
            else:
                columns[name] = _restored(column, noted)
        except _UNREADABLE as error:
            raise InputError(
                f"the column {name!r} does not hold what its note says; something else than"
                " nftsync changed the file"
            ) from error
    columns |= amount_columns(exact, None)
    restored = pd.DataFrame(columns, index=frame.index, copy=False)
    restored.attrs = frame.attrs
    return restored.rename_axis(columns=frame.columns.name)


def _restored(column: pd.Series[Any], noted: dict[bytes, bytes]) -> pd.Series[Any]:
    """The column that a field is in a frame, by its notes."""
    if noted.get(EXACT) == b"integer":
        integers = [None if value is None else _integer(value) for value in values_of(column)]
        return pd.Series(integers, index=column.index, dtype=object)
    if _CATEGORIES in noted:
        known = json.loads(noted[_CATEGORIES])
        kind = pd.CategoricalDtype(pd.Index(known["names"], dtype="str"), known["ordered"])
        return column.astype("str").astype(kind)
    return column


def _integer(written: str) -> int:
    if re.fullmatch("-?[0-9]+", written) is None:
        raise ValueError("no integer")
    return int(written)
