"""Excel workbooks, with safe text and exact digits."""

from __future__ import annotations

import base64
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from nftsync.errors import InputError
from nftsync.export.formats import Chunk
from nftsync.store.catalog import ColumnKind

if TYPE_CHECKING:
    from xlsxwriter import Workbook
    from xlsxwriter.worksheet import Worksheet


#: Digits of a number that Excel keeps; it replaces the rest with zeros.
_MOST_DIGITS = 15
#: Amounts as sent that a number shows as they are.
_PLAIN_NUMBER = re.compile(rf"0|[1-9][0-9]{{0,{_MOST_DIGITS - 1}}}", re.ASCII)
# Excel's own limits (Microsoft, "Excel specifications and limits").
_MOST_ROWS, _MOST_COLUMNS = 1_048_576, 16_384
_MOST_CHARACTERS = 32_767  # of UTF-16
_MOST_NAME = 31
_NOT_IN_NAME = str.maketrans("[]:*?/\\", "_______")
#: Earlier dates would be off by a day: Excel's 1900 has a 29 February.
_FIRST_DAY = datetime(1900, 3, 1)  # noqa: DTZ001 - cells have no zone
_WIDTHS = {"time": 25, "duration": 14}
_WIDEST = 48
#: Characters of the widest number, which is never cut: half of it would be another number.
_WIDEST_NUMBER = 100
#: Formats of cells. `@` also keeps what users type there as text.
_TEXT = {"num_format": "@", "align": "left"}
_HEAD = {**_TEXT, "bold": True, "bg_color": "#E8EBF0", "bottom": 1}
_RIGHT = {"align": "right", "indent": 1}
_TIME = {"num_format": "yyyy-mm-dd hh:mm:ss", "align": "left"}
_STYLES: dict[str, dict[str, Any]] = {
    "text": _TEXT,
    "head": _HEAD,
    "number_head": {**_HEAD, **_RIGHT},
    "title": {**_TEXT, "bold": True, "font_size": 14},
    "digits": {**_RIGHT, "num_format": "@", "bg_color": "#FFF2CC"},
    "integer": {**_RIGHT, "num_format": "#,##0"},
    "total": {"bold": True, "top": 1},
    "time": _TIME,
    "utc": {**_TIME, "num_format": 'yyyy-mm-dd hh:mm:ss" UTC"'},
    "duration": {"num_format": "[h]:mm:ss"},
}
#: Kinds of exact numbers.
_NUMBERS = {"amount", "integer"}
#: Number of rows of a chunk that determine the widths of columns of text.
_ROWS_FOR_WIDTH = 200
#: Characters in a line of a printed page.
_PRINTED_WIDTH = 170
#: Note that appears at a selected heading.
_UNSUMMED = (
    "Shaded: {:,} of these numbers are text, because they have more than 15 digits or another form"
    " than a whole number. SUM leaves them out."
)


class Sheet(NamedTuple):
    """A written sheet; `rows` excludes the header, and `cut` counts cut texts."""

    name: str
    rows: int
    cut: int


