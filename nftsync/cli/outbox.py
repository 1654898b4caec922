"""The command `outbox`."""

from __future__ import annotations

import click

from nftsync.cli.queues import QueueCommands, add_list
from nftsync.cli.tables import TableColumn
from nftsync.store.queues import OUTBOX

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


def _text_of(body: bytes | None) -> str:
    from nftsync.watch.texts import text_of

    return text_of(body)


_commands = QueueCommands(OUTBOX, _SHOWN, "failed, dead or done", _text_of)


@click.group(invoke_without_command=True)
@_commands.listing
def outbox() -> None:
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


add_list(outbox, "List messages, newest first, like `nftsync outbox`.")


@outbox.command("show")
@_commands.show
def show() -> None:
    """Show a message with its body.

    ID is `msg_` and 32 hex digits, as in the header webhook-id.
    """


@outbox.command("requeue")
@_commands.requeue
def requeue() -> None:
    """Return messages to the state pending, with fresh attempts.

    Name messages by ID, or choose a --state. Requeuing a done message sends it again, under the
    same id.

    If an ID is unknown, nftsync changes nothing. It exits with 1 if it could not requeue a message,
    for example because its body was pruned.
    """


@outbox.command("prune")
@_commands.prune
def prune() -> None:
    """Empty the bodies of old, delivered messages.

    Pruning keeps each message's id, rule, destination and times. You can't requeue a pruned
    message. You can prune while `nftsync serve` is running.
    """
