"""The command `outbox`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.queues import (
    add_list,
    list_options,
    list_rows,
    prune_options,
    prune_rows,
    requeue_options,
    requeue_rows,
    show_row,
)
from nftsync.cli.tables import TableColumn
from nftsync.store.queues import OUTBOX

if TYPE_CHECKING:
    from nftsync.settings import Settings

#: Columns of the table of messages.
_SHOWN = (
    TableColumn("created", "created_at", "time"),
    TableColumn("state", "state", "state"),
    TableColumn("destination", "destination"),
    TableColumn("text", "text"),
    TableColumn("rule", "rule", optional=True),
    TableColumn("attempts", "attempts", "number", optional=True),
    TableColumn("next attempt", "next_attempt_at", "time", optional=True),
    TableColumn("message", "message_id", "ref"),
    TableColumn("last error", "last_error", "message"),
)


@click.group(invoke_without_command=True)
@list_options(OUTBOX)
def outbox(settings: Settings, **view: Any) -> None:
    """List, inspect, requeue or prune messages to destinations.

    \b
    STATE is one of:
      pending       not sent yet
      running       being sent
      done          accepted by its destination
      failed        refused; nftsync will retry it
      dead          refused; no attempts are left

    \b
    Examples:
      nftsync outbox
      nftsync outbox --state dead
      nftsync outbox show msg_0123456789abcdef0123456789abcdef
      nftsync outbox requeue --state dead
      nftsync outbox prune --older-than 30d
    """
    from nftsync.watch.texts import text_of

    list_rows(OUTBOX, _SHOWN, settings, **view, text_of=text_of)


add_list(outbox, "List messages, newest first, like `nftsync outbox`.")


@outbox.command("show")
@click.argument("message_id", metavar="ID")
@options.with_settings("database")
@options.json("Print the message as JSON. A body that is not UTF-8 is in body_base64.")
def show(settings: Settings, message_id: str, *, as_json: bool) -> None:
    """Show a message with its body.

    ID is `msg_` and 32 hex digits, as in the header webhook-id.
    """
    show_row(OUTBOX, settings, message_id, as_json=as_json)


@outbox.command("requeue")
@requeue_options(OUTBOX, "failed, dead or done")
def requeue(settings: Settings, ids: tuple[str, ...], state: str | None) -> int:
    """Return messages to the state pending, with fresh attempts.

    Name messages by ID, or choose a --state. Requeuing a done message sends it again, under the
    same id.

    If an ID is unknown, nftsync changes nothing. It exits with 1 if it could not requeue a message,
    for example because its body was pruned.
    """
    return requeue_rows(OUTBOX, settings, ids, state)


@outbox.command("prune")
@prune_options(OUTBOX)
def prune(settings: Settings, older_than: timedelta) -> None:
    """Empty the bodies of old, delivered messages.

    Pruning keeps each message's id, rule, destination and times. You can't requeue a pruned
    message. You can prune while `nftsync serve` is running.
    """
    prune_rows(OUTBOX, settings, older_than)
