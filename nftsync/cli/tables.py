"""Tables for the terminal: fitted to its width there, complete in pipes and files."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from shutil import get_terminal_size
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import click

from nftsync.cli import options
from nftsync.cli.output import print_json_rows, say_truncated
from nftsync.text import MISSING, short_id, visible

#: Kinds of values. In a terminal an `id` is cut to its two ends, a `time` to seconds in UTC, and a
#: `text` to whole words. A `key` (input of other commands) and a `number` are never cut. A
#: `message`, the last column, is wrapped.
Kind: TypeAlias = Literal["text", "id", "key", "time", "number", "message"]
_Row: TypeAlias = Mapping[str, Any]
_Rows = TypeVar("_Rows", bound=Sequence[Any])

_GAP, _BETWEEN = 2, "  "
_INDENT = 4
#: Widths to which texts are cut: the widest that needs the fewest lines.
_NARROWEST, _NARROWEST_MESSAGE = 14, 16
_CUTS = (60, 48, 36, 28, 20, _NARROWEST)
#: Longest cell of a complete table for which other rows are padded.
_PADDED = 80
#: Longest number that is not cut; 63 bits have 19 digits.
_DIGITS = 24


class TableColumn(NamedTuple):
    """Column of a table.

    `key` names the values in a row. `name` names labels to show instead of ids; complete tables
    have a column for each.
    """

    heading: str
    key: str
    kind: Kind = "text"
    name: str | None = None


wide_option = options.flag("--wide", "Show ids, times and texts in full, however wide the table.")


class View(NamedTuple):
    """Output options of a command that lists rows; `limit` 0 means all rows."""

    limit: int
    wide: bool
    as_json: bool

    def first(self, rows: _Rows) -> _Rows:
        """Return the rows of the table."""
        return rows[: self.limit or None]  # type: ignore[return-value]

    def show(self, rows: list[dict[str, Any]], columns: Sequence[TableColumn], noun: str) -> None:
        """Print rows, and how many the table left out."""
        if self.as_json:
            print_json_rows([rows])
        elif rows:
            print_table([self.first(rows)], columns, wide=self.wide)
            say_truncated(self.limit, len(rows), noun)


def view_options(
    json_text: str,
    limit_text: str = "Number of rows shown; 0 shows all.",
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


def print_table(
    pages: Iterable[Iterable[_Row]], columns: Sequence[TableColumn], *, wide: bool = False
) -> None:
    """Print a table: fitted to a terminal unless `wide`, complete elsewhere."""
    for lines in table_lines(pages, columns, None if wide else _terminal_width()):
        click.echo("\n".join(lines))


def wrapped(text: str) -> str:
    """Wrap a text to the width of the terminal, if stdout is one."""
    width = _terminal_width()
    return text if width is None else click.wrap_text(text, width)


def _terminal_width() -> int | None:
    return get_terminal_size().columns if sys.stdout.isatty() else None


def table_lines(
    pages: Iterable[Iterable[_Row]], columns: Sequence[TableColumn], width: int | None
) -> Iterator[list[str]]:
    """Yield the headings, then the lines of each page of rows.

    The first page decides the widths. Without a `width`, each row is one complete line.
    """
    utc = [x._replace(heading=f"{x.heading} (UTC)") if x.kind == "time" else x for x in columns]
    shown = utc if width is not None else [*chain(*map(_whole, utc))]
    texts = [_writer(column, width) for column in shown]
    written = ([[text(row) for text in texts] for row in page] for page in pages)
    first = next(written, [])
    layout = _Layout(shown, first, width)
    yield layout.head()
    for page in chain([first], written):
        if page:
            yield [line for cells in page for line in layout.lines(cells)]


def _whole(column: TableColumn) -> Iterator[TableColumn]:
    if column.name is None:
        yield column
    else:
        yield TableColumn(column.heading, column.name)
        yield TableColumn(column.key.replace("_", " "), column.key, column.kind)


def _writer(column: TableColumn, width: int | None) -> Callable[[_Row], str]:
    _, key, kind, name = column
    # A key wider than the terminal would be broken.
    longest = {"id": 0, "number": _DIGITS, "key": (width or 0) - _INDENT}.get(kind)

    def text(row: _Row) -> str:
        label = None if name is None else row[name]
        value = row[key] if label is None else label
        shown = MISSING if value is None else visible(str(value)) or MISSING
        if width is None or label is not None:
            return shown
        if kind == "time":
            return shown[:19].replace("T", " ")
        return shown if longest is None or len(shown) <= longest else short_id(shown)

    return text


class _Layout:
    def __init__(
        self, columns: Sequence[TableColumn], first: Sequence[Sequence[str]], width: int | None
    ) -> None:
        self._columns = columns
        # Names are cut as texts; ids are short already.
        self._kinds = ["text" if column.name else column.kind for column in columns]
        self._widths = [
            max([_length(column.heading), *(_length(row[place]) for row in first)])
            for place, column in enumerate(columns)
        ]
        if width is None:
            self._widths = [min(natural, _PADDED) for natural in self._widths]
        self._bands = [[*range(len(columns))]]
        self._cuts = width is not None
        if width is not None:
            self._fit(width)

    def _fit(self, width: int) -> None:
        """Use as few lines per row as possible, and cut as little as possible."""
        natural = self._widths
        fewest = len(self._packed(_NARROWEST, width))
        cuts = (min(cut, width - _INDENT) for cut in _CUTS)
        most = next(cut for cut in cuts if len(self._packed(cut, width)) == fewest)
        self._bands = self._packed(most, width)
        widths = self._widths = self._cut(most)
        for number, band in enumerate(self._bands):
            room = (
                width - bool(number) * _INDENT + _GAP - sum(widths[place] + _GAP for place in band)
            )
            wanting = sorted(band, key=lambda place: natural[place] - widths[place])
            for so_far, place in enumerate(wanting):
                share = max(room, 0) // (len(wanting) - so_far)
                more = min(natural[place] - widths[place], share)
                widths[place] += more
                room -= more

    def _cut(self, most: int) -> list[int]:
        limits = {"text": most, "message": max(most, _NARROWEST_MESSAGE)}
        kinds = zip(self._widths, self._kinds, strict=True)
        return [min(width, limits.get(kind, width)) for width, kind in kinds]

    def _packed(self, most: int, width: int) -> list[list[int]]:
        bands: list[list[int]] = [[]]
        room = width
        for place, needed in enumerate(self._cut(most)):
            if needed > room and bands[-1]:
                bands.append([])
                room = width - _INDENT
            bands[-1].append(place)
            room -= needed + _GAP
        return bands

    def head(self) -> list[str]:
        lines = [*self.lines([column.heading for column in self._columns])]
        ends = (sum(self._widths[place] + _GAP for place in band) for band in self._bands)
        return [*lines, "─" * (max(ends) - _GAP)]

    def lines(self, cells: Sequence[str]) -> Iterator[str]:
        for number, band in enumerate(self._bands):
            if number and all(
                self._kinds[place] == "message" and cells[place] == MISSING for place in band
            ):
                continue
            indent = " " * (bool(number) * _INDENT)
            parts: list[str] = []
            below: list[str] = []
            for place in band:
                text, width, kind = cells[place], self._widths[place], self._kinds[place]
                length = len(text) if text.isascii() else _length(text)
                if length > width and self._cuts:
                    if kind == "text":
                        text = _words(text, width)
                    elif kind == "message":
                        before = " " * _length(indent + _BETWEEN.join([*parts, ""]))
                        text, *more = _message(text, width)
                        below = [before + line for line in more]
                    length = _length(text)
                space = " " * (width - length)
                parts.append(space + text if kind == "number" else text + space)
            yield (indent + _BETWEEN.join(parts)).rstrip()
            yield from below


def _length(text: str) -> int:
    if text.replace("…", "").replace(MISSING, "").isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _message(text: str, width: int) -> list[str]:
    from rich.console import Console
    from rich.text import Text

    return [str(line).rstrip() for line in Text(text).wrap(Console(), width)]


def _words(text: str, width: int) -> str:
    """Return the first words, or the two ends of a long first word."""
    from rich.cells import set_cell_size

    begun = set_cell_size(text, width - 1).rstrip()
    words = begun if text[len(begun) :].startswith(" ") else begun.rpartition(" ")[0]
    if words.strip():
        return f"{words.rstrip()}…"
    tail = text.split(" ", 1)[0][-4:]
    return f"{set_cell_size(text, width - 1 - _length(tail)).rstrip()}…{tail}"
