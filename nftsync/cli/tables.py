"""Tables: fitted to a terminal, complete in pipes and files."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain, product
from shutil import get_terminal_size
from typing import Any, Literal, NamedTuple, TypeAlias

import click

from nftsync.cli import options
from nftsync.cli.cells import colored, cut_middle, isolated, length, wrapped_lines
from nftsync.cli.output import print_json_rows, say, say_truncated
from nftsync.text import MISSING, short_id, visible

#: Kinds of values. In a terminal an `id` is cut to its two ends, a `time` to seconds or minutes in
#: UTC, a `window` to its end, a `day` to the date, and a `text` in its middle. A `ref` (an id that
#: other commands take) is cut only if the row would need another line. A `key` and a `number` are
#: never cut; a fitted table separates the thousands of a number. A `state` is colored. A
#: `message`, the last column, is wrapped.
Kind: TypeAlias = Literal[
    "text", "id", "ref", "key", "time", "window", "day", "number", "state", "message"
]
_Row: TypeAlias = Mapping[str, Any]
#: Rows of a table, some at a time.
Pages: TypeAlias = Iterable[Iterable[Mapping[str, Any]]]

_GAP, _BETWEEN = 2, "  "
_INDENT = 4
#: Width of times to the minute.
_MINUTES = 16
#: Least widths by kind, and of texts: to fit a row in a line, the last two. A message that would be
#: narrower has a line of its own.
_NARROW = {"ref": 13, "time": _MINUTES, "window": 22, "message": 60}
_NARROW_TEXTS = (36, 28, 20, 14)
#: What gets the remaining room of a line first: kinds of columns, up to a width. Texts share the
#: room; the others are shown whole or cut.
_WIDENING = (
    ({"text"}, 36),
    ({"ref"}, 60),
    ({"text"}, 60),
    ({"time", "window"}, 60),
    ({"text", "message"}, sys.maxsize),
)
#: Least number of rows for which columns with one value are left out.
_SOME_ROWS = 3
#: Longest cell of a complete table for which other rows are padded.
_PADDED = 80
#: Longest value below a table.
_QUOTED = 40
#: Longest number that is not cut; 63 bits have 19 digits.
_DIGITS = 24
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


class TableColumn(NamedTuple):
    """Column of a table.

    `key` names the values in a row, `name` names that belong to ids, and `start` the start of a
    `window` that ends at `key`; complete tables have a column for each. A terminal shows `short`,
    else `name`, instead of an id. It shows an `optional` column only if each row then fits in a
    line, and no column whose values all begin the ones of the column `within`.
    """

    heading: str
    key: str
    kind: Kind = "text"
    name: str | None = None
    optional: bool = False
    within: str | None = None
    start: str | None = None
    short: str | None = None


wide_option = options.flag("--wide", "Show ids, times and texts in full, in a wide table.")


class View(NamedTuple):
    """Options of a listing; `limit` 0 means all rows."""

    limit: int
    wide: bool
    as_json: bool

    def show(
        self,
        rows: Any,
        columns: Sequence[TableColumn],
        noun: str,
        *,
        pages: Callable[[Any], Pages] = lambda rows: [rows],
        as_json: Callable[[Any], Pages] | None = None,
        total: int | None = None,
        newest: bool = False,
        empty: str = "",
    ) -> None:
        """Print rows (a list, or a frame for `pages`) as JSON, or the first ones as a table."""
        if self.as_json:
            print_json_rows((as_json or pages)(rows))
        elif len(rows):
            first = rows[-self.limit :] if newest else rows[: self.limit or None]
            print_table(pages(first), columns, wide=self.wide)
            say_truncated(self.limit, total or len(rows), noun, newest=newest)
        elif empty:
            say(empty)


def view_options(
    json_text: str,
    limit_text: str = "Number of rows; 0 shows all.",
    default: int = 50,
    most: int | None = None,
) -> options.Decorator:
    """Give a command `--limit`, `--wide` and `--json`, as `view`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(*args: Any, **values: Any) -> Any:
            view = View(*map(values.pop, ("limit", "wide", "as_json")))
            return command(*args, view=view, **values)

        return options.combined(
            options.limit(limit_text, default, most), wide_option, options.json(json_text)
        )(call)

    return decorate


def print_table(pages: Pages, columns: Sequence[TableColumn], *, wide: bool = False) -> None:
    """Print a table: fitted to a terminal unless `wide`, complete elsewhere."""
    for lines in table_lines(pages, columns, None if wide else _terminal_width()):
        click.echo("\n".join(lines))


