"""The command `check`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.cells import colored
from nftsync.cli.output import one_line, wrapped
from nftsync.cli.tables import TableColumn, print_table
from nftsync.text import counted
from nftsync.times import utc_times

if TYPE_CHECKING:
    from nftsync.provider.config import Paging
    from nftsync.provider.webhooks import Route
    from nftsync.settings import Key, Settings

_SETTING = (
    TableColumn("setting", "setting", "key"),
    TableColumn("source", "source", "key"),
    TableColumn("value", "value", "message"),
)


@click.command()
@click.argument("wallet", required=False, metavar="[WALLET]")
@options.flag("--all", "Also show the settings that you have not set.", "everything")
@options.with_settings("database", "wallets_file", *options.PROVIDER)
def check(settings: Settings, wallet: str | None, *, everything: bool) -> int:
    """Show the settings that you have set, and test the setup.

    check reads the balances of WALLET (an id or a label), otherwise of the first wallet in the
    wallets file or in the database. It stores nothing, never shows secrets, and exits with 1 if a
    test FAILED.

    \b
    Examples:
      nftsync check
      nftsync check 8d1cc10a-7fbf-42e7-b58d-5110899866aa --base-url https://api.example.com
      nftsync check Treasury
      nftsync check --all                 also the settings that are not set
    """
    from nftsync.cli.checks import run_checks
    from nftsync.store.wallets import ids_from

    wallet_id = None if wallet is None else ids_from(settings.database, wallet)[0]
    rows = describe(settings)
    shown = [
        row
        for row in rows
        if everything or row["setting"] == "database" or row["source"] != "default"
    ]
    print_table([shown], _SETTING)
    if more := len(rows) - len(shown):
        click.echo(f"{counted(more, 'other setting')} not set. Show all: nftsync check --all")
    click.echo()
    failed = 0
    for verdict, subject, message in run_checks(settings, wallet_id):
        space = " " * (8 - len(verdict))
        click.echo(wrapped(f"{colored(verdict)}{space} {subject}: {one_line(utc_times(message))}"))
        failed += verdict == "FAILED"
    return 1 if failed else 0


def describe(settings: Settings) -> list[dict[str, str]]:
    """Return each setting as a row, without secrets."""
    from nftsync.settings import KEYS

    return [
        {
            "setting": key.name,
            "source": settings.sources[key.name],
            "value": _shown(key, getattr(settings, key.name)),
        }
        for key in KEYS
    ]


def _shown(key: Key, value: Any) -> str:
    if value is None or value in ({}, []):
        return "not set"
    if isinstance(value, str) and not value.strip():
        return "blank"
    if key.name == "token_command":
        return _command_shown(value)
    if key.secret:
        return f"set ({', '.join(value)})" if isinstance(value, dict) else "set"
    if key.name == "routes":
        return "; ".join(f"{name}: {_written(route)}" for name, route in value.items())
    if key.name == "paging":
        return _written(value)
    if isinstance(value, list | dict):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _command_shown(command: str) -> str:
    # Its arguments may be secret.
    try:
        program, *arguments = shlex.split(command)
    except ValueError:
        return "set"
    return f"{program} …; {len(arguments)} arguments, not shown" if arguments else program


def _written(table: Route | Paging) -> str:
    entries = {name: getattr(table, name) for name in table.__struct_fields__}
    return " ".join(f"{name}={value}" for name, value in entries.items() if value)
