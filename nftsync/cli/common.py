"""Options and checks that commands share: settings, tables, JSON, an existing database."""

from __future__ import annotations

import functools
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


@contextmanager
def _damage_told(database: Path) -> Iterator[None]:
    """Where an error that nobody foresaw is met in a damaged database, say that it is damaged."""
    try:
        yield
    except (NftsyncError, OSError, click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Exception as error:
        from nftsync.store.database import damage, explained

        with suppress(OSError), explained(database):
            if database.is_file() and (found := damage(database)) is not None:
                raise DamagedDatabase(
                    f"{database} is damaged ({found}); restore a copy, or begin afresh with"
                    " another --database"
                ) from error
        raise


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the flags of these settings and `--config`, and pass it `settings`.

    A group takes them too, before or after its subcommand's name; what stands after counts. The
    group itself is called only where no subcommand is.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(*args: Any, config: str | None, **values: Any) -> Any:
            context = click.get_current_context()
            own = {"config": config, **{name: values.pop(name) for name in names}}
            given = context.meta.setdefault(__name__, {})  # a subcommand's is its group's
            given.update((name, value) for name, value in own.items() if value is not None)
            if context.invoked_subcommand is not None:
                for name in values:
                    if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
                        flag = name.removeprefix("as_")
                        raise click.UsageError(f"put --{flag} after the subcommand's name")
                return None
            from nftsync import settings

            for name, near in settings.unknown_variables():
                meant = f"; did you mean {near}?" if near else "; `nftsync check` lists them all"
                say(f"nftsync: {one_line(name)} is no setting{meant}")
            flags = {name: value for name, value in given.items() if name != "config"}
            file = Path(given["config"]) if "config" in given else None
            chosen = settings.load(flags, config=file)
            with _damage_told(chosen.database):
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
    """An option whose help shows its default."""
    return click.option(name, type=kind, default=default, show_default=True, help=text)


def duration_option(name: str, text: str, **more: Any) -> Callable[..., Any]:
    """An option that takes a duration, which a command gets as a timedelta."""
    return _parsed_option(name, "DURATION", parse_duration, text, more)


def time_option(name: str, day: Edge, text: str, **more: Any) -> Callable[..., Any]:
    """An option that takes a time, which a command gets in the stored form; of a day, `day`."""
    return _parsed_option(name, "TIME", lambda given: parse_time(given, day), text, more)


def _parsed_option(
    name: str, metavar: str, parse: Callable[[str], Any], text: str, more: dict[str, Any]
) -> Callable[..., Any]:
    def callback(_context: click.Context, _option: click.Parameter, given: str | None) -> Any:
        return None if given is None else parse(given)

    more |= {"metavar": metavar, "help": text, "show_default": True}
    return click.option(name, callback=callback, **more)


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that syncs `--resume`, `--allow-removals` and `--json`."""
    command = json_option("Print the result as JSON.")(command)
    command = click.option(
        "--allow-removals", is_flag=True, help="Approve all removals, however many come at once."
    )(command)
    return click.option(
        "--resume",
        is_flag=True,
        help="Resume the newest run if it was interrupted or killed; else start one.",
    )(command)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--scheduler` and `--workers`."""
    command = click.option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="Without one: processes to start here. Default: one per processor",
    )(command)
    return click.option(
        "--scheduler", metavar="ADDRESS", help="A Dask scheduler, as tcp://HOST:PORT."
    )(command)


