"""`nftsync check`: do the settings, the database, the API and the secret work?"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from nftsync.cli.options import PROVIDER, with_settings
from nftsync.cli.output import one_line, print_table

if TYPE_CHECKING:
    from nftsync.checks import Check
    from nftsync.settings import Settings

__all__ = ["check"]

#: A check is run by someone who waits; a provider that is down says so at the second try.
_ATTEMPTS = 2


@click.command(short_help="Show each setting and its source, and try them.")
@click.argument("wallet_id", required=False, metavar="[WALLET_ID]")
@with_settings("database", *PROVIDER)
@click.pass_context
def check(context: click.Context, settings: Settings, wallet_id: str | None) -> None:
    """Show each setting and where it came from, and try what depends on them.

    Reads the balances of WALLET_ID, or of the first tracked wallet, to try the API, and stores
    nothing. Secrets are not shown. Exits with 1 when something FAILED.

    \b
    Examples:
      nftsync check
      nftsync check 8d1cc10a-7fbf-42e7-b58d-5110899866aa --base-url https://api.example.com
    """
    from nftsync import checks
    from nftsync.models import normalize_uuid
    from nftsync.settings import describe

    wallet = None if wallet_id is None else normalize_uuid(wallet_id, "wallet id")
    heads = ("setting", "value", "source")
    print_table((dict(zip(heads, line, strict=True)) for line in describe(settings)), heads)
    _print([checks.Check("ok", "settings", "each is of the right form")])
    failed = _print(checks.check_database(settings.database))
    failed += _print(_check_api(settings, wallet))
    failed += _print(checks.check_secret(settings.webhook_secret))
    context.exit(1 if failed else 0)


def _print(results: list[Check]) -> int:
    """Print results, a line each, and tell how many failed."""
    for verdict, what, message in results:
        click.echo(f"{verdict:<8} {what}: {one_line(message)}")
    return sum(result.verdict == "FAILED" for result in results)


def _check_api(settings: Settings, wallet_id: str | None) -> list[Check]:
    from nftsync import checks
    from nftsync.api import client_config
    from nftsync.errors import NftsyncError, SettingsError

    try:
        config = client_config(replace(settings, retries=min(settings.retries, _ATTEMPTS)))
        client, _ = config.connect()
    except SettingsError as error:
        return [checks.Check("FAILED", "API", str(error))]
    results = checks.check_base_url(settings.base_url or "")
    with client:
        if wallet_id is None:
            with suppress(NftsyncError):  # the line on the database says what is wrong with it
                wallet_id = checks.first_tracked_wallet(settings.database)
        if wallet_id is None:
            todo = "no wallet to read; name one: nftsync check WALLET_ID"
            return [*results, checks.Check("skipped", "API", todo)]
        return results + checks.check_api(client, wallet_id)
