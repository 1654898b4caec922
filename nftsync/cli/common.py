"""Options and output that commands share: settings, times, JSON, messages."""

from __future__ import annotations

import functools
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from nftsync.errors import DamagedDatabase, NftsyncError, NftsyncWarning
from nftsync.text import escaped_json, visible
from nftsync.times import Edge, parse_duration, parse_time

if TYPE_CHECKING:
    import pandas as pd

    from nftsync.pull.result import SyncResult
    from nftsync.replay.config import ReplayResult
    from nftsync.store.mirror import Mirror


_FLAGS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "base_url": (("--base-url",), "URL", "The provider's base URL."),
    "database": (("--database", "-d"), "FILE", "The SQLite file. Default: data/nftsync.db"),
    "wallets_file": (
        ("--wallets-file",),
        "FILE",
        "Wallet ids, one per line, or CSV with wallet_id, label, group; - is stdin.",
    ),
    "concurrency": (("--concurrency",), "N", "Concurrent requests. Default: 16"),
    "timeout": (("--timeout",), "SECONDS", "Time limit of an attempt. Default: 30"),
    "retries": (("--retries",), "N", "Attempts per request, including the first. Default: 5"),
    "rate_limit": (("--rate-limit",), "N", "Requests per second, evenly spaced. Default: no limit"),
}

#: Settings of commands that read the provider.
PROVIDER = ("base_url", "concurrency", "timeout", "retries", "rate_limit")