@contextmanager
def workbook(file: BinaryIO, folder: Path) -> Iterator[Book]:
    """Yield a workbook to fill; temporary rows go to `folder`."""
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
        self._formats = {name: book.add_format(style) for name, style in _STYLES.items()}
        self._cut = 0
        self._unsummed: Counter[int] = Counter()  # by column

    def add(self, name: str) -> Worksheet:
        return self._book.add_worksheet(name)

    def write(
        self,
        sheet: Worksheet,
        columns: Sequence[tuple[str, ColumnKind]],
        chunks: Iterable[Chunk],
        *,
        above: Sequence[str] = (),
        total: bool = False,
    ) -> Sheet:
        """Fill an empty sheet with a table below the lines `above`, the first of them a title.

        Printed pages have the first columns that fit. With `total`, the last row is bold.
        """
        name = sheet.get_name()
        check_fits(name, 0, len(columns))
        self._cut = 0
        self._unsummed.clear()
        for number, line in enumerate(above):
            sheet.write_string(number, 0, line, self._formats["text" if number else "title"])
        top = len(above) + 1 if above else 0
        for place, (heading, kind) in enumerate(columns):
            style = "number_head" if kind in _NUMBERS else "head"
            sheet.write_string(top, place, self._fitted(heading), self._formats[style])
        kinds = [kind for _, kind in columns]
        widths = [_WIDTHS.get(kind, min(len(heading) + 4, _WIDEST)) for heading, kind in columns]
        row = top
        for rows in chunks:
            check_fits(name, row + len(rows), len(columns))
            _widen(widths, kinds, rows)
            for values in rows:
                row += 1
                for place, value in enumerate(values):
                    if value is not None:
                        self._put(sheet, row, place, kinds[place], value)
        for place, width in enumerate(widths):
            sheet.set_column(place, place, width)
            if count := self._unsummed[place]:
                # A comment would have to be written before the rows.
                note = {"validate": "any", "input_message": _UNSUMMED.format(count)}
                sheet.data_validation(top, place, top, place, note)
        if columns:
            sheet.autofilter(top, 0, row - total, len(columns) - 1)
            if total:
                bold = {"type": "no_errors", "format": self._formats["total"]}
                sheet.conditional_format(row, 0, row, len(columns) - 1, bold)
            printed = sum(width <= _PRINTED_WIDTH for width in accumulate(widths))
            sheet.print_area(0, 0, row, max(printed, 1) - 1)
        sheet.freeze_panes(top + 1, 0)
        sheet.ignore_errors({"number_stored_as_text": f"A1:XFD{_MOST_ROWS}"})
        sheet.set_landscape()
        sheet.fit_to_pages(1, 0)
        sheet.repeat_rows(top)
        sheet.set_footer("&L&F: &A&RPage &P of &N")
        return Sheet(name, row - top, self._cut)

    def _put(self, sheet: Worksheet, row: int, column: int, kind: ColumnKind, value: Any) -> None:
        if kind == "amount" and _PLAIN_NUMBER.fullmatch(value):
            kind, value = "integer", int(value)
        if kind == "integer" and abs(value) < 10**_MOST_DIGITS:
            sheet.write_number(row, column, value, self._formats["integer"])
        elif kind == "real" and math.isfinite(value):
            sheet.write_number(row, column, value)
        elif kind == "flag":
            sheet.write_boolean(row, column, bool(value))
        elif kind == "time" and (moment := _moment(value)) is not None:
            shown = self._formats["utc" if value.endswith("Z") else "time"]
            sheet.write_datetime(row, column, moment, shown)
        elif kind == "duration" and value >= 0:  # Excel cannot show negative durations
            sheet.write_number(row, column, value / 86_400, self._formats["duration"])
        else:
            shown = self._formats["text"]
            if kind == "duration":
                value = f"{value / 86_400} days"
            elif kind == "bytes":
                value = base64.b64encode(value).decode("ascii")
            elif kind in _NUMBERS:
                shown = self._formats["digits"]
                self._unsummed[column] += 1
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
    name = text.translate(_NOT_IN_NAME)[:_MOST_NAME].strip("' ")
    return name if name and name.casefold() != "history" else "data"


def _moment(text: str) -> datetime | None:
    """Return None for a time that Excel cannot represent."""
    try:
        moment = datetime.fromisoformat(text.removesuffix("Z"))
    except ValueError:
        return None
    return moment if moment.tzinfo is None and moment >= _FIRST_DAY else None


def _widen(widths: list[int], kinds: Sequence[ColumnKind], rows: Chunk) -> None:
    for place, column in enumerate(zip(*rows, strict=True)):
        if kinds[place] in _NUMBERS:
            digits = max((len(str(value)) for value in column if value is not None), default=0)
            widths[place] = max(widths[place], min(digits * 4 // 3, _WIDEST_NUMBER) + 3)
        elif kinds[place] == "text":
            texts = (len(str(value)) for value in column[:_ROWS_FOR_WIDTH] if value is not None)
            widths[place] = max(widths[place], min(max(texts, default=0), _WIDEST) + 1)
