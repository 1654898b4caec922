"""Options, lists, requeuing and pruning of the commands `inbox` and `outbox`."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
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
from nftsync.store.queues import Queue
from nftsync.terminal import progress_bar
from nftsync.text import nests_too_deeply, visible
from nftsync.times import now, shifted

if TYPE_CHECKING:
    from nftsync.settings import Settings

#: Numbers of rows shown without --limit or --json.
_TABLE_ROWS = 50
_CHANGES_LISTED = 10
_REFUSALS_LISTED = 20


def add_list(group: click.Group, text: str) -> None:
    """Add `list`, which equals the group's own command."""
    group.add_command(
        click.Command("list", callback=group.callback, params=group.params, help=text)
    )


def list_options(queue: Queue) -> options.Decorator:
    """Return the options of `list_rows`."""
    return options.combined(
        options.with_settings("database"),
        _state(queue, f"Only {queue.table} in this state."),
        options.limit(
            f"Number of newest {queue.table}; 0 shows all."
            f" Default: {_TABLE_ROWS}, or all with --json",
            None,
        ),
        wide_option,
        options.json(f"Print {queue.table} as JSON, without bodies."),
    )


def requeue_options(queue: Queue, states: str) -> options.Decorator:
    """Return the arguments of `requeue_rows`."""
    return options.combined(
        click.argument("ids", nargs=-1, metavar="[ID]..."),
        _state(queue, f"Requeue all {queue.table} in this state: {states}."),
        options.with_settings("database"),
    )


def _state(queue: Queue, text: str) -> options.Decorator:
    return click.option("--state", type=click.Choice(queue.states), metavar="STATE", help=text)


def prune_options(queue: Queue, *more: options.Decorator) -> options.Decorator:
    """Return the options of `prune_rows`."""
    text = f"Prune {queue.table} that have been in their state for this long: 90s, 6h, 7d"
    older_than = options.duration("--older-than", text, required=True)
    return options.combined(older_than, *more, options.with_settings("database"))


def list_rows(
    queue: Queue,
    columns: Sequence[TableColumn],
    settings: Settings,
    *,
    state: str | None,
    limit: int | None,
    wide: bool,
    as_json: bool,
    text_of: Callable[[bytes | None], str] | None = None,
) -> None:
    """Print the newest rows; `text_of` makes a column `text` of the bodies."""
    from nftsync.reports.change_feed import QueueView

    most = (None if as_json else _TABLE_ROWS) if limit is None else limit or None
    with QueueView.open(settings.database, queue) as view:
        numbers = view.newest(state, most)
        if as_json:
            print_json_rows(view.pages(numbers, state))
            return
        if not numbers:
            say(f"No {queue.table}." if state is None else f"No {queue.table} are {state}.")
            return
        pages: Iterator[Sequence[Mapping[str, Any]]] = view.pages(numbers, state)
        if text_of is not None:
            with_bodies = view.pages(numbers, state, "body")
            pages = (
                [{**row, "text": text_of(row["body"])} for row in page] for page in with_bodies
            )
        print_table(pages, columns, wide=wide)
        if most is not None and len(numbers) == most:
            say_truncated(most, view.count(state), queue.table, newest=True)


def show_row(queue: Queue, settings: Settings, key: str, *, as_json: bool) -> None:
    """Print a row with its body."""
    from nftsync.reports.change_feed import QueueView
    from nftsync.store.requeue import normalize_id

    with QueueView.open(settings.database, queue) as view:
        row, body = view.find(normalize_id(queue, key))
    if as_json:
        print_json(row_as_json(row, body))
    else:
        print_row(queue, row, body)


def requeue_rows(queue: Queue, settings: Settings, ids: Sequence[str], state: str | None) -> int:
    """Requeue rows; return the exit code."""
    from nftsync.provider.webhooks import read_webhook
    from nftsync.store.requeue import normalize_id, numbers_in_state, numbers_of_ids, requeue

    if bool(ids) == bool(state):
        raise click.UsageError(f"name {queue.table} by ID, or choose a state with --state")
    if state == "running":
        raise InputError(
            f"running {queue.table} cannot be requeued; if their worker has died, they return to "
            "pending automatically"
        )
    ids = [normalize_id(queue, key) for key in ids]
    organization = settings.organization_id
    requeued = already = 0
    refused: list[tuple[str, str]] = []
    with open_existing(settings.database) as mirror:
        connection = mirror.connection
        if state:
            numbers = numbers_in_state(connection, queue, state)
        else:
            numbers = numbers_of_ids(connection, queue, ids)
        steps = requeue(
            mirror, queue, numbers, lambda body: read_webhook(body, organization), only=state
        )
        with closing(progress_bar("requeue", len(numbers), unit=queue.table)) as bar:
            for step in steps:
                requeued += step.put_back
                already += step.already
                refused += step.refused
                bar.update(step.put_back + step.already + len(step.refused))
    click.echo(f"{requeued:,} requeued.")
    if already:
        say(f"{already:,} already pending.")
    for key, reason in refused[:_REFUSALS_LISTED]:
        say(one_line(f"{key} not requeued: {reason}"))
    if len(refused) > _REFUSALS_LISTED:
        say(f"{len(refused) - _REFUSALS_LISTED:,} more not requeued.")
    return 1 if refused else 0


def prune_rows(
    queue: Queue, settings: Settings, older_than: timedelta, state: str = "done"
) -> None:
    """Empty the bodies of rows in a state."""
    from nftsync.store.requeue import prunable, prune

    before = shifted(now(), -older_than)
    bodies = size = 0
    with open_existing(settings.database) as mirror:
        rows = prunable(mirror.connection, queue, before, state)
        with closing(progress_bar("prune", len(rows), unit=queue.table)) as bar:
            for step in prune(mirror, queue, rows, before, state):
                bodies += step.bodies
                size += step.size
                bar.update(step.processed)
    click.echo(f"Bodies emptied: {bodies:,} ({size:,} bytes).")
    if bodies:
        say("The database reuses the space. To shrink the file, run VACUUM.")


def row_as_json(row: Mapping[str, Any], body: bytes | None) -> dict[str, Any]:
    """Return the JSON of a row with its body."""
    shown: dict[str, Any] = {**row, "pruned": body is None, "body": None}
    if body is not None:
        try:
            shown["body"] = body.decode()
        except UnicodeDecodeError:
            shown["body_base64"] = base64.b64encode(body).decode()
    return shown


def print_row(queue: Queue, row: Mapping[str, Any], body: bytes | None) -> None:
    """Print a row with its body."""
    for name, value in row.items():
        if isinstance(value, list):
            _print_changes(name, value)
        elif value is not None:
            click.echo(f"{name:<18}{one_line(str(value))}")
    if body is None:
        click.echo(f"body              pruned: emptied by `nftsync {queue.command} prune`")
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
    """Indent JSON, unless it nests too deeply."""
    import msgspec

    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        if not nests_too_deeply(body.decode()):
            return msgspec.json.format(body, indent=2).decode()
    return body.decode("utf-8", "backslashreplace")
