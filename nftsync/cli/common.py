"""The flags that commands share, and the settings that come of them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nftsync.text import visible

if TYPE_CHECKING:
    from nftsync.settings import Settings

__all__ = [
    "one_line",
    "print_json",
    "print_json_rows",
    "print_table",
    "say",
    "settings_of",
    "visible",
    "with_settings",
]


_FLAGS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "base_url": (("--base-url",), "URL", "The provider's base address."),
    "database": (("--database", "-d"), "FILE", "The SQLite file. Default: data/nftsync.db"),
    "wallets_file": (
        ("--wallets-file",),
        "FILE",
        "One wallet id a line, or CSV with wallet_id, label, group; - is stdin.",
    ),
    "concurrency": (("--concurrency",), "N", "Requests at once. Default: 16"),
    "timeout": (("--timeout",), "SECONDS", "For a whole attempt. Default: 30"),
    "retries": (("--retries",), "N", "Attempts per request, the first included. Default: 5"),
    "rate_limit": (("--rate-limit",), "N", "Requests per second, evenly spaced. Default: none"),
}

#: What commands that read the provider take.
PROVIDER = ("base_url", "concurrency", "timeout", "retries", "rate_limit")


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the flags of these settings and `--config`, and pass it `settings`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(*args: Any, config: str | None, **values: Any) -> Any:
            from nftsync import settings as _settings

            flags = {name: values.pop(name) for name in names}
            loaded = _settings.load(flags, config=None if config is None else Path(config))
            return command(*args, settings=loaded, **values)

        call = click.option(
            "--config", metavar="FILE", help="Settings file. Default: the nearest nftsync.toml"
        )(call)
        for name in reversed(names):
            declarations, metavar, text = _FLAGS[name]
            call = click.option(*declarations, name, metavar=metavar, help=text)(call)
        return call

    return decorate


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


def print_json_rows(pages: Iterable[Iterable[Mapping[str, Any]]]) -> None:
    """Print exactly one JSON value, an array with an object a line.

    Args:
        pages: the objects, some at a time.
    """
    import msgspec

    lead = b"["  # bytes: JSON is UTF-8, whatever the terminal's encoding is
    for page in pages:
        lines = [msgspec.json.encode(row) for row in page]
        if lines:
            click.echo(lead + b"\n" + b",\n".join(lines), nl=False)
            lead = b","
    click.echo(b"[]" if lead == b"[" else b"\n]")


def settings_of(context: click.Context, own: Settings) -> Settings:
    """A subcommand's settings: those after its name, else those before it.

    Args:
        context: the subcommand's; its `obj` is the group's settings.
        own: what the flags after the subcommand's name, and all else, come to.
    """
    outer: Settings | None = context.obj
    if outer is None:
        return own
    last, first = (own, outer) if context.params.get("config") is not None else (outer, own)
    by_flag = next((each for each in (own, outer) if _database_by_flag(each)), None)
    if by_flag is None or by_flag is last:
        return last
    return replace(
        last, database=first.database, sources={**last.sources, "database": "flag --database"}
    )


def _database_by_flag(settings: Settings) -> bool:
    return settings.sources["database"].startswith("flag")
