"""Frames as Parquet, CSV or Excel files."""

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
from nftsync.export.formats import EXACT, INTEGER, Chunk, write_csv, write_parquet
from nftsync.export.workbook import check_fits, sheet_name, workbook
from nftsync.store.catalog import ColumnKind
from nftsync.whole_files import whole_file


def save(frame: pd.DataFrame, path: str | os.PathLike[str]) -> Path:
    """Write a frame to a file, or replace the file; only its owner can read it.

    Parquet loses nothing. Columns of Python integers become text with field metadata, as no machine
    type fits uint256.

    In CSV, integers are digits, and times have the stored form (`2026-01-31T12:00:00.000000Z`; no Z
    without a time zone). Durations are seconds, booleans 0 or 1, and bytes base64. Missing values
    are empty. Text that a spreadsheet would run as a formula gets a leading single quote.

    An Excel workbook has one sheet, named after the file. Text is never a formula or link. Times
    are dates, shown with UTC if they have a time zone. Integers over Excel's limit of 15 digits are
    text; a note at the heading gives their number. Texts over 32,767 characters are cut with a
    note.

    The path ends in `.parquet`, `.csv` or `.xlsx`; missing folders are created. Returns it as an
    absolute path.

    Raises:
        InputError: the path or frame is unusable for this format.
        StoreError: the file cannot be written.
    """
    path = _path(
        path, "pass the frame first, then the path: frames.save(frame, 'holdings.parquet')"
    )
    writers = {".csv": _write_csv, ".parquet": _write_parquet, ".xlsx": _write_workbook}
    write = writers.get(path.suffix.lower())
    if write is None:
        raise InputError(f"{path} does not end in .parquet, .csv or .xlsx; name a file that does")
    if not isinstance(frame, pd.DataFrame):
        advice = "call `to_frame()`" if isinstance(frame, pd.Series) else "pass a frame first"
        raise InputError(f"{type(frame).__name__} is not a DataFrame; {advice}")
    path = path.resolve()
    with whole_file(path, replace=True) as partial, partial.open("wb") as file:
        try:
            write(frame if write is _write_parquet else _with_index(frame), file)
        except UnicodeEncodeError as error:
            raise InputError(_SURROGATE) from error
    return path


