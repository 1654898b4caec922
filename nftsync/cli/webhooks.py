"""`nftsync webhook-config`: tell the provider where webhooks go, and which."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from nftsync.cli.common import print_json, print_table, say, visible, with_settings
from nftsync.errors import (
    AccessRefused,
    InputError,
    NoConnection,
    ReadError,
    SettingsError,
    UnusableAnswer,
)

if TYPE_CHECKING:
    from nftsync.provider.routes import Route
    from nftsync.settings import Settings

__all__ = ["routes", "webhook_config"]


#: What can be subscribed to (provider's document, section Webhook configuration).
_TYPES = ("payment", "transaction", "nft", "kyc", "document", "custodialAccount")

_MUST = "--url must be an address such as https://hooks.example.com/webhooks"
_HOST = re.compile(r"[\w.-]+|[0-9a-f:.]+")


@click.command("webhook-config")
@click.option("--url", metavar="URL", help="Where webhooks are sent: this server, from outside.")
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(_TYPES),
    metavar="TYPE",
    help=f"Receive {', '.join(_TYPES[:-1])} or {_TYPES[-1]}; give it several times for several. "
    "They replace the whole list.",
)
@click.option("--enable/--disable", "enabled", default=None, help="Have webhooks sent, or not.")
@click.option(
    "--send-secret", is_flag=True, help="Send the configured webhook_secret; it is never shown."
)
@click.option(
    "--yes", is_flag=True, help="Don't ask before another URL takes the present one's place."
)
@with_settings("base_url", "timeout", "retries")
@click.pass_context
def webhook_config(
    context: click.Context,
    settings: Settings,
    *,
    url: str | None,
    types: tuple[str, ...],
    enabled: bool | None,
    send_secret: bool,
    yes: bool,
) -> None:
    """Change where the provider sends webhooks, and which.

    Only what is given is sent. An organization has one receiver: a new --url takes the place of the
    present one, whoever runs it. On a terminal that is asked first.

    \b
    Examples:
      nftsync webhook-config --url https://hooks.example.com/webhooks --type nft --send-secret
      nftsync webhook-config --enable
      nftsync webhook-config --type nft --type transaction
    """
    from nftsync.provider.client import Client
    from nftsync.pull.api import client_config

    changes = _changes(settings, url, types, enabled=enabled, send_secret=send_secret)
    config = client_config(settings)
    if url is not None and not yes and sys.stdin.isatty() and not _confirmed(changes["url"]):
        say("Nothing was changed.")
        context.exit(1)
    with Client(config) as client:
        try:
            client.configure_webhooks(changes)
        except ReadError as error:
            raise _explained(error) from None
    _report(config.base_url, changes)


def _changes(
    settings: Settings,
    url: str | None,
    types: tuple[str, ...],
    *,
    enabled: bool | None,
    send_secret: bool,
) -> dict[str, Any]:
    """What is to be sent, under the names of the provider's document."""
    changes: dict[str, Any] = {}
    if url is not None:
        changes["url"] = _checked_url(url)
    if enabled is not None:
        changes["enabled"] = enabled
    if types:
        changes["webhookTypes"] = list(dict.fromkeys(types))
    if send_secret:
        changes["sharedSecret"] = _secret(settings)
    if not changes:
        raise click.UsageError(
            "nothing to change; give --url, --type, --enable or --disable, or --send-secret"
        )
    return changes


def _secret(settings: Settings) -> str:
    secret = settings.webhook_secret
    if secret is None or not secret.strip():
        raise SettingsError(
            f"{'no' if secret is None else 'a blank'} webhook_secret: set it with "
            "NFTSYNC_WEBHOOK_SECRET, NFTSYNC_WEBHOOK_SECRET_FILE or webhook_secret in nftsync.toml"
        )
    return secret


