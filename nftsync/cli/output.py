"""What commands print: one JSON value, or a table that hostile text cannot break."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from nftsync.visible import visible

__all__ = ["one_line", "print_json", "print_table", "say", "visible"]

#: Columns of characters; a table takes what it needs of it.
_WIDE = 10_000


def one_line(text: str) -> str:
    """A message as one line."""
    return visible(" ".join(text.splitlines()))


def say(text: str) -> None:
    """Tell the person at the terminal something that is not the result."""
    click.echo(text, err=True)


def print_json(value: Any) -> None:
    """Print exactly one JSON value on standard output."""
    import msgspec

    # As bytes: JSON is UTF-8, whatever the terminal's encoding is.
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def print_table(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, title: str | None = None
) -> None:
    """Draw a table as wide as the terminal; not on a terminal, as wide as it needs.

    Ids are never cut, so that they can be copied.

    Args:
        rows: a mapping per row; None and missing values are shown as nothing.
        columns: the keys to show, in order; they are the headings too.
        title: above the table.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        is_id = column.endswith("_id") and column != "change_id"
        width = max([36, *(len(_cell(row.get(column))) for row in rows)]) if is_id else None
        table.add_column(column, overflow="fold", no_wrap=is_id, min_width=width)
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))
    Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE).print(table)


def _cell(value: Any) -> str:
    return "" if value is None else visible(str(value))
