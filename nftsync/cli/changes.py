"""`nftsync changes`: what changed hands, and what changes from now on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from nftsync.cli.json_rows import print_json_rows
from nftsync.cli.options import with_settings
from nftsync.cli.output import print_table, say

if TYPE_CHECKING:
    from nftsync.change_feed import Change, ChangeFeed
    from nftsync.settings import Settings

__all__ = ["changes"]

_SHOWN = ("change_id", "observed_at", "wallet_id", "token_id", "old_amount", "new_amount")


@click.command()
@with_settings("database")
@click.option("--since", metavar="TIME", help="Only what was observed at this time or later.")
@click.option(
    "--after",
    type=click.IntRange(min=0, max=2**63 - 1),
    metavar="CHANGE_ID",
    help="Only changes with a greater id, to go on where the last call ended.",
)
@click.option("--follow", is_flag=True, help="Wait for more; print each change as a line of JSON.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    metavar="N",
    help="Rows of the table, the newest; 0 shows all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all these changes as JSON.")
def changes(
    settings: Settings,
    *,
    since: str | None,
    after: int | None,
    follow: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Show the log of balance changes, the oldest first.

    An old amount that is missing: the NFT was not listed before; a new one: it is no longer
    listed. `baseline` is 1 for what a wallet's first read found: no purchase, just a beginning.

    --follow begins with what --since or --after selects, else with what comes from now on, and
    goes on until Ctrl-C. TIME is ISO 8601; a bare date is the end of that day.

    \b
    Examples:
      nftsync changes --since 2026-01-31T00:00:00Z
      nftsync changes --after 4711 --json
      nftsync changes --follow | while read -r change; do notify "$change"; done
    """
    from nftsync.change_feed import open_feed
    from nftsync.times import parse_time

    moment = None if since is None else parse_time(since)
    with open_feed(settings.database) as feed:
        start = 0 if after is None else after
        if moment is not None:
            start = max(start, feed.before(moment))
        if follow:
            from_now_on = after is None and moment is None
            _follow(feed, feed.newest() if from_now_on else start)
        elif as_json:
            print_json_rows(feed.read(start, until=feed.newest()))
        else:
            _show(feed, start, limit)


def _show(feed: ChangeFeed, after: int, limit: int) -> None:
    count = feed.count(after)
    if not count:
        say("No changes.")
        return
    rows = feed.newest_page(after, limit or count)
    for row in rows:
        row["baseline"] = "first read" if row["baseline"] else ""
    print_table(rows, [*_SHOWN, "baseline"])
    if len(rows) < count:
        say(f"The newest {len(rows):,} of {count:,} changes; all with --limit 0, or with --json.")


def _follow(feed: ChangeFeed, after: int) -> None:
    from nftsync.change_feed import POLL_SECONDS

    try:
        for page in feed.follow(after, _patience(POLL_SECONDS)):
            _print_lines(page)
    except BrokenPipeError:
        # Whoever read this has gone; keep Python from complaining when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_lines(page: Iterable[Change]) -> None:
    import msgspec

    text = b"".join(msgspec.json.encode(change) + b"\n" for change in page)
    click.echo(text, nl=False)


def _patience(seconds: float) -> Callable[[], bool]:
    """What waits between two looks; False once nobody reads standard output any more."""
    import select

    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)  # an error or a hang-up is always told

    def wait() -> bool:
        return not watch.poll(seconds * 1000)

    return wait