def load(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a `.parquet` file of `save`, `nftsync export` or another program.

    Frames from `save` come back unchanged. An export's amounts become frame columns: exact
    `amount`, `amount_text` as sent, and `amount_float`. Pandas reads everything else.

    Raises:
        InputError: the file is missing, not Parquet, or does not match its metadata.
        StoreError: the file cannot be read.
    """
    path = _path(path, "pass a path: frames.load('holdings.parquet')")
    if path.suffix.lower() != ".parquet":
        raise InputError(
            f"{path} does not end in .parquet; name a file that does (other formats lose types)"
        )
    try:
        with pq.ParquetFile(path) as file:
            return _frame_from(file.read())
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except FileNotFoundError:
        raise InputError(f"file {path.absolute()} does not exist") from None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a Parquet file, or it is damaged") from error


def _path(path: object, advice: str) -> Path:
    if isinstance(path, str | os.PathLike):
        name = os.fspath(path)
        if isinstance(name, str):
            return Path(name)
    raise InputError(f"{type(path).__name__} is not a path; {advice}")


_SURROGATE = "the frame has text with a lone surrogate (half a character)"


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    if any(name is not None for name in frame.index.names):
        return frame.reset_index(allow_duplicates=True)
    return frame


def _write_csv(frame: pd.DataFrame, file: BinaryIO) -> None:
    write_csv(file, kinds_of(frame), chunks_of(frame))


def _write_workbook(frame: pd.DataFrame, file: BinaryIO) -> None:
    path = Path(file.name)
    name = sheet_name(path.stem)
    check_fits(name, *frame.shape)
    with workbook(file, path.parent) as book:
        book.write(book.add(name), kinds_of(frame), chunks_of(frame))


def chunks_of(frame: pd.DataFrame) -> Iterator[Chunk]:
    for start in range(0, len(frame), ROWS_STEP):
        part = frame.iloc[start : start + ROWS_STEP]
        columns = [values_of(part.iloc[:, place]) for place in range(part.shape[1])]
        yield list(zip(*columns, strict=True))


def kinds_of(frame: pd.DataFrame) -> list[tuple[str, ColumnKind]]:
    return [
        (str(name), _cell_kind(frame.iloc[:, place])) for place, name in enumerate(frame.columns)
    ]


_CELL_KINDS: dict[str, ColumnKind] = {
    "boolean": "flag",
    "floating": "real",
    "bytes": "bytes",
    "integer": "integer",
}


def _cell_kind(column: pd.Series[Any]) -> ColumnKind:
    if column.dtype.kind in "Mm":
        return "time" if column.dtype.kind == "M" else "duration"
    values = column.astype(object) if isinstance(column.dtype, pd.CategoricalDtype) else column
    return _CELL_KINDS.get(pd.api.types.infer_dtype(values, skipna=True), "text")


#: The metadata of a field with text categories: all categories in order, and whether they are
#: ordered (JSON).
_CATEGORIES = b"nftsync.categories"
_UNREADABLE = (pa.ArrowException, ArithmeticError, AttributeError, KeyError, TypeError, ValueError)


def _write_parquet(frame: pd.DataFrame, file: BinaryIO) -> None:
    for names in (frame.columns.tolist(), [name for name in frame.index.names if name is not None]):
        for name in names:
            if not isinstance(name, str) or names.count(name) > 1:
                raise InputError(f"{name!r} is not text or names two columns; rename it")
    metadata_of: dict[str, dict[bytes, bytes]] = {}
    plain: dict[str, Any] = {}
    try:
        for name, column in frame.items():
            if isinstance(column.dtype, pd.CategoricalDtype):
                metadata_of[str(name)] = _categories_metadata(column)
                if not metadata_of[str(name)]:
                    column = pd.Series(pd.array(column.tolist()), column.index)
                    plain[str(name)] = column
            if column.dtype == object and _are_integers(str(name), column):
                metadata_of[str(name)] = INTEGER
                digits = [None if value is None else str(int(value)) for value in values_of(column)]
                plain[str(name)] = text(pa.array(digits, pa.large_string()))
        table = pa.Table.from_pandas(frame.assign(**plain))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"the frame cannot be written: {' '.join(str(error).split())}") from error
    fields = [
        field.with_metadata({**(field.metadata or {}), **metadata_of.get(field.name, {})})
        for field in table.schema
    ]
    schema = pa.schema(fields, table.schema.metadata)
    write_parquet(file, schema, [table.cast(schema)])


def _are_integers(name: str, column: pd.Series[Any]) -> bool:
    inferred = pd.api.types.infer_dtype(column, skipna=True)
    if inferred.startswith("mixed"):
        raise InputError(
            f"the column {name!r} has objects without a Parquet type ({inferred});"
            " convert them to one type or to text"
        )
    # An empty column of amounts is text, too.
    return inferred in ("integer", "empty")


def _categories_metadata(column: pd.Series[Any]) -> dict[bytes, bytes]:
    categories = column.cat.categories
    if categories.inferred_type not in {"string", "empty"}:
        return {}
    saved = {"names": categories.tolist(), "ordered": column.cat.ordered}
    return {_CATEGORIES: json.dumps(saved).encode()}


def _frame_from(table: pa.Table) -> pd.DataFrame:
    frame = table.to_pandas()
    columns: dict[Any, Any] = {}
    exact: dict[str, Exact] = {}
    for name, column in frame.items():
        field = table.schema.field(name) if name in table.schema.names else None
        metadata = (field.metadata if field is not None else None) or {}
        try:
            if metadata.get(EXACT) == b"amount":
                amounts = Amounts(pa.array(column, pa.large_string(), from_pandas=True))
                exact[str(name)] = amounts.exact()
                columns |= {name: None, f"{name}_text": amounts.text()}
                columns |= {"amount_float": amounts.approximate()} if name == "amount" else {}
            else:
                columns[name] = _restored(column, metadata)
        except _UNREADABLE as error:
            raise InputError(
                f"the column {name!r} does not match its metadata; another program changed the file"
            ) from error
    columns |= amount_columns(exact, None)
    restored = pd.DataFrame(columns, index=frame.index, copy=False)
    restored.attrs = frame.attrs
    return restored.rename_axis(columns=frame.columns.name)


def _restored(column: pd.Series[Any], metadata: dict[bytes, bytes]) -> pd.Series[Any]:
    if metadata.get(EXACT) == b"integer":
        integers = [None if value is None else _integer(value) for value in values_of(column)]
        return pd.Series(integers, index=column.index, dtype=object)
    if _CATEGORIES in metadata:
        saved = json.loads(metadata[_CATEGORIES])
        kind = pd.CategoricalDtype(pd.Index(saved["names"], dtype="str"), saved["ordered"])
        return column.astype("str").astype(kind)
    return column


def _integer(written: str) -> int:
    if re.fullmatch("-?[0-9]+", written) is None:
        raise ValueError("not an integer")
    return int(written)
