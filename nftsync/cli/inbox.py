"""The commands `inbox` and `routes`: stored webhooks, and the reads that they cause."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.output import (
    one_line,
    open_existing,
    print_json,
    print_json_rows,
    say,
    say_truncated,
)
from nftsync.cli.tables import TableColumn, print_table, wide_option
from nftsync.errors import InputError
from nftsync.store import STATES
from nftsync.text import visible

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
#: Numbers of rows shown without --limit or --json.
_TABLE_ROWS = 50
_CHANGES_LISTED = 10
_REFUSALS_LISTED = 20


@click.group(invoke_without_command=True)
@options.with_settings("database")
@click.option(
    "--state", type=click.Choice(STATES), metavar="STATE", help="Only webhooks in this state."
)
@options.limit(
    f"Number of newest webhooks; 0 shows all. Default: {_TABLE_ROWS}, or all with --json",
    None,
)
@wide_option
@options.json("Print webhooks as JSON, without bodies.")
def inbox(
    settings: Settings, *, state: str | None, limit: int | None, wide: bool, as_json: bool
) -> None:
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
    from nftsync.reports.change_feed import InboxView

    most = (None if as_json else _TABLE_ROWS) if limit is None else limit or None
    with InboxView.open(settings.database) as view:
        numbers = view.newest(state, most)
        if as_json:
            print_json_rows(view.pages(numbers, state))
            return
        if not numbers:
            say("No webhooks." if state is None else f"No webhooks are {state}.")
            return
        print_table(view.pages(numbers, state), _SHOWN, wide=wide)
        if most is not None and len(numbers) == most:
            say_truncated(most, view.count(state), "webhooks", newest=True)


def _add_list(group: click.Group, text: str) -> None:
    """Add the subcommand `list`, which does what the group does alone."""
    group.add_command(
        click.Command("list", callback=group.callback, params=group.params, help=text)
    )


_add_list(inbox, "List stored webhooks, newest first, like `nftsync inbox`.")


@inbox.command("show")
@click.argument("webhook_id", metavar="ID")
@options.with_settings("database")
@options.json("Print the webhook as JSON. A body that is not UTF-8 is in body_base64.")
def show(settings: Settings, webhook_id: str, *, as_json: bool) -> None:
    """Show a webhook with its body and the changes that it caused.

    ID is the webhook's UUID or, if it was quarantined, `q-` and the SHA-256 of its body.
    """
    from nftsync.reports.change_feed import InboxView
    from nftsync.store.requeue import normalize_webhook_id

    with InboxView.open(settings.database) as view:
        webhook, body = view.find(normalize_webhook_id(webhook_id))
    if as_json:
        print_json(webhook_as_json(webhook, body))
    else:
        print_webhook(webhook, body)


@inbox.command("requeue")
@click.argument("webhook_ids", nargs=-1, metavar="[ID]...")
@click.option(
    "--state",
    type=click.Choice(STATES),
    metavar="STATE",
    help="Requeue all webhooks in this state: failed, dead, unrouted, done or quarantined.",
)
@options.with_settings("database")
def requeue(settings: Settings, webhook_ids: tuple[str, ...], state: str | None) -> int:
    """Return webhooks to the state pending, with fresh attempts.

    Name webhooks by ID, or choose a --state. Requeuing a done webhook reads its object again.
    nftsync requeues a quarantined webhook only if its body is now usable, for example because you
    corrected organization_id.

    If an ID is unknown, nftsync changes nothing. It exits with 1 if it could not requeue a webhook.
    """
    from nftsync.provider.webhooks import read_webhook
    from nftsync.store.requeue import normalize_webhook_id, numbers_in_state, numbers_of_ids
    from nftsync.store.requeue import requeue as put_back
    from nftsync.terminal import progress_bar

    if bool(webhook_ids) == bool(state):
        raise click.UsageError("name webhooks by ID, or choose a state with --state")
    if state == "running":
        raise InputError(
            "running webhooks cannot be requeued; if their worker has died, they return to "
            "pending automatically"
        )
    ids = [normalize_webhook_id(webhook_id) for webhook_id in webhook_ids]
    organization = settings.organization_id
    requeued = already = 0
    refused: list[tuple[str, str]] = []
    with open_existing(settings.database) as mirror:
        connection = mirror.connection
        numbers = numbers_in_state(connection, state) if state else numbers_of_ids(connection, ids)
        steps = put_back(mirror, numbers, lambda body: read_webhook(body, organization), only=state)
        with closing(progress_bar("requeue", len(numbers), unit="webhooks")) as bar:
            for step in steps:
                requeued += step.put_back
                already += step.already
                refused += step.refused
                bar.update(step.put_back + step.already + len(step.refused))
    click.echo(f"{requeued:,} requeued.")
    if already:
        say(f"{already:,} already pending.")
    for webhook_id, reason in refused[:_REFUSALS_LISTED]:
        say(one_line(f"{webhook_id} not requeued: {reason}"))
    if len(refused) > _REFUSALS_LISTED:
        say(f"{len(refused) - _REFUSALS_LISTED:,} more not requeued.")
    return 1 if refused else 0


@inbox.command("prune")
@options.duration(
    "--older-than",
    "Prune webhooks that have been in their state for this long: 90s, 6h, 7d",
    required=True,
)
@options.shown(
    "--state",
    click.Choice(["done", "quarantined"]),
    "done",
    "State of the webhooks to prune. You can't requeue a quarantined webhook after pruning it.",
)
@options.with_settings("database")
def prune(settings: Settings, older_than: timedelta, state: str) -> None:
    """Empty the bodies of old webhooks.

    Pruning keeps each webhook's id, times, fields and SHA-256, so nftsync still recognizes a
    repeated delivery. You can prune while `nftsync serve` is running.
    """
    from nftsync.store.requeue import prunable
    from nftsync.store.requeue import prune as empty
    from nftsync.terminal import progress_bar
    from nftsync.times import now, shifted

    before = shifted(now(), -older_than)
    webhooks = size = 0
    with open_existing(settings.database) as mirror:
        rows = prunable(mirror.connection, before, state)
        with closing(progress_bar("prune", len(rows), unit="webhooks")) as bar:
            for step in empty(mirror, rows, before, state):
                webhooks += step.webhooks
                size += step.size
                bar.update(step.processed)
    click.echo(f"Bodies emptied: {webhooks:,} ({size:,} bytes).")
    if webhooks:
        say("The database reuses the space. To shrink the file, run VACUUM.")


def webhook_as_json(webhook: Mapping[str, Any], body: bytes | None) -> dict[str, Any]:
    """Return what `inbox show --json` prints; a body that is not UTF-8 is in `body_base64`."""
    shown: dict[str, Any] = {**webhook, "pruned": body is None, "body": None}
    if body is not None:
        try:
            shown["body"] = body.decode()
        except UnicodeDecodeError:
            shown["body_base64"] = base64.b64encode(body).decode()
    return shown


def print_webhook(webhook: Mapping[str, Any], body: bytes | None) -> None:
    """Print a webhook, with characters that act on the terminal escaped."""
    for name, value in webhook.items():
        if isinstance(value, list):
            _print_changes(name, value)
        elif value is not None:
            click.echo(f"{name:<18}{one_line(str(value))}")
    if body is None:
        click.echo("body              pruned: emptied by `nftsync inbox prune`")
        return
    click.echo(f"body              {len(body):,} bytes")
    for line in _readable(body).splitlines():
        click.echo(visible(line))


def _print_changes(name: str, changes: list[dict[str, Any]]) -> None:
    click.echo(f"{name:<18}{len(changes):,}")
    for change in changes[:_CHANGES_LISTED]:
        ids = "  ".join(str(value) for key, value in change.items() if key != "change_id")
        click.echo(f"  {change['change_id']:<16}{visible(ids)}")
    if len(changes) > _CHANGES_LISTED:
        click.echo(f"  and {len(changes) - _CHANGES_LISTED:,} more. Show all: --json")


def _readable(body: bytes) -> str:
    """Indent a JSON body; escape undecodable bytes of any other."""
    import msgspec

    try:
        body.decode()
        return msgspec.json.format(body, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode("utf-8", "backslashreplace")


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


_add_list(routes, "List the active routes, like `nftsync routes`.")


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
