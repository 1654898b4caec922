"""`nftsync routes`: which read follows a webhook, and which could."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli.options import with_settings
from nftsync.cli.output import print_json, print_table, say
from nftsync.cli.subcommands import settings_of

if TYPE_CHECKING:
    from nftsync.routes import Route
    from nftsync.settings import Settings

__all__ = ["routes"]

_COLUMNS = ("type", "kind", "path", "holders", "wallets", "tokens", "at_most_every", "source")
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


@click.group(
    invoke_without_command=True, short_help="Show which read follows which webhook; suggest more."
)
@with_settings("database")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
@click.pass_context
def routes(context: click.Context, settings: Settings, *, as_json: bool) -> None:
    """Show which read follows a webhook of which type, or suggest more.

    Without a subcommand it lists the routes in force. Types other than Token, Nft and Wallet need a
    [routes.TYPE] table in nftsync.toml, as the provider's document shows no paths for them.

    \b
    Examples:
      nftsync routes
      nftsync routes suggest
    """
    if context.invoked_subcommand is None:
        _list(settings, as_json=as_json)
    elif as_json:
        raise click.UsageError("put --json after the subcommand's name")
    context.obj = settings


@routes.command("list")
@with_settings()
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
@click.pass_context
def list_routes(context: click.Context, settings: Settings, *, as_json: bool) -> None:
    """List the routes in force: what `nftsync routes` does by itself."""
    _list(settings_of(context, settings), as_json=as_json)


def _list(settings: Settings, *, as_json: bool) -> None:
    from nftsync.routes import merged

    rows = [
        _row(name, route, "nftsync.toml" if name in settings.routes else "built in")
        for name, route in merged(settings.routes).by_type.items()
    ]
    if as_json:
        print_json(rows)
    else:
        print_table((_as_text(row) for row in rows), _COLUMNS)


def _row(name: str, route: Route, source: str) -> dict[str, Any]:
    values = (
        *(name, route.kind, route.path, route.holders, route.wallets, route.tokens),
        *(_duration(route.at_most_every), source),
    )
    return dict(zip(_COLUMNS, values, strict=True))


def _as_text(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "holders": "yes" if row["holders"] else None,
        "wallets": ", ".join(row["wallets"]),
        "tokens": ", ".join(row["tokens"]),
    }


def _duration(value: timedelta | None) -> str | None:
    """A duration as the settings take it: `15m`."""
    if value is None:
        return None
    seconds = round(value.total_seconds())
    unit, size = next(each for each in _UNITS if seconds % each[1] == 0)
    return f"{seconds // size}{unit}"


@routes.command("suggest")
@with_settings("database")
@click.pass_context
def suggest(context: click.Context, settings: Settings) -> None:
    """Print TOML for webhooks that no route follows, or not wholly.

    Looks for the ids of known wallets and tokens in stored webhooks (their object's id and their
    changes) and in the objects that were read after them: of each type, the newest 10,000.

    \b
    Examples:
      nftsync routes suggest > suggested.toml
      nftsync inbox requeue --state unrouted
    """
    from nftsync.route_suggestions import suggest as look
    from nftsync.route_toml import as_toml
    from nftsync.routes import merged

    settings = settings_of(context, settings)
    found = look(settings.database, merged(settings.routes))
    if not found.routes:
        say("Nothing to suggest: each type in the inbox, if there is any, has its route.")
        return
    click.echo(as_toml(found), nl=False)
    say(
        "Put what is right into nftsync.toml, start `nftsync serve` again, and have waiting "
        "webhooks read with `nftsync inbox requeue --state unrouted`."
    )