def takeover_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--takeover-after`, as `takeover_after`."""
    text = "A run whose driver shows no sign for so long is taken over."
    option = duration_option("--takeover-after", text, default="60s")
    return option(command)  # type: ignore[no-any-return]


@contextmanager
def open_existing(database: Path) -> Iterator[Mirror]:
    """Open a database to write it; where there is none, none is made.

    Raises:
        StoreError: there is none, or it cannot be used.
    """
    from nftsync.store.database import connect_reader, explained
    from nftsync.store.mirror import Mirror

    with explained(database):
        connect_reader(database).close()
        with Mirror(database) as mirror:
            yield mirror


def again(*words: str) -> str:
    """A command with the flags that this one was given, as it can be typed into the same shell."""
    given = click.get_current_context().meta.get(__name__, {})
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    return shlex.join([*shlex.split(program()), *words, *flags])


def program() -> str:
    """How to call this program from the shell that called it."""
    called = Path(sys.argv[0])
    if called.name != "nftsync":
        return f"{shlex.quote(one_line(sys.executable))} -m nftsync"
    found = shutil.which("nftsync")
    if found is not None and called.exists() and called.samefile(found):
        return "nftsync"
    return shlex.quote(one_line(sys.argv[0]))


def one_line(text: str) -> str:
    """A message as one line."""
    return visible(" ".join(text.splitlines()))


def named(wallet_id: str, label: str | None) -> str:
    """A wallet as a person knows it."""
    return wallet_id if label is None else f"{one_line(label)} ({wallet_id})"


@contextmanager
def said_by_frames() -> Iterator[list[str]]:
    """What frames warn of their rows during a block, each as one line."""
    said: list[str] = []

    def collect(warning: Warning) -> bool:
        if type(warning) is not NftsyncWarning:
            return False
        line = one_line(str(warning))
        said.append(line[:1].upper() + line[1:])
        return True

    with warnings_to(collect):
        yield said


@contextmanager
def warnings_to(take: Callable[[Warning], bool]) -> Iterator[None]:
    """Hand the warnings of nftsync during a block to a function.

    Args:
        take: returns whether it took a warning; one that it did not is shown as it would be
            without it, as are the warnings of others.
    """
    with warnings.catch_warnings():
        show = warnings.showwarning

        def hand_on(message: Warning | str, *where: Any, **more: Any) -> None:
            if not (isinstance(message, NftsyncWarning) and take(message)):
                show(message, *where, **more)

        warnings.showwarning = hand_on
        warnings.simplefilter("always", NftsyncWarning)
        yield


def say(text: str) -> None:
    """Tell the person at the terminal something that is not the result."""
    click.echo(text, err=True)


def say_left_out(limit: int, count: int, what: str, *, newest: bool = False) -> None:
    """Say how much a table left out, and how to see all of it."""
    if 0 < limit < count:
        shown = f"{'The newest ' if newest else ''}{limit:,} of {count:,} {what}"
        say(f"{shown}; all with --limit 0, or with --json.")


def pages_of(frame: pd.DataFrame, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Some columns of a frame as `print_json_rows` and `print_table` take them, some at a time."""
    from nftsync.columnar.columns import rows_of

    for rows in rows_of(frame, columns, step=1_000):
        yield [dict(zip(columns, row, strict=True)) for row in rows]


def json_line(value: Any) -> bytes:
    """Encode a value as JSON on one line, without characters that act on a terminal."""
    import msgspec

    # As bytes: JSON is UTF-8, whatever the terminal's encoding is.
    return escaped_json(msgspec.json.encode(value))


def print_json(value: Any) -> None:
    """Print exactly one JSON value on standard output."""
    import msgspec

    click.echo(msgspec.json.format(json_line(value), indent=2))


def print_result(result: SyncResult | ReplayResult, *, as_json: bool) -> None:
    """Print what a sync or a replay came to."""
    if as_json:
        print_json(result.as_dict())
    else:
        click.echo(result.summary())


def print_json_rows(pages: Iterable[Iterable[Mapping[str, Any]]]) -> None:
    """Print exactly one JSON value, an array with an object a line.

    Args:
        pages: the objects, some at a time.
    """
    lead = b"["
    for page in pages:
        lines = [json_line(row) for row in page]
        if lines:
            click.echo(lead + b"\n" + b",\n".join(lines), nl=False)
            lead = b","
    click.echo(b"[]" if lead == b"[" else b"\n]")