def _terminal_width() -> int | None:
    return get_terminal_size().columns if sys.stdout.isatty() else None


def table_lines(
    pages: Pages, columns: Sequence[TableColumn], width: int | None
) -> Iterator[list[str]]:
    """Yield the headings, the lines of each page, and what the table left out.

    The first page decides the widths. Without a `width`, each row is one complete line.
    """
    shown = columns if width is not None else [*chain(*map(_whole, columns))]
    texts = [_writer(column, width) for column in shown]
    written = ([[text(row) for text in texts] for row in page] for page in pages)
    first, second = next(written, []), next(written, [])
    layout = _Layout(shown, first, width)
    below: list[str] = []
    if width is not None:
        if not second:
            below = layout.omit(first)
        below += layout.fit(width)
    yield layout.head()
    for page in chain([first, second], written):
        if page:
            yield [line for cells in page for line in layout.lines(cells)]
    if width is not None and below:
        yield wrapped_lines(" ".join(below), width)


def _whole(column: TableColumn) -> Iterator[TableColumn]:
    if column.start is not None:
        yield TableColumn(column.heading, column.key, "time")
        yield TableColumn(column.start.replace("_", " "), column.start, "time")
    elif column.name is None:
        yield column
    else:
        yield TableColumn(column.heading, column.name)
        yield TableColumn(column.key.replace("_", " "), column.key, column.kind)


def _writer(column: TableColumn, width: int | None) -> Callable[[_Row], str]:
    key, kind, since = column.key, column.kind, column.start
    name = column.short or column.name
    # A key wider than the terminal would be broken.
    longest = {"id": 0, "number": _DIGITS, "key": (width or 0) - _INDENT}.get(kind)

    def text(row: _Row) -> str:
        label = None if name is None else row[name]
        value = row[key] if label is None else label
        shown = MISSING if value is None else visible(str(value)) or MISSING
        if width is None or label is not None:
            return shown
        if since is not None:
            return _window(row[since], shown)
        if kind == "number" and _NUMBER.fullmatch(shown) and len(shown) <= _DIGITS:
            return f"{Decimal(shown):,}".replace("-", "−")
        if kind in {"time", "day"}:
            return shown[: 19 if kind == "time" else 10].replace("T", " ")
        return shown if longest is None or len(shown) <= longest else short_id(shown)

    return text


def _window(start: str | None, end: str) -> str:
    start, end = ((at or "")[:19].replace("T", " ") for at in (start, end))
    if start[:_MINUTES] == end[:_MINUTES]:
        return start if start == end else f"{start}–{end[17:]}"
    start, end = start[:_MINUTES], end[:_MINUTES]
    if not start:
        return f"until {end}"
    return f"{start}–{end[11:] if start[:10] == end[:10] else end}"


