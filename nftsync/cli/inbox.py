"""The commands `inbox` and `routes`: stored webhooks, and the reads they cause."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli.common import (
    duration_option,
    json_option,
    limit_option,
    one_line,
    open_existing,
    print_json,
    print_json_rows,
    say,
    say_left_out,
    with_settings,
)
from nftsync.cli.tables import TableColumn, print_table, wide_option
from nftsync.errors import InputError
from nftsync.store import STATES
from nftsync.text import visible

if TYPE_CHECKING:
    from nftsync.settings import Settings


#: What the table shows of a webhook, and how much is listed where `--limit` or `--json` gives all.
_SHOWN = (
    TableColumn("received", "received_at", "time"),
    TableColumn("state", "state"),
    TableColumn("type", "resource_type"),
    TableColumn("object", "resource_id", "id"),
    TableColumn("action", "action"),
    TableColumn("attempts", "attempts", "number"),
    TableColumn("deliveries", "deliveries", "number"),
    TableColumn("next attempt", "next_attempt_at", "time"),
    TableColumn("webhook", "webhook_id", "key"),
    TableColumn("last error", "last_error", "message"),
)
_TABLE_ROWS = 50
_CHANGES_LISTED = 10
_REFUSALS_LISTED = 20


@click.group(invoke_without_command=True)
@with_settings("database")
@click.option(
    "--state", type=click.Choice(STATES), metavar="STATE", help="Only those in this state."
)
@limit_option(f"Only the newest; 0 shows all. The table shows {_TABLE_ROWS} without it.", None)
@wide_option
@json_option("Print them as JSON, without the bodies; all of them unless --limit is given.")
def inbox(
    settings: Settings, *, state: str | None, limit: int | None, wide: bool, as_json: bool
) -> None:
    """Look into stored webhooks; put them back, or prune them.

    Without a subcommand it lists them, the newest first. STATE is pending (waits for its read),
    running, done, failed (will be tried again), dead (its attempts are used up), unrouted (no route
    for its type) or quarantined (signed, but unusable).

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
            say_left_out(most, view.count(state), "webhooks", newest=True)


inbox.add_command(
    click.Command(
        "list",
        callback=inbox.callback,
        params=inbox.params,
        help="List stored webhooks, the newest first: what `nftsync inbox` does by itself.",
    )
)


@inbox.command("show")
@click.argument("webhook_id", metavar="ID")
@with_settings("database")
@json_option("Print it as JSON, the body as text, or as body_base64 where it is not UTF-8.")
def show(settings: Settings, webhook_id: str, *, as_json: bool) -> None:
    """Show one webhook with its body, and the changes that name it as their cause.

    ID is the webhook's UUID, or for a quarantined one `q-` and the SHA-256 of its body.
    """
    from nftsync.reports.change_feed import InboxView
    from nftsync.store.requeue import normalize_webhook_id

    known = normalize_webhook_id(webhook_id)
    with InboxView.open(settings.database) as view:
        webhook, body = view.find(known)
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
    help="All in it: failed, dead, unrouted, done or quarantined.",
)
@with_settings("database")
def requeue(settings: Settings, webhook_ids: tuple[str, ...], state: str | None) -> int:
    """Put webhooks back to pending, with fresh attempts: named ones, or all of a state.

    Those that are done are read once more. A quarantined one goes back if its body can be read now,
    as when organization_id was wrong; it keeps its id. When one of several IDs is unknown, nothing
    is changed. Exits with 1 when some could not be put back; they are listed.
    """
    from nftsync.store.requeue import normalize_webhook_id

    if bool(webhook_ids) == bool(state):
        raise click.UsageError("name webhooks by their IDs, or all of a state with --state")
    if state == "running":
        raise InputError(
            "running webhooks are being worked on; those of a worker that is gone go back "
            "to pending by themselves"
        )
    ids = [normalize_webhook_id(webhook_id) for webhook_id in webhook_ids]
    refused = _put_back(settings, ids, state)
    for webhook_id, reason in refused[:_REFUSALS_LISTED]:
        say(one_line(f"{webhook_id} stays: {reason}"))
    if len(refused) > _REFUSALS_LISTED:
        say(f"{len(refused) - _REFUSALS_LISTED:,} more stay as they are.")
    return 1 if refused else 0


