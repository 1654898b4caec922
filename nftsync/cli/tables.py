"""Print tables: fitted to a terminal's width, complete in pipes and files."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from shutil import get_terminal_size
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import click

from nftsync.cli.common import json_option, limit_option, print_json_rows, say_left_out
from nftsync.text import MISSING, short_id, visible

#: What a column holds. An `id` is cut to its two ends, a `time` to seconds, a `text` to whole
#: words; a `key`, which other commands take, and a `number` are not cut, nor is a `message`, the
#: last column, which takes as many lines as it needs.
Kind: TypeAlias = Literal["text", "id", "key", "time", "number", "message"]
_Row: TypeAlias = Mapping[str, Any]
_Rows = TypeVar("_Rows", bound=Sequence[Any])

_GAP, _BETWEEN = 2, "  "
_INDENT = 4
#: What texts may be cut to: to the first, lest columns need another line, else to as much as does.
_NARROWEST, _NARROWEST_MESSAGE = 14, 16
_CUTS = (60, 48, 36, 28, 20, _NARROWEST)
#: Where nothing is cut, what is longer than this makes its own line longer, and no other.
_PADDED = 80
#: The longest number that is not cut: 19 digits are 63 bits, and some more.
_DIGITS = 24


class TableColumn(NamedTuple):
    """A column of a table.

    Attributes:
        heading: what stands above it.
        key: of its values in a row.
        kind: of its values.
        name: the key of a name that stands in its place where there is one; a table that is whole
            has a column for each.
    """

    heading: str
    key: str
    kind: Kind = "text"
    name: str | None = None


wide_option = click.option(
    "--wide", is_flag=True, help="Ids, times and texts whole, however wide the table becomes."
)


class View(NamedTuple):
    """How a command shows rows.

    Attributes:
        limit: rows of a table; 0: all.
        wide: whether a table is whole in a terminal, too.
        as_json: print JSON, and no table.
    """

    limit: int
    wide: bool
    as_json: bool

    def first(self, rows: _Rows) -> _Rows:
        """The rows of a table."""
        return rows[: self.limit or None]  # type: ignore[return-value]

    def show(self, rows: list[dict[str, Any]], columns: Sequence[TableColumn], what: str) -> None:
        """Print rows, and how many a table left out; of none, a table says nothing."""
        if self.as_json:
            print_json_rows([rows])
        elif rows:
            print_table([self.first(rows)], columns, wide=self.wide)
            say_left_out(self.limit, len(rows), what)


def view_options(
    json_text: str,
    limit_text: str = "Rows of the table; 0 shows all.",
    default: int = 50,
    most: int | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command `--limit`, `--wide` and `--json`, as `view`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(*args: Any, **values: Any) -> Any:
            view = View(*map(values.pop, ("limit", "wide", "as_json")))
            return command(*args, view=view, **values)

        decorated: Callable[..., Any] = wide_option(json_option(json_text)(call))
        return limit_option(limit_text, default, most)(decorated)

    return decorate


def print_table(
    pages: Iterable[Iterable[_Row]], columns: Sequence[TableColumn], *, wide: bool = False
) -> None:
    """Print a table that fits the terminal; elsewhere, or if it is to be wide, one that is whole.

    Args:
        pages: rows, some at a time; the first page decides how wide columns are.
        columns: what it shows of a row, what answers the question first.
        wide: whether it is whole in a terminal too.
    """
    for lines in table_lines(pages, columns, None if wide else _terminal_width()):
        click.echo("\n".join(lines))


def wrapped(text: str) -> str:
    """A text with lines as long as the terminal's; elsewhere as it is."""
    width = _terminal_width()
    return text if width is None else click.wrap_text(text, width)


def _terminal_width() -> int | None:
    return get_terminal_size().columns if sys.stdout.isatty() else None


def table_lines(
    pages: Iterable[Iterable[_Row]], columns: Sequence[TableColumn], width: int | None
) -> Iterator[list[str]]:
    """The lines of a table, a page of rows at a time, the headings first.

    Args:
        pages: as `print_table` has them.
        columns: as `print_table` has them.
        width: the columns of characters that there are: ids, times and texts are cut, and columns
            that find no room go on below, so that none is lost. None: a row is a line, and whole.
    """
    shown = [*columns] if width is not None else [*chain(*map(_whole, columns))]
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
    """What turns a row into the text of its cell."""
    _, key, kind, name = column
    # Even on a line of its own more would not be seen whole.
    longest = {"id": 0, "number": _DIGITS, "key": (width or 0) - _INDENT}.get(kind)

    def text(row: _Row) -> str:
        called = None if name is None else row[name]
        value = row[key] if called is None else called
        shown = MISSING if value is None else visible(str(value)) or MISSING
        if width is None or called is not None:
            return shown
        if kind == "time":
            return shown[:19].replace("T", " ")
        return shown if longest is None or len(shown) <= longest else short_id(shown)

    return text