def _checked_url(given: str) -> str:
    """Check a receiver's address; a user name or password in it is not repeated.

    Raises:
        InputError: it cannot be the address of a receiver.
    """
    url = given.strip()
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        usable = parts.port != 0 and _HOST.fullmatch(host) is not None
    except ValueError:
        raise InputError(_MUST) from None
    if "@" in parts.netloc:
        raise InputError("--url must not contain a user name or password")
    usable = usable and url.isprintable() and re.search(r"[\s\\#]", url) is None
    if not usable or parts.scheme not in {"http", "https"}:
        raise InputError(_MUST)
    from nftsync.reports.checks import is_this_machine

    if parts.scheme == "http" and not is_this_machine(host):
        say(
            f"warning: webhooks to {host} would travel unencrypted over plain http; "
            "put TLS in front of `nftsync serve` and give an https address"
        )
    return url


def _confirmed(url: str) -> bool:
    question = (
        f"All webhooks of the organization will go to {visible(url)} and nowhere else. Go on?"
    )
    return click.confirm(question, err=True)


def _explained(error: ReadError) -> ReadError:
    """The failure in one line that says what to do next."""
    if isinstance(error, AccessRefused):
        text = (
            f"the provider refused the change ({error.status}); check api_token, token_command or "
            "headers, and that they may change the organization's configuration"
        )
    elif error.status == 404:
        text = "the provider has no webhook configuration at this base_url (404); check base_url"
    elif isinstance(error, NoConnection):
        text = f"{error}; whether the change arrived is not known: run it again"
    elif isinstance(error, UnusableAnswer) or error.status is None:
        text = f"{error}; nothing is known to have changed"
    elif error.status == 429 or error.status >= 500:
        text = f"{error}; run it again later"
    else:
        text = f"the provider refused the change ({error.status}); check what you gave"
    return ReadError(text, status=error.status)


def _report(base_url: str, changes: dict[str, Any]) -> None:
    click.echo(f"Sent to {base_url}:")
    for name, value in changes.items():
        if name == "sharedSecret":
            shown = "the configured webhook_secret"
        elif isinstance(value, bool):
            shown = str(value).lower()
        else:
            shown = ", ".join(value) if isinstance(value, list) else visible(value)
        click.echo(f"  {name:<14}{shown}")
    if changes.get("enabled") is False:
        say("No webhooks are sent until `nftsync webhook-config --enable`.")
        return
    if "sharedSecret" not in changes and "url" in changes:
        say("If the provider doesn't have the secret yet, send it with --send-secret.")
    if "url" in changes and "enabled" not in changes:
        say("Webhooks are sent only while enabled: `nftsync webhook-config --enable`.")
    say("Receive them with `nftsync serve`.")


_COLUMNS = ("type", "kind", "path", "holders", "wallets", "tokens", "at_most_every", "source")
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


@click.group(
    invoke_without_command=True, short_help="Show which read follows which webhook; suggest more."
)
@with_settings("database")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
def routes(settings: Settings, *, as_json: bool) -> None:
    """Show which read follows a webhook of which type, or suggest more.

    Without a subcommand it lists the routes in force. Types other than Token, Nft and Wallet need a
    [routes.TYPE] table in nftsync.toml, as the provider's document shows no paths for them.

    \b
    Examples:
      nftsync routes
      nftsync routes suggest
    """
    _list(settings, as_json=as_json)


@routes.command("list")
@with_settings()
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
def list_routes(settings: Settings, *, as_json: bool) -> None:
    """List the routes in force: what `nftsync routes` does by itself."""
    _list(settings, as_json=as_json)


def _list(settings: Settings, *, as_json: bool) -> None:
    from nftsync.provider.routes import merged

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
def suggest(settings: Settings) -> None:
    """Print TOML for webhooks that no route follows, or not wholly.

    Looks for the ids of known wallets and tokens in stored webhooks (their object's id and their
    changes) and in the objects that were read after them: of each type, the newest 10,000.

    \b
    Examples:
      nftsync routes suggest > suggested.toml
      nftsync inbox requeue --state unrouted
    """
    from nftsync.provider.routes import merged
    from nftsync.reports.suggestions import as_toml
    from nftsync.reports.suggestions import suggest as look

    found = look(settings.database, merged(settings.routes))
    if not found.routes:
        say("Nothing to suggest: each type in the inbox, if there is any, has its route.")
        return
    click.echo(as_toml(found), nl=False)
    say(
        "Put what is right into nftsync.toml, start `nftsync serve` again, and have waiting "
        "webhooks read with `nftsync inbox requeue --state unrouted`."
    )