class _Layout:
    def __init__(
        self, columns: Sequence[TableColumn], first: Sequence[Sequence[str]], width: int | None
    ) -> None:
        self._columns = columns
        self._fitted = width is not None
        self._isolates = self._fitted or sys.stdout.isatty()
        in_utc = {"time", "window"} if self._fitted else {"time", "day"}
        self._headings = [
            f"{column.heading} (UTC)" if column.kind in in_utc else column.heading
            for column in columns
        ]
        # Names are cut as texts; ids are short already.
        self._kinds = ["text" if column.name else column.kind for column in columns]
        self._widths = [
            max([length(heading), *(length(row[place]) for row in first)])
            for place, heading in enumerate(self._headings)
        ]
        if not self._fitted:
            self._widths = [min(natural, _PADDED) for natural in self._widths]
        self._places = [*range(len(columns))]
        self._bands = [self._places]

    def omit(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """Leave out columns that say nothing; return sentences about them."""
        if len(rows) < _SOME_ROWS:
            return []
        headings = [column.heading for column in self._columns]
        same, empty, inside = {}, {}, {}
        for place, column in enumerate(self._columns):
            values = {row[place] for row in rows}
            whole = None if column.within is None else headings.index(column.within)
            if column.kind in {"key", "ref"} or (column.kind == "number" and not column.optional):
                continue
            if values == {MISSING}:
                empty[place] = column.heading
            elif len(values) == 1:
                value = cut_middle(values.pop(), _QUOTED)
                unit = " UTC" if column.kind in {"time", "window"} else ""
                same[place] = f"{column.heading} {isolated(value)}{unit}"
            elif whole is not None and all(
                row[place] == MISSING or row[whole].startswith(row[place]) for row in rows
            ):
                inside[place] = f"Each {column.within} begins with its {column.heading}."
        left = [place for place in self._places if place not in {*same, *empty, *inside}]
        if not left:
            return []
        self._places = left
        return [
            *([f"All rows: {', '.join(same.values())}."] if same else []),
            *([_no_row_has([*empty.values()])] if empty else []),
            *inside.values(),
        ]

    def fit(self, width: int) -> list[str]:
        """Use few lines per row, and cut little; return a sentence about columns left out."""
        optional = [place for place in self._places if self._columns[place].optional]
        choices = [
            [place for place in self._places if place not in optional[count:]]
            for count in range(len(optional), -1, -1)
        ]
        for text, places in product(_NARROW_TEXTS[-2:], choices):
            bands = self._packed(places, text, width)
            if sum(self._kinds[band[0]] != "message" for band in bands) == 1:
                break
        else:
            places = self._places
            text = min(_NARROW_TEXTS, key=lambda text: len(self._packed(places, text, width)))
            bands = self._packed(places, text, width)
        self._bands, natural, self._widths = bands, self._widths, self._narrow(text, width)
        for number, band in enumerate(bands):
            self._widen(band, natural, width - bool(number) * _INDENT)
        hidden = [self._columns[place].heading for place in self._places if place not in places]
        return [f"More columns with --wide: {', '.join(hidden)}."] if hidden else []

    def _narrow(self, text: int, width: int) -> list[int]:
        most = {**_NARROW, "text": text}
        columns = zip(self._widths, self._kinds, self._headings, strict=True)
        return [
            min(natural, width - _INDENT, max(most.get(kind, natural), length(heading)))
            for natural, kind, heading in columns
        ]

    def _packed(self, places: Sequence[int], text: int, width: int) -> list[list[int]]:
        bands: list[list[int]] = [[]]
        room, widths = width, self._narrow(text, width)
        for place in places:
            if widths[place] > room and bands[-1]:
                bands.append([])
                room = width - _INDENT
            bands[-1].append(place)
            room -= widths[place] + _GAP
        return bands

    def _widen(self, band: Sequence[int], natural: Sequence[int], width: int) -> None:
        widths = self._widths
        room = width + _GAP - sum(widths[place] + _GAP for place in band)
        for kinds, most in _WIDENING:
            wishes = {
                place: min(natural[place], most) - widths[place]
                for place in band
                if self._kinds[place] in kinds and min(natural[place], most) > widths[place]
            }
            for so_far, place in enumerate(sorted(wishes, key=wishes.__getitem__)):
                more = wishes[place]
                if "text" in kinds:
                    more = min(more, room // (len(wishes) - so_far))
                if more <= room:
                    widths[place] += more
                    room -= more

    def head(self) -> list[str]:
        lines = [*self.lines(self._headings)]
        ends = (sum(self._widths[place] + _GAP for place in band) for band in self._bands)
        return [*lines, "─" * (max(ends) - _GAP)]

    def lines(self, cells: Sequence[str]) -> Iterator[str]:
        for number, band in enumerate(self._bands):
            if number and all(
                self._kinds[place] == "message" and cells[place] == MISSING for place in band
            ):
                continue
            indent = bool(number) * _INDENT
            line, below = " " * indent, []
            for place in band:
                text, width, kind = cells[place], self._widths[place], self._kinds[place]
                if kind == "message" and self._fitted and length(text) > width:
                    text, *more = wrapped_lines(text, width)
                    below = [" " * indent + isolated(part) for part in more]
                line += self._cell(text, width, kind) + _BETWEEN
                indent += width + _GAP
            yield line.rstrip()
            yield from below

    def _cell(self, text: str, width: int, kind: str) -> str:
        size = len(text) if text.isascii() else length(text)
        if size > width and self._fitted:
            if kind in _SHORTENED:
                text = _SHORTENED[kind](text, width)
            size = length(text)
        space = " " * (width - size)
        shown = colored(text) if kind == "state" else text
        shown = isolated(shown) if self._isolates else shown
        return space + shown if kind == "number" else shown + space


def _no_row_has(headings: Sequence[str]) -> str:
    if len(headings) > 1:
        return f"No row has: {', '.join(headings)}."
    (heading,) = headings
    article = "" if heading.endswith("s") else "an " if heading[0] in "aeiou" else "a "
    return f"No row has {article}{heading}."


#: By kind: how to shorten a text that is too wide.
_SHORTENED: dict[str, Callable[[str, int], str]] = {
    "text": cut_middle,
    "ref": lambda text, _: short_id(text),
    "time": lambda text, _: text[:_MINUTES],
    "window": lambda text, _: f"until {text[-_MINUTES:]}",
}