class _Layout:
    """Where each column stands: on which of a row's lines, and how wide.

    Args:
        columns: all of them.
        first: the cells of the rows that decide.
        width: the terminal's, or None to cut nothing and keep a row on a line.
    """

    def __init__(
        self, columns: Sequence[TableColumn], first: Sequence[Sequence[str]], width: int | None
    ) -> None:
        self._columns = columns
        # Where a name stands, it is cut as a name; an id in its place is short enough.
        self._kinds = ["text" if column.name else column.kind for column in columns]
        self._widths = [
            max([_length(column.heading), *(_length(row[place]) for row in first)])
            for place, column in enumerate(columns)
        ]
        if width is None:
            self._widths = [min(each, _PADDED) for each in self._widths]
        self._bands = [[*range(len(columns))]]
        self._cuts = width is not None
        if width is not None:
            self._fit(width)
        #: Of each line: what stands before it, its columns, whether it goes if they say nothing.
        self._plan = [
            (
                " " * (bool(number) * _INDENT),
                [(place, self._widths[place], self._kinds[place]) for place in band],
                number > 0 and all(self._kinds[place] == "message" for place in band),
            )
            for number, band in enumerate(self._bands)
        ]

    def _fit(self, width: int) -> None:
        """Put columns on as few lines as do with texts cut, then cut as little as that allows."""
        natural = self._widths
        fewest = len(self._packed(_NARROWEST, width))
        cuts = (min(each, width - _INDENT) for each in _CUTS)
        most = next(each for each in cuts if len(self._packed(each, width)) == fewest)
        self._bands = self._packed(most, width)
        widths = self._widths = self._cut(most)
        for number, band in enumerate(self._bands):
            room = width - bool(number) * _INDENT + _GAP - sum(widths[each] + _GAP for each in band)
            wanting = sorted(band, key=lambda place: natural[place] - widths[place])
            for so_far, place in enumerate(wanting):
                share = max(room, 0) // (len(wanting) - so_far)
                more = min(natural[place] - widths[place], share)
                widths[place] += more
                room -= more

    def _cut(self, most: int) -> list[int]:
        """How wide columns are when texts are cut to this; a message needs some room more."""
        limits = {"text": most, "message": max(most, _NARROWEST_MESSAGE)}
        kinds = zip(self._widths, self._kinds, strict=True)
        return [min(width, limits.get(kind, width)) for width, kind in kinds]

    def _packed(self, most: int, width: int) -> list[list[int]]:
        """The columns of each line when texts are cut to this."""
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
        """The headings, and a rule below them."""
        lines = [*self.lines([column.heading for column in self._columns])]
        ends = (sum(self._widths[place] + _GAP for place in band) for band in self._bands)
        return [*lines, "─" * (max(ends) - _GAP)]

    def lines(self, cells: Sequence[str]) -> Iterator[str]:
        """The lines of a row."""
        for indent, band, may_go in self._plan:
            if may_go and all(cells[place] == MISSING for place, *_ in band):
                continue
            parts: list[str] = []
            below: list[str] = []
            for place, width, kind in band:
                text = cells[place]
                length = len(text) if text.isascii() else _length(text)
                if length > width and self._cuts:
                    if kind == "text":
                        text = _words(text, width)
                    elif kind == "message":
                        before = " " * _length(indent + _BETWEEN.join([*parts, ""]))
                        text, *more = _message(text, width)
                        below = [before + each for each in more]
                    length = _length(text)
                space = " " * (width - length)
                parts.append(space + text if kind == "number" else text + space)
            yield (indent + _BETWEEN.join(parts)).rstrip()
            yield from below


def _length(text: str) -> int:
    """The columns of characters that a text takes."""
    if text.replace("…", "").replace(MISSING, "").isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _message(text: str, width: int) -> list[str]:
    """The lines of a text; only a word that is longer than a line is broken."""
    from rich.console import Console
    from rich.text import Text

    return [str(line).rstrip() for line in Text(text).wrap(Console(), width)]


def _words(text: str, width: int) -> str:
    """The first words of a text; of a word that is too long, its two ends."""
    from rich.cells import set_cell_size

    begun = set_cell_size(text, width - 1).rstrip()
    words = begun if text[len(begun) :].startswith(" ") else begun.rpartition(" ")[0]
    if words.strip():
        return f"{words.rstrip()}…"
    tail = text.split(" ", 1)[0][-4:]
    return f"{set_cell_size(text, width - 1 - _length(tail)).rstrip()}…{tail}"