@contextmanager
def _report_damage(database: Path) -> Iterator[None]:
    """Replace an unexpected error by DamagedDatabase if the database is damaged."""
    try:
        yield
    except (NftsyncError, OSError, click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Exception as error:
        from nftsync.store.database import damage, explained

        with suppress(OSError), explained(database):
            if database.is_file() and (report := damage(database)) is not None:
                raise DamagedDatabase(
                    f"{database} is damaged ({report}); restore a copy, or start over with"
                    " another --database"
                ) from error
        raise


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the flags of these settings and `--config`, and pass it `settings`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(*args: Any, config: str | None, **values: Any) -> Any:
            context = click.get_current_context()
            own = {"config": config, **{name: values.pop(name) for name in names}}
            typed = context.meta.setdefault(__name__, {})  # shared by a group and its subcommand
            typed.update((name, value) for name, value in own.items() if value is not None)
            if context.invoked_subcommand is not None:
                for name in values:
                    if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
                        flag = name.removeprefix("as_")
                        raise click.UsageError(f"put --{flag} after the subcommand's name")
                return None
            from nftsync import settings

            for name, near in settings.unknown_variables():
                hint = f"; did you mean {near}?" if near else "; `nftsync check` lists all settings"
                say(f"nftsync: {one_line(name)} is not a setting{hint}")
            flags = {name: value for name, value in typed.items() if name != "config"}
            file = Path(typed["config"]) if "config" in typed else None
            chosen = settings.load(flags, config=file)
            with _report_damage(chosen.database):
                return command(*args, settings=chosen, **values)

        call = click.option(
            "--config", metavar="FILE", help="Settings file. Default: the nearest nftsync.toml"
        )(call)
        for name in reversed(names):
            declarations, metavar, text = _FLAGS[name]
            call = click.option(*declarations, name, metavar=metavar, help=text)(call)
        return call

    return decorate


def json_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command `--json`, as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def limit_option(
    text: str, default: int | None, most: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command `--limit`; a number over `most` is an error."""
    return click.option(
        "--limit",
        type=click.IntRange(0, most),
        callback=lambda _context, _option, rows: rows and min(rows, 2**63 - 1),
        default=default,
        show_default=default is not None,
        metavar="N",
        help=text,
    )


def shown_option(name: str, kind: Any, default: float | str, text: str) -> Callable[..., Any]:
    """Return an option whose help shows its default."""
    return click.option(name, type=kind, default=default, show_default=True, help=text)


def duration_option(name: str, text: str, **more: Any) -> Callable[..., Any]:
    """Return an option whose value the command gets as a timedelta."""
    return _parsed_option(name, "DURATION", parse_duration, text, more)


def time_option(name: str, day: Edge, text: str, **more: Any) -> Callable[..., Any]:
    """Return an option whose value the command gets as a stored time; a date becomes its `day`."""
    text += f" ISO 8601 (UTC by default), today, yesterday or 7d (ago). A date means its {day}."
    return _parsed_option(name, "TIME", lambda typed: parse_time(typed, day), text, more)


def _parsed_option(
    name: str, metavar: str, parse: Callable[[str], Any], text: str, more: dict[str, Any]
) -> Callable[..., Any]:
    def callback(_context: click.Context, _option: click.Parameter, typed: str | None) -> Any:
        return None if typed is None else parse(typed)

    more |= {"metavar": metavar, "help": text, "show_default": True}
    return click.option(name, callback=callback, **more)


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that syncs `--resume`, `--allow-removals` and `--json`."""
    command = json_option("Print the result as JSON.")(command)
    command = click.option(
        "--allow-removals", is_flag=True, help="Apply all removals, without review."
    )(command)
    return click.option(
        "--resume",
        is_flag=True,
        help="Resume the newest run if it was interrupted or killed; otherwise start a new one.",
    )(command)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--scheduler` and `--workers`."""
    command = click.option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="Local worker processes, without --scheduler. Default: one per processor",
    )(command)
    return click.option(
        "--scheduler", metavar="ADDRESS", help="Dask scheduler, as tcp://HOST:PORT."
    )(command)


def takeover_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--takeover-after`, as `takeover_after`."""
    text = "Take over a run whose driver sent no heartbeat for this long."
    option = duration_option("--takeover-after", text, default="60s")
    return option(command)  # type: ignore[no-any-return]


@contextmanager
def open_existing(database: Path) -> Iterator[Mirror]:
    """Open an existing database for writing; StoreError if it is missing or unusable."""
    from nftsync.store.database import connect_reader, explained
    from nftsync.store.mirror import Mirror

    with explained(database):
        connect_reader(database).close()
        with Mirror(database) as mirror:
            yield mirror


def rerun(*words: str) -> str:
    """Return a command line with the flags of the current command, quoted for a shell."""
    typed = click.get_current_context().meta.get(__name__, {})
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in typed.items()]
    return shlex.join([*shlex.split(program()), *words, *flags])


def program() -> str:
    """Return the command that starts nftsync in the caller's shell."""
    called = Path(sys.argv[0])
    if called.name != "nftsync":
        return f"{shlex.quote(one_line(sys.executable))} -m nftsync"
    installed = shutil.which("nftsync")
    if installed is not None and called.exists() and called.samefile(installed):
        return "nftsync"
    return shlex.quote(one_line(sys.argv[0]))


def one_line(text: str) -> str:
    """Join a message's lines, and escape unsafe characters."""
    return visible(" ".join(text.splitlines()))


def utc_times(text: str) -> str:
    """Show the stored times in a text as `2026-01-31 12:00:00 UTC`."""
    return re.sub(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z", r"\1 \2 UTC", text)


def wallet_name(wallet_id: str, label: str | None) -> str:
    """Return a wallet's label and id, or its id alone."""
    return wallet_id if label is None else f"{one_line(label)} ({wallet_id})"


@contextmanager
def frame_warnings() -> Iterator[list[str]]:
    """Collect the frames' warnings about rows, each as one line."""
    lines: list[str] = []

    def collect(warning: Warning) -> bool:
        if type(warning) is not NftsyncWarning:
            return False
        line = utc_times(one_line(str(warning)))
        lines.append(line[:1].upper() + line[1:])
        return True

    with warnings_to(collect):
        yield lines


@contextmanager
def warnings_to(take: Callable[[Warning], bool]) -> Iterator[None]:
    """Pass nftsync's warnings to `take`; show them if it returns False."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_or_take(message: Warning | str, *where: Any, **more: Any) -> None:
            if not (isinstance(message, NftsyncWarning) and take(message)):
                show(message, *where, **more)

        warnings.showwarning = show_or_take
        warnings.simplefilter("always", NftsyncWarning)
        yield


def say(text: str) -> None:
    """Print a message that is not part of the result."""
    click.echo(text, err=True)


def say_truncated(limit: int, count: int, noun: str, *, newest: bool = False) -> None:
    """Print how many rows a table left out, and how to see them all."""
    if 0 < limit < count:
        shown = f"{'The newest ' if newest else ''}{limit:,} of {count:,} {noun}"
        say(f"{shown}. Show all: --limit 0, or --json.")


def pages_of(frame: pd.DataFrame, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Yield columns of a frame as pages of rows for `print_json_rows` and `print_table`."""
    from nftsync.columnar.columns import rows_of

    for rows in rows_of(frame, columns, step=1_000):
        yield [dict(zip(columns, row, strict=True)) for row in rows]


def json_line(value: Any) -> bytes:
    """Encode a value as JSON on one line, with characters that act on a terminal escaped."""
    import msgspec

    # Bytes, because JSON is UTF-8 in any terminal encoding.
    return escaped_json(msgspec.json.encode(value))


def print_json(value: Any) -> None:
    """Print one JSON value on standard output."""
    import msgspec

    click.echo(msgspec.json.format(json_line(value), indent=2))


def print_result(result: SyncResult | ReplayResult, *, as_json: bool) -> None:
    """Print the result of a sync or a replay."""
    if as_json:
        print_json(result.as_dict())
    else:
        click.echo(result.summary())


def print_json_rows(pages: Iterable[Iterable[Mapping[str, Any]]]) -> None:
    """Print one JSON array, an object per line."""
    lead = b"["
    for page in pages:
        lines = [json_line(row) for row in page]
        if lines:
            click.echo(lead + b"\n" + b",\n".join(lines), nl=False)
            lead = b","
    click.echo(b"[]" if lead == b"[" else b"\n]")
