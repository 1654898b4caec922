"""The command line: one module per group of commands, imported when a command runs."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper

import click

from nftsync.cli.common import one_line, say, warnings_to
from nftsync.errors import InputError, NftsyncError, SettingsError, SyncRunning
from nftsync.version import __version__

#: What help says of each command, in the order in which it lists them. A copy of what the commands
#: say themselves, so that help imports none of them, behind the module that holds the command.
_COMMANDS = {
    "demo": ("demo", "See the whole product work, with nothing to configure."),
    "sync": ("sync", "Read wallets' balances and tokens into the database."),
    "wallets": ("sync", "List the known wallets; add, label, or stop reading them."),
    "holdings": ("holdings", "Show who holds what."),
    "find": ("holdings", "Find tokens, collections and wallets by name."),
    "collections": ("holdings", "List the contracts with their names; name one."),
    "changes": ("holdings", "Show the change feed of balances, the oldest change first."),
    "removals": ("removals", "List the removals held for review, or approve them."),
    "evidence": ("holdings", "Tell what a wallet held at a time, and how that is known."),
    "serve": ("serve", "Receive webhooks, and read again what has changed."),
    "replay": ("serve", "Work off the webhooks that are due, once."),
    "inbox": ("inbox", "Look into stored webhooks; put them back, or prune them."),
    "routes": ("inbox", "Show which read follows which webhook; suggest more."),
    "webhook-config": ("serve", "Change where the provider sends webhooks, and which."),
    "status": ("status", "Show counts, freshness, the last runs and the backlog."),
    "verify": ("status", "Compare the mirror with the provider, prove its own rules."),
    "export": ("export", "Write each table and view to a file, all of one moment."),
    "migrate": ("export", "Upgrade an earlier version's database, and leave a copy."),
    "snapshot": ("export", "Copy the database while others go on writing it."),
    "backup": ("export", "Copy the database with its date, and keep the newest copies."),
    "lake": ("lake", "Sync on a cluster, into Delta Lake, and look into it."),
    "check": ("status", "Show each setting and its source, and try them."),
    "notebook": ("demo", "Open JupyterLab on the notebooks, with this database."),
    "sandbox": ("demo", "Play the provider on this machine, to try things on."),
}

_STDOUT, _STDERR = 1, 2
_CANNOT_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}

#: Exit codes beside 0 and 1, which scripts rely on.
_USAGE, _SYNC_RUNNING, _INTERRUPTED = 2, 75, 130


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as unknown:  # it knows the near ones of loaded commands only
            raise click.NoSuchCommand(
                unknown.command_name, possibilities=_COMMANDS, ctx=ctx
            ) from None

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"nftsync.cli.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="nftsync")
def nftsync() -> None:
    """Mirror the NFTs that your organization's wallets hold into SQLite and pandas.

    \b
    Try it with nothing to configure:   nftsync demo
    Read your wallets:                  nftsync sync --base-url URL --wallets-file FILE
    See who holds what:                 nftsync holdings

    Settings come from flags, then NFTSYNC_... variables, then nftsync.toml; `nftsync check` shows
    them all. Results go to stdout, progress and messages to stderr. Exit codes: 0 done, 1 something
    failed, 2 usage or settings, 75 another sync holds the database, 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with what it returns; what was raised on purpose becomes one line."""
    _take_the_place_of_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what the terminal's encoding lacks is escaped
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_run(arguments))


def _take_the_place_of_what_is_closed() -> None:
    """Let no file get a closed stream's number; messages are lost, and results fail as written."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123 - till the process ends
    if sys.stdout is None:
        os.dup2(os.open(os.devnull, os.O_RDONLY), _STDOUT)
        sys.stdout = open(_STDOUT, "w", closefd=False)  # noqa: SIM115


def _say_once() -> Callable[[Warning], bool]:
    """Return a function that prints each text of a warning once, as a line."""
    printed: set[str] = set()

    def take(warning: Warning) -> bool:
        line = one_line(str(warning))
        if line not in printed:
            printed.add(line)
            say(f"nftsync: {line}")
        return True

    return take


def _run(arguments: Sequence[str] | None) -> int:
    try:
        # Not nftsync.main(): that would exit with 1 when the reader of our output has gone.
        given = list(sys.argv[1:] if arguments is None else arguments)
        if any("\udc80" <= letter <= "\udcff" for word in given for letter in word):
            raise InputError("an argument is not UTF-8 text")
        with warnings_to(_say_once()), nftsync.make_context("nftsync", given) as context:
            code = int(nftsync.invoke(context) or 0)
            sys.stdout.flush()
            return code
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("nftsync: interrupted", err=True)
        return _INTERRUPTED
    except OSError as error:
        # What else may fail with files is an NftsyncError by now. Python flushes once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
        if isinstance(error, BrokenPipeError):  # whoever read has gone, as `head` does
            return 0
        if error.filename is not None or error.errno not in _CANNOT_WRITE:
            raise
        closed = error.errno == errno.EBADF
        reason = "standard output is closed" if closed else error.strerror
        with suppress(OSError):
            click.echo(f"nftsync: cannot write the output: {reason}", err=True)
        return 1
    except NftsyncError as error:
        click.echo(f"nftsync: {one_line(str(error))}", err=True)
        if isinstance(error, SyncRunning):
            return _SYNC_RUNNING
        return _USAGE if isinstance(error, SettingsError | InputError) else 1
