"""Excel workbooks, with safe text and exact digits."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from nftsync.errors import InputError
from nftsync.export.formats import CellKind, Rows

if TYPE_CHECKING:
    from xlsxwriter import Workbook
    from xlsxwriter.worksheet import Worksheet


#: Digits of a number that Excel keeps; it replaces the rest with zeros.
MOST_DIGITS = 15
# Excel's own limits (Microsoft, "Excel specifications and limits").
_MOST_ROWS, _MOST_COLUMNS = 1_048_576, 16_384
_MOST_CHARACTERS = 32_767  # of UTF-16
_MOST_NAME = 31
_NOT_IN_NAME = str.maketrans("[]:*?/\\", "_______")
#: Earlier dates would be off by a day: Excel's 1900 has a 29 February.
_FIRST_DAY = datetime(1900, 3, 1)  # noqa: DTZ001 - cells have no zone
_WIDTHS = {"time": 25, "duration": 14}
_WIDEST = 48
#: Kinds of text cells.
_TEXTS = {"text", "amount"}
#: Number of rows that determine the widths of columns.
_ROWS_FOR_WIDTH = 200


class Sheet(NamedTuple):
    """A written sheet: its name, rows without the header, and number of cut texts."""

    name: str
    rows: int
    cut: int


@contextmanager
def workbook(file: BinaryIO, folder: Path) -> Iterator[Book]:
    """Yield a workbook to fill, and write it to a file after the block.

    Temporary rows go to `folder`.
    """
    from xlsxwriter import Workbook

    # One row at a time is in memory, and text stays text.
    conversions = ("strings_to_formulas", "strings_to_urls", "strings_to_numbers")
    options = {"constant_memory": True, "tmpdir": str(folder), **dict.fromkeys(conversions, False)}
    book = Workbook(_UntilClosed(file), options)
    book.use_zip64()
    yield Book(book)
    book.close()


class _UntilClosed:
    """A file that ignores xlsxwriter's second attempt to close it after an error."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        # On a closed file, each method returns a position beyond all data.
        return (lambda *_: 1 << 40) if self._file.closed else getattr(self._file, name)


class Book:
    """An open workbook from `workbook`."""

    def __init__(self, book: Workbook) -> None:
        self._book = book
        # The format also keeps what users type there as text.
        self._text = book.add_format({"num_format": "@"})
        bold = {"num_format": "@", "bold": True}
        self._head = book.add_format({**bold, "bg_color": "#E8EBF0", "bottom": 1})
        self._title = book.add_format({**bold, "font_size": 14})
        self._digits = book.add_format({"num_format": "@", "align": "right"})
        self._integer = book.add_format({"num_format": "0"})
        self._utc = book.add_format({"num_format": 'yyyy-mm-dd hh:mm:ss" UTC"', "align": "left"})
        self._time = book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss", "align": "left"})
        self._duration = book.add_format({"num_format": "[h]:mm:ss"})
        self._cut = 0

    def add(self, name: str) -> Worksheet:
        """Add a sheet after the others; `write` fills it at any time."""
        return self._book.add_worksheet(name)

    def write(
        self,
        sheet: Worksheet,
        columns: Sequence[tuple[str, CellKind]],
        chunks: Iterable[Rows],
        *,
        above: Sequence[str] = (),
    ) -> Sheet:
        """Fill an empty sheet with a table below the lines `above`, the first of them a title.

        Raises:
            InputError: too many rows or columns.
        """
        name = sheet.get_name()
        check_fits(name, 0, len(columns))
        self._cut = 0
        for number, line in enumerate(above):
            sheet.write_string(number, 0, line, self._text if number else self._title)
        top = len(above) + 1 if above else 0
        for place, (heading, _) in enumerate(columns):
            sheet.write_string(top, place, self._fitted(heading), self._head)
        kinds = [kind for _, kind in columns]
        widths = [len(heading) + 4 for heading, _ in columns]
        row = top
        for rows in chunks:
            check_fits(name, row + len(rows), len(columns))
            if row == top:
                _widen(widths, kinds, rows)
            for values in rows:
                row += 1
                for place, value in enumerate(values):
                    if value is not None:
                        self._put(sheet, row, place, kinds[place], value)
        for place, kind in enumerate(kinds):
            sheet.set_column(place, place, min(_WIDTHS.get(kind, widths[place]), _WIDEST))
        if columns:
            sheet.autofilter(top, 0, row, len(columns) - 1)
        if not top:
            sheet.freeze_panes(1, 0)
        sheet.ignore_errors({"number_stored_as_text": f"A1:XFD{_MOST_ROWS}"})
        return Sheet(name, row - top, self._cut)

    def _put(self, sheet: Worksheet, row: int, column: int, kind: CellKind, value: Any) -> None:
        if kind == "integer" and abs(value) < 10**MOST_DIGITS:
            sheet.write_number(row, column, value, self._integer)
        elif kind == "real" and math.isfinite(value):
            sheet.write_number(row, column, value)
        elif kind == "flag":
            sheet.write_boolean(row, column, bool(value))
        elif kind == "time" and (moment := _moment(value)) is not None:
            shown = self._utc if value.endswith("Z") else self._time
            sheet.write_datetime(row, column, moment, shown)
        elif kind == "duration" and value >= 0:  # Excel cannot show negative durations
            sheet.write_number(row, column, value / 86_400, self._duration)
        else:
            if kind == "duration":
                value = f"{value / 86_400} days"
            elif kind == "bytes":
                value = base64.b64encode(value).decode("ascii")
            shown = self._digits if kind in {"amount", "integer"} else self._text
            sheet.write_string(row, column, self._fitted(str(value)), shown)

    def _fitted(self, text: str) -> str:
        if len(text) <= _MOST_CHARACTERS and text.isascii():
            return text
        units = text.encode("utf-16-le")  # raises an error for a lone surrogate
        if len(units) <= _MOST_CHARACTERS * 2:
            return text
        self._cut += 1
        note = f"… (cut from {len(text):,} characters)"
        return units[: (_MOST_CHARACTERS - len(note)) * 2].decode("utf-16-le", "ignore") + note


def check_fits(name: str, rows: int, columns: int = 1) -> None:
    """Raise InputError if a table has too many rows or columns for a sheet."""
    for count, most, unit in (
        (rows + 1, _MOST_ROWS, "rows, including the heading"),
        (columns, _MOST_COLUMNS, "columns"),
    ):
        if count > most:
            raise InputError(
                f"{name} does not fit an Excel sheet, which has {most:,} {unit}; write Parquet or"
                " CSV instead"
            )


def sheet_name(text: str) -> str:
    """Return a valid sheet name: up to 31 characters without reserved ones."""
    name = text.translate(_NOT_IN_NAME)[:_MOST_NAME].strip("' ")
    return name if name and name.casefold() != "history" else "data"


def _moment(text: str) -> datetime | None:
    """Parse a stored time for a cell; None: Excel cannot represent it."""
    try:
        moment = datetime.fromisoformat(text.removesuffix("Z"))
    except ValueError:
        return None
    return moment if moment.tzinfo is None and moment >= _FIRST_DAY else None


def _widen(widths: list[int], kinds: Sequence[CellKind], rows: Rows) -> None:
    for values in rows[:_ROWS_FOR_WIDTH]:
        for place, value in enumerate(values):
            if isinstance(value, str) or (value is not None and kinds[place] in _TEXTS):
                widths[place] = max(widths[place], min(len(str(value)), _WIDEST) + 1)
