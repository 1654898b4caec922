"""The commands that `inbox` and `outbox` share."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

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


class QueueCommands(NamedTuple):
    """The commands on a queue; each decorator gives options and work to a function's help.

    `requeued` names the states that can be requeued; `text_of` makes a column `text` of a body.
    """

    queue: Queue
    columns: Sequence[TableColumn]
    requeued: str
    text_of: Callable[[bytes | None], str] | None = None

    def listing(self, documented: Callable[[], None]) -> Callable[..., Any]:
        """List the newest rows."""
        table = self.queue.table
        return options.combined(
            options.with_settings("database"),
            self._state(f"Only {table} in this state."),
            options.limit(
                f"Number of newest {table}; 0 shows all."
                f" Default: {_TABLE_ROWS}, or all with --json",
                None,
            ),
            wide_option,
            options.json(f"Print {table} as JSON, without bodies."),
        )(_documented(documented, self._list))

    def show(self, documented: Callable[[], None]) -> Callable[..., Any]:
        """Show a row with its body."""
        text = f"Print the {self.queue.noun} as JSON. A body that is not UTF-8 is in body_base64."
        return options.combined(
            click.argument("key", metavar="ID"),
            options.with_settings("database"),
            options.json(text),
        )(_documented(documented, self._show))

    def requeue(self, documented: Callable[[], None]) -> Callable[..., Any]:
        """Requeue rows by id or state."""
        return options.combined(
            click.argument("ids", nargs=-1, metavar="[ID]..."),
            self._state(f"Requeue all {self.queue.table} in this state: {self.requeued}."),
            options.with_settings("database"),
        )(_documented(documented, self._requeue))

    def prune(self, documented: Callable[..., None]) -> Callable[..., Any]:
        """Empty the bodies of old rows."""
        text = f"Prune {self.queue.table} that have been in their state for this long: 90s, 6h, 7d"
        return options.combined(
            options.duration("--older-than", text, required=True), options.with_settings("database")
        )(_documented(documented, self._prune))

    def _state(self, text: str) -> options.Decorator:
        choice = click.Choice(self.queue.states)
        return click.option("--state", type=choice, metavar="STATE", help=text)

    def _list(
        self, settings: Settings, *, state: str | None, limit: int | None, wide: bool, as_json: bool
    ) -> None:
        from nftsync.reports.change_feed import QueueView

        queue, text_of = self.queue, self.text_of
        most = (None if as_json else _TABLE_ROWS) if limit is None else limit or None
        with QueueView.open(settings.database, queue) as view:
            numbers = view.newest(state, most)
            if as_json:
                print_json_rows(view.pages(numbers, state))
                return
            if not numbers:
                say(f"No {queue.table}." if state is None else f"No {queue.table} are {state}.")
                return
            pages = view.pages(numbers, state, *(["body"] if text_of else []))
            if text_of is not None:
                pages = ([{**row, "text": text_of(row["body"])} for row in page] for page in pages)
            print_table(pages, self.columns, wide=wide)
            if most is not None and len(numbers) == most:
                say_truncated(most, view.count(state), queue.table, newest=True)

    def _show(self, settings: Settings, *, key: str, as_json: bool) -> None:
        from nftsync.reports.change_feed import QueueView
        from nftsync.store.requeue import normalize_id

        with QueueView.open(settings.database, self.queue) as view:
            row, body = view.find(normalize_id(self.queue, key))
        if as_json:
            print_json(row_as_json(row, body))
        else:
            print_row(self.queue, row, body)

    def _requeue(self, settings: Settings, *, ids: tuple[str, ...], state: str | None) -> int:
        from nftsync.provider.webhooks import read_webhook
        from nftsync.store.requeue import normalize_id, numbers_in_state, numbers_of_ids, requeue

        queue = self.queue
        if bool(ids) == bool(state):
            raise click.UsageError(f"name {queue.table} by ID, or choose a state with --state")
        if state == "running":
            raise InputError(
                f"running {queue.table} cannot be requeued; if their worker has died, they return"
                " to pending automatically"
            )
        keys = [normalize_id(queue, key) for key in ids]
        organization = settings.organization_id
        requeued = already = 0
        refused: list[tuple[str, str]] = []
        with open_existing(settings.database) as mirror:
            connection = mirror.connection
            if state:
                numbers = numbers_in_state(connection, queue, state)
            else:
                numbers = numbers_of_ids(connection, queue, keys)
            steps = requeue(
                mirror, queue, numbers, lambda body: read_webhook(body, organization), only=state
            )
            with progress_bar("requeue", len(numbers), unit=queue.table) as bar:
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

    def _prune(self, settings: Settings, *, older_than: timedelta, state: str = "done") -> None:
        from nftsync.store.requeue import prunable, prune

        before = shifted(now(), -older_than)
        bodies = size = 0
        with open_existing(settings.database) as mirror:
            rows = prunable(mirror.connection, self.queue, before, state)
            with progress_bar("prune", len(rows), unit=self.queue.table) as bar:
                for step in prune(mirror, self.queue, rows, before, state):
                    bodies += step.bodies
                    size += step.size
                    bar.update(step.processed)
        click.echo(f"Bodies emptied: {bodies:,} ({size:,} bytes).")
        if bodies:
            say("The database reuses the space. To shrink the file, run VACUUM.")


def _documented(documented: Callable[..., None], work: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **values: Any) -> Any:
        return work(*args, **values)

    return functools.update_wrapper(call, documented)


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
