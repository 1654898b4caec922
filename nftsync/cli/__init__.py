"""Command line: one module per group of commands, imported when a command runs."""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper

import click

from nftsync.cli.output import one_line, printed_warnings, say
from nftsync.errors import InputError, NftsyncError, NftsyncWarning, SettingsError, SyncRunning
from nftsync.version import __version__

#: Module and first help line of each command, copied from the commands so that `nftsync --help`
#: imports none of them.
_COMMANDS = {
    "demo": ("demo", "Run a demo of the whole product, without any configuration."),
    "sandbox": ("demo", "Run a local provider with generated data."),
    "sync": ("sync", "Read wallet balances and tokens into the database."),
    "wallets": ("sync", "List, add, label or untrack wallets."),
    "holdings": ("holdings", "Show which wallets hold which tokens."),
    "find": ("holdings", "Find tokens, collections and wallets by name."),
    "collections": ("holdings", "List the collections, or name one."),
    "hide": ("hidden", "Hide spam: contracts by address or name, and tokens by id."),
    "unhide": ("hidden", "Show hidden contracts and tokens again."),
    "hidden": ("hidden", "List the hidden contracts and tokens."),
    "changes": ("holdings", "Show changes of balances (the change feed), oldest first."),
    "transfers": ("movements", "List transfers with sender and receiver, oldest first."),
    "statement": ("movements", "Print opening balance, movements and closing balance."),
    "report": ("report", "Write a report as a single HTML file, to mail or print."),
    "removals": ("removals", "List or approve the removals held for review."),
    "compare": ("compare", "Compare holdings with a second list, such as an auditor's."),
    "evidence": ("holdings", "Prove a wallet's holdings, now or at a past time."),
    "serve": ("serve", "Receive webhooks, and read the objects that they name."),
    "replay": ("serve", "Process the due webhooks once, then exit."),
    "inbox": ("inbox", "List, inspect, requeue or prune stored webhooks."),
    "routes": ("inbox", "List the webhook routes, or suggest new ones."),
    "webhook-config": ("serve", "Change the URL and the types of the provider's webhooks."),
    "outbox": ("outbox", "List, inspect, requeue or prune messages to destinations."),
    "watch": ("watch", "Send alerts about changes and states, and forward webhooks."),
    "status": ("status", "Show counts, freshness, the last runs and the backlog."),
    "verify": ("verify", "Verify the database, and compare it with the provider."),
    "export": ("export", "Export all tables and views to Parquet, CSV or Excel files."),
    "migrate": ("export", "Upgrade a database from an earlier version, and keep a copy."),
    "snapshot": ("export", "Copy the database while it is in use."),
    "backup": ("export", "Write a dated copy of the database, and prune old copies."),
    "lake": ("lake", "Sync on a Dask cluster into a lake."),
    "check": ("check", "Show the settings that you have set, and test the setup."),
    "notebook": ("demo", "Open the notebooks in JupyterLab."),
}

_STDOUT, _STDERR = 1, 2
_CANNOT_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}

#: Exit codes that scripts rely on.
_USAGE, _SYNC_RUNNING, _INTERRUPTED = 2, 75, 130


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as unknown:  # click suggests loaded commands only
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
    """Mirror the NFTs of your organization's wallets into SQLite and pandas.

    \b
    Try it without configuration:   nftsync demo
    Try it with a local provider:   nftsync sandbox
    Read your wallets:              nftsync sync --base-url URL --wallets-file FILE
    Show the holdings:              nftsync holdings

    Flags override NFTSYNC_... variables, and both override nftsync.toml; `nftsync check` lists
    your settings. Results go to stdout; progress and messages go to stderr.

    Exit codes: 0 done, 1 failure, 2 usage or settings error, 75 another sync is using the database,
    130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, and exit with its code; print expected errors as one line."""
    _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # escape unencodable characters
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_run(arguments))


def _replace_closed_streams() -> None:
    """Reopen closed streams, so that no other file gets their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123 - open until exit
    if sys.stdout is None:
        os.dup2(os.open(os.devnull, os.O_RDONLY), _STDOUT)
        sys.stdout = open(_STDOUT, "w", closefd=False)  # noqa: SIM115


def _run(arguments: Sequence[str] | None) -> int:
    try:
        # nftsync.main() would exit with 1 after a broken pipe.
        words = list(sys.argv[1:] if arguments is None else arguments)
        if any("\udc80" <= letter <= "\udcff" for word in words for letter in word):
            raise InputError("an argument is not valid UTF-8")
        print_once = functools.cache(lambda line: say(f"nftsync: {line}"))
        with (
            printed_warnings(print_once, lambda message: isinstance(message, NftsyncWarning)),
            nftsync.make_context("nftsync", words) as context,
        ):
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
        # Only output errors reach this point. Python flushes stdout again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
        if isinstance(error, BrokenPipeError):  # the reader has exited, as `head` does
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
