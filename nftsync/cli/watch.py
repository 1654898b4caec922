"""The command `watch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nftsync.cli import options
from nftsync.cli.output import one_line, say
from nftsync.cli.tables import TableColumn, View, view_options
from nftsync.errors import SettingsError
from nftsync.terminal import interruptible
from nftsync.text import counted

if TYPE_CHECKING:
    from nftsync.settings import Settings

#: Columns of the table of events.
_EVENT = (TableColumn("observed", "timestamp", "time"), TableColumn("event", "text", "message"))


@click.group(invoke_without_command=True)
@options.with_settings("database")
@options.time("--since", "start", "Start of rules that have not run yet. Default: now. TIME is")
def watch(settings: Settings, *, since: str | None) -> int:
    """Send alerts about changes and states, and forward webhooks.

    watch compares the database with the rules in nftsync.toml, stores a message for each match, and
    sends all due messages once. Run it after each sync, even a failed one, or run `nftsync serve`,
    which does the same continuously.

    It exits with 1 if a message is dead (refused ten times), or if a rule is paused, because a
    wallet, group or collection in it is unknown.

    \b
    Examples:
      nftsync sync; nftsync watch
      nftsync watch test treasury --since 7d
      nftsync watch send ops
    """
    from nftsync.store.schema import opened_as_is
    from nftsync.watch.service import watch_config, watch_once

    config = watch_config(settings)
    if not config.rules and not config.forwards:
        raise SettingsError(
            "nothing to watch: add a table [watch.NAME] or [forward.NAME] to nftsync.toml"
        )
    with opened_as_is(settings.database):
        """Fail without a database."""
    with interruptible() as interrupted:
        counts, down, problems = watch_once(settings.database, config, interrupted, since)
    click.echo(
        f"{counted(counts['planned'], 'new message')}; {counts['done']:,} sent,"
        f" {counts['failed']:,} refused, {counts['dead']:,} dead."
    )
    for name, reason in down.items():
        say(one_line(f"nftsync: messages to {name} stay pending: {reason}"))
    for name, problem in problems.items():
        say(one_line(f"nftsync: [watch.{name}]: {problem}"))
    if counts["failed"] or counts["dead"]:
        say("List failures and reasons: nftsync outbox --state failed (or dead)")
    if interrupted.is_set():
        return 130
    return 1 if counts["dead"] or problems else 0


def _named(name: str, tables: dict[str, object], kind: str) -> None:
    if name not in tables:
        names = ", ".join(tables) or "none"
        raise SettingsError(f"no table [{kind}.{name}] in nftsync.toml; names: {names}")


@watch.command("test")
@click.argument("name")
@options.time("--since", "start", "Start of the changes:", default="7d")
@options.with_settings("database")
@view_options("Print the events as JSON.", "Number of oldest events; 0 shows all.")
def test(settings: Settings, name: str, *, since: str, view: View) -> None:
    """Print the events that a rule would have reported.

    test sends and stores nothing. Real messages may combine several events.
    """
    from nftsync.watch.service import preview
    from nftsync.watch.texts import lines_of

    _named(name, dict(settings.watch), "watch")
    events = preview(settings.database, settings.watch[name], since, view.limit)
    rows = [body | {"text": lines_of(body)[0]} for event in events.first for body in [event.body()]]
    view.show(rows, _EVENT, "events", total=events.counts.total(), empty="No events.")


@watch.command("send")
@click.argument("destination")
@options.with_settings("database")
def send(settings: Settings, destination: str) -> int:
    """Send a test message to a destination, and restart it if it was stopped.

    A destination that answers 410 (Gone) is stopped until this command succeeds.
    """
    from nftsync.watch.service import send_test, watch_config

    _named(destination, dict(settings.destinations), "destinations")
    outcome = send_test(settings.database, watch_config(settings), destination)
    if outcome.result == "sent":
        click.echo(f"Sent to {destination}.")
        return 0
    say(one_line(f"nftsync: {destination} did not accept the test message: {outcome.error}"))
    return 1
