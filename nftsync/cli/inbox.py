"""The commands `inbox` and `routes`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.output import print_json, say
from nftsync.cli.queues import QueueCommands, add_list
from nftsync.cli.tables import TableColumn, print_table, wide_option
from nftsync.store.queues import INBOX

if TYPE_CHECKING:
    from nftsync.settings import Settings


#: Columns of the table of webhooks.
_SHOWN = (
    TableColumn("received", "received_at", "time"),
    TableColumn("state", "state", "state"),
    TableColumn("type", "resource_type"),
    TableColumn("object", "resource_id", "id"),
    TableColumn("action", "action", optional=True),
    TableColumn("attempts", "attempts", "number", optional=True),
    TableColumn("deliveries", "deliveries", "number", optional=True),
    TableColumn("next attempt", "next_attempt_at", "time", optional=True),
    TableColumn("webhook", "webhook_id", "ref"),
    TableColumn("last error", "last_error", "message"),
)


_commands = QueueCommands(INBOX, _SHOWN, "failed, dead, unrouted, done or quarantined")


@click.group(invoke_without_command=True)
@_commands.listing
def inbox() -> None:
    """List, inspect, requeue or prune stored webhooks.

    \b
    STATE is one of:
      pending       waiting for its read
      running       being processed
      done          processed
      failed        its read failed; nftsync will retry it
      dead          its read failed; no attempts are left
      unrouted      its type has no route
      quarantined   valid signature, but unusable content

    \b
    Examples:
      nftsync inbox
      nftsync inbox --state dead
      nftsync inbox show 8d1cc10a-7fbf-42e7-b58d-5110899866aa
      nftsync inbox requeue --state unrouted
      nftsync inbox prune --older-than 30d
    """


add_list(inbox, "List stored webhooks, newest first, like `nftsync inbox`.")


@inbox.command("show")
@_commands.show
def show() -> None:
    """Show a webhook with its body and the changes that it caused.

    ID is the webhook's UUID or, if it was quarantined, `q-` and the SHA-256 of its body.
    """


@inbox.command("requeue")
@_commands.requeue
def requeue() -> None:
    """Return webhooks to the state pending, with fresh attempts.

    Name webhooks by ID, or choose a --state. Requeuing a done webhook reads its object again.
    nftsync requeues a quarantined webhook only if its body is now usable, for example with a
    corrected organization_id.

    If an ID is unknown, nftsync changes nothing. It exits with 1 if it could not requeue a webhook.
    """


@inbox.command("prune")
@_commands.prune
@options.valued(
    "--state",
    None,
    click.Choice(["done", "quarantined"]),
    "State of the webhooks to prune. You can't requeue a quarantined webhook after pruning it.",
    "done",
)
def prune() -> None:
    """Empty the bodies of old webhooks.

    Pruning keeps each webhook's id, times, fields and SHA-256, so nftsync still recognizes a
    repeated delivery. You can prune while `nftsync serve` is running.
    """


# Routes ----------------------------------------------------------------------------------

#: Columns of the table of routes.
_ROUTE = (
    TableColumn("type", "type", "key"),
    TableColumn("kind", "kind"),
    TableColumn("path", "path", "key"),
    TableColumn("at most every", "at_most_every"),
    TableColumn("holders", "holders"),
    TableColumn("wallets", "wallets"),
    TableColumn("tokens", "tokens"),
    TableColumn("source", "source"),
)

#: Units of a duration in the settings.
_DURATIONS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


@click.group(invoke_without_command=True)
@options.with_settings("database")
@wide_option
@options.json("Print the routes as JSON.")
def routes(settings: Settings, *, wide: bool, as_json: bool) -> None:
    """List the webhook routes, or suggest new ones.

    Token, Nft and Wallet have built-in routes. Every other type needs a [routes.TYPE] table in
    nftsync.toml, because the provider's documentation gives no path for it.

    \b
    Examples:
      nftsync routes
      nftsync routes suggest
    """
    import msgspec

    from nftsync.provider.webhooks import merge_routes

    rows: list[dict[str, Any]] = [
        {
            "type": name,
            **msgspec.structs.asdict(route),
            "at_most_every": _duration(route.at_most_every),
            "source": "nftsync.toml" if name in settings.routes else "built in",
        }
        for name, route in merge_routes(settings.routes).by_type.items()
    ]
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            row["holders"] = "yes" if row["holders"] else None
            row["wallets"], row["tokens"] = ", ".join(row["wallets"]), ", ".join(row["tokens"])
        print_table([rows], _ROUTE, wide=wide)


add_list(routes, "List the active routes, like `nftsync routes`.")


def _duration(value: timedelta | None) -> str | None:
    if value is None:
        return None
    seconds = round(value.total_seconds())
    unit, size = next((unit, size) for unit, size in _DURATIONS if seconds % size == 0)
    return f"{seconds // size}{unit}"


@routes.command("suggest")
@options.with_settings("database")
def suggest(settings: Settings) -> None:
    """Print TOML routes for webhook types whose route is missing or incomplete.

    nftsync derives each route from the known wallet and token ids in the newest 10,000 webhooks of
    its type, and in the objects read for these webhooks.

    \b
    Examples:
      nftsync routes suggest > suggested.toml
      nftsync inbox requeue --state unrouted
    """
    from nftsync.provider.webhooks import merge_routes
    from nftsync.reports.suggestions import as_toml
    from nftsync.reports.suggestions import suggest as find_suggestions

    suggestions = find_suggestions(settings.database, merge_routes(settings.routes))
    if not suggestions.routes:
        say("Nothing to suggest: every type in the inbox has a route.")
        return
    click.echo(as_toml(suggestions), nl=False)
    say(
        "Copy the correct routes to nftsync.toml, and restart `nftsync serve`. "
        "Then requeue the webhooks: nftsync inbox requeue --state unrouted"
    )
