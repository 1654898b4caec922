"""Output that commands share: messages, JSON, pages of rows."""

from __future__ import annotations

import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from nftsync.errors import NftsyncWarning
from nftsync.text import counted, escaped_json, visible
from nftsync.times import utc_times

if TYPE_CHECKING:
    import pandas as pd

    from nftsync.pull.result import SyncResult
    from nftsync.replay.config import ReplayResult
    from nftsync.store.faults import Unreadable
    from nftsync.store.mirror import Mirror


@contextmanager
def open_existing(database: Path) -> Iterator[Mirror]:
    """Open an existing database for writing."""
    from nftsync.store.database import connect_reader, explained
    from nftsync.store.mirror import Mirror

    with explained(database):
        connect_reader(database).close()
        with Mirror(database) as mirror:
            yield mirror


def typed_settings() -> dict[str, Any]:
    """Return the settings typed as flags of a group and its subcommand."""
    return click.get_current_context().meta.setdefault(__name__, {})  # type: ignore[no-any-return]


def rerun(*words: str) -> str:
    """Return a command line with the current command's settings, for a shell."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in typed_settings().items()]
    return shlex.join([*shlex.split(program()), *words, *flags])


def program() -> str:
    """Return nftsync's name in the caller's shell."""
    called = Path(sys.argv[0])
    if called.name != "nftsync":
        return f"{shlex.quote(one_line(sys.executable))} -m nftsync"
    installed = shutil.which("nftsync")
    if installed is not None and called.exists() and called.samefile(installed):
        return "nftsync"
    return shlex.quote(one_line(str(called.resolve())))


def one_line(text: str) -> str:
    """Join a message's lines, and escape unsafe characters."""
    return visible(" ".join(text.splitlines()))


def wallet_name(wallet_id: str, label: str | None) -> str:
    """Return a wallet's label and id."""
    return wallet_id if label is None else f"{one_line(label)} ({wallet_id})"


@contextmanager
def printed_warnings(
    print_line: Callable[[str], object], concerns: Callable[[object], bool]
) -> Iterator[None]:
    """Print selected warnings, each as a line."""
    show_other = warnings.showwarning

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        if concerns(message):
            print_line(one_line(str(message)))
        else:
            show_other(message, *where, **more)

    with warnings.catch_warnings():
        warnings.showwarning = show
        warnings.simplefilter("always", NftsyncWarning)
        yield


@contextmanager
def frame_warnings() -> Iterator[list[str]]:
    """Print the frames' warnings as sentences, and collect them."""
    lines: list[str] = []

    def print_line(text: str) -> None:
        line = utc_times(text)
        lines.append(line[:1].upper() + line[1:])
        say(wrapped(lines[-1], sys.stderr))

    with printed_warnings(print_line, lambda message: type(message) is NftsyncWarning):
        yield lines


def say(text: str) -> None:
    """Print a message that is not part of the result."""
    click.echo(text, err=True)


def say_line(text: str) -> None:
    """Print a message as one safe line on stderr."""
    say(one_line(text))


def confirmed(question: str, *, yes: bool) -> bool:
    """Ask on a terminal, unless `yes`."""
    if yes or not sys.stdin.isatty() or click.confirm(question, err=True):
        return True
    say("Nothing was changed.")
    return False


def wrapped(text: str, stream: TextIO | None = None) -> str:
    """Wrap a text to the terminal, if the stream (default: stdout) is one."""
    if not (stream or sys.stdout).isatty():
        return text
    return click.wrap_text(text, shutil.get_terminal_size().columns)


def say_hidden(frame: pd.DataFrame, noun: str = "holding") -> None:
    """Print how many hidden rows a frame leaves out."""
    from nftsync.columnar.hidden import hidden_note

    if note := hidden_note(frame, noun):
        say(f"{note}. Include: --hidden")


def say_truncated(limit: int, count: int, noun: str, *, newest: bool = False) -> None:
    """Print how many rows a table left out."""
    if 0 < limit < count:
        shown = f"{'The newest ' if newest else ''}{limit:,} of {count:,} {noun}"
        say(wrapped(f"{shown}. Show all: --limit 0, or --json.", sys.stderr))


def pages_of(frame: pd.DataFrame, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Yield columns of a frame as pages of rows."""
    from nftsync.columnar.columns import rows_of

    for rows in rows_of(frame, columns, step=1_000):
        yield [dict(zip(columns, row, strict=True)) for row in rows]


def json_line(value: Any) -> bytes:
    """Encode a value as one line of JSON that is safe for terminals."""
    import msgspec

    # Bytes, because JSON is UTF-8 in any terminal encoding.
    return escaped_json(msgspec.json.encode(value))


def print_json(value: Any) -> None:
    """Print one JSON value on standard output."""
    import msgspec

    click.echo(msgspec.json.format(json_line(value), indent=2))


def print_result(result: SyncResult | ReplayResult, *, as_json: bool) -> None:
    """Print a result."""
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


def unreadable_shown(parts: Sequence[Unreadable]) -> str:
    """Describe tokens with unreadable parts."""
    count = counted(len({part.token_id for part in parts}), "token")
    shown = "; ".join(f"{x.token_id}: {x.field}: {x.reason}" for x in parts[:3])
    more = "; …. List: frames.quality" if len(parts) > 3 else ""
    return one_line(f"{count} with unreadable fields, whose known values stay: {shown}{more}")