def _put_back(settings: Settings, ids: list[str], state: str | None) -> list[tuple[str, str]]:
    """Put back the named webhooks, or all of a state; say how many, and return what was refused."""
    from nftsync.provider.webhooks import read_webhook
    from nftsync.store.requeue import numbers_in_state, numbers_of_ids, requeue
    from nftsync.terminal import progress_bar

    organization = settings.organization_id
    put_back = already = 0
    refused: list[tuple[str, str]] = []
    with open_existing(settings.database) as mirror:
        connection = mirror.connection
        numbers = numbers_in_state(connection, state) if state else numbers_of_ids(connection, ids)
        steps = requeue(mirror, numbers, lambda body: read_webhook(body, organization), only=state)
        with closing(progress_bar("requeue", len(numbers), unit="webhooks")) as bar:
            for step in steps:
                put_back += step.put_back
                already += step.already
                refused += step.refused
                bar.update(step.put_back + step.already + len(step.refused))
    click.echo(f"{put_back:,} put back to pending.")
    if already:
        say(f"{already:,} pending already.")
    return refused


@inbox.command("prune")
@duration_option(
    "--older-than", "Done (or in quarantine) for longer than 90s, 6h or 7d.", required=True
)
@click.option(
    "--state",
    type=click.Choice(["done", "quarantined"]),
    default="done",
    show_default=True,
    help="Which webhooks; one in quarantine cannot be put back without its body.",
)
@with_settings("database")
def prune(settings: Settings, older_than: timedelta, state: str) -> None:
    """Empty the bodies of webhooks that have been done for a while; `serve` may go on.

    Their ids, times, fields and SHA-256 stay, so that one that comes again is still known. The
    database uses the room again; the file itself only shrinks when SQLite's VACUUM rewrites it.
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
                bar.update(step.seen)
    click.echo(f"Bodies emptied: {webhooks:,}, together {size:,} bytes.")
    if webhooks:
        say("The file keeps its size, and the room is used again; only VACUUM makes it smaller.")


def webhook_as_json(webhook: Mapping[str, Any], body: bytes | None) -> dict[str, Any]:
    """What `inbox show --json` prints.

    The body is `body`, as text; where it is no UTF-8, that is null and it is `body_base64`.
    """
    shown: dict[str, Any] = {**webhook, "pruned": body is None, "body": None}
    if body is not None:
        try:
            shown["body"] = body.decode()
        except UnicodeDecodeError:
            shown["body_base64"] = base64.b64encode(body).decode()
    return shown


def print_webhook(webhook: Mapping[str, Any], body: bytes | None) -> None:
    """Print a webhook for a person; nothing in it acts on the terminal."""
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
        click.echo(f"  and {len(changes) - _CHANGES_LISTED:,} more; all with --json")


def _readable(body: bytes) -> str:
    """A JSON body over several lines; another as it is, its strange bytes escaped."""
    import msgspec

    try:
        body.decode()
        return msgspec.json.format(body, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode("utf-8", "backslashreplace")


# Routes ----------------------------------------------------------------------------------

#: What is listed of a route.
_ROUTE = (
    TableColumn("type", "type", "key"),
    TableColumn("kind", "kind"),
    TableColumn("path", "path", "key"),
    TableColumn("at most every", "at_most_every"),
    TableColumn("holders too", "holders"),
    TableColumn("wallets", "wallets"),
    TableColumn("tokens", "tokens"),
    TableColumn("source", "source"),
)

#: Units of a duration as the settings take it.
_DURATIONS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


@click.group(invoke_without_command=True)
@with_settings("database")
@wide_option
@json_option("Print them as JSON.")
def routes(settings: Settings, *, wide: bool, as_json: bool) -> None:
    """Show which read follows which webhook; suggest more.

    Without a subcommand it lists the routes in force. Types other than Token, Nft and Wallet need a
    [routes.TYPE] table in nftsync.toml, as the provider's document shows no paths for them.

    \b
    Examples:
      nftsync routes
      nftsync routes suggest
    """
    _list_routes(settings, wide=wide, as_json=as_json)


@routes.command("list")
@with_settings()
@wide_option
@json_option("Print them as JSON.")
def list_routes(settings: Settings, *, wide: bool, as_json: bool) -> None:
    """List the routes in force: what `nftsync routes` does by itself."""
    _list_routes(settings, wide=wide, as_json=as_json)


def _list_routes(settings: Settings, *, wide: bool, as_json: bool) -> None:
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


def _duration(value: timedelta | None) -> str | None:
    """A duration as the settings take it: `15m`."""
    if value is None:
        return None
    seconds = round(value.total_seconds())
    unit, size = next(each for each in _DURATIONS if seconds % each[1] == 0)
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
    from nftsync.provider.webhooks import merge_routes
    from nftsync.reports.suggestions import as_toml
    from nftsync.reports.suggestions import suggest as look

    found = look(settings.database, merge_routes(settings.routes))
    if not found.routes:
        say("Nothing to suggest: each type in the inbox, if there is any, has its route.")
        return
    click.echo(as_toml(found), nl=False)
    say(
        "Put what is right into nftsync.toml, start `nftsync serve` again, and have waiting "
        "webhooks read with `nftsync inbox requeue --state unrouted`."
    )
