"""`nftsync holdings`: who holds what."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli.common import print_json, print_json_rows, print_table, say, visible, with_settings

if TYPE_CHECKING:
    import pandas as pd

    from nftsync.reports.changes import Change, ChangeFeed
    from nftsync.reports.evidence import Evidence
    from nftsync.settings import Settings

__all__ = ["changes", "evidence", "holdings"]


@click.command(short_help="Show who holds what.")
@with_settings("database")
@click.option("--wallet", metavar="ID", help="Only what this wallet holds.")
@click.option("--contract", metavar="ADDR", help="Only NFTs of this contract.")
@click.option("--as-of", metavar="TIME", help="As it was known at this time, metadata included.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    metavar="N",
    help="Rows of the table; 0 shows all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all holdings as JSON.")
def holdings(
    settings: Settings,
    *,
    wallet: str | None,
    contract: str | None,
    as_of: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show who holds what: a row per wallet and NFT that the provider lists.

    TIME is ISO 8601, in UTC where it has no offset; a bare date is the end of that day. With
    --as-of each row also says how certain it is; `nftsync evidence` tells more.

    \b
    Examples:
      nftsync holdings
      nftsync holdings --wallet 8d1cc10a-7fbf-42e7-b58d-5110899866aa
      nftsync holdings --contract 0x06012c8cf97BEaD5deAe237070F9587f8E7A266d --limit 0
      nftsync holdings --as-of 2026-01-31 --json
    """
    from nftsync import frames
    from nftsync.frames._files import rows_of
    from nftsync.store.catalog import columns_of

    columns = list(columns_of("holdings", as_of=as_of is not None))
    frame = frames.holdings(settings.database, wallet=wallet, contract=contract, as_of=as_of)
    if as_json:
        print_json_rows(
            [dict(zip(columns, row, strict=True)) for row in rows]
            for rows in rows_of(frame, columns)
        )
    elif frame.empty:
        say("Nothing is held, as far as this database knows; `nftsync sync` reads the wallets.")
    else:
        _show_holdings(frame, columns, limit)


def _show_holdings(frame: pd.DataFrame, columns: list[str], limit: int) -> None:
    from nftsync.frames._files import rows_of

    shown = frame.head(limit) if limit else frame
    rows = [
        dict(zip(columns, row, strict=True)) for part in rows_of(shown, columns) for row in part
    ]
    lines = [_line(row) for row in rows]
    print_table(lines, list(lines[0]))
    if len(shown) < len(frame):
        say(f"{len(shown):,} of {len(frame):,} holdings; all with --limit 0, or with --json.")


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the table shows of a holding."""
    since = row["held_since"]
    line = {
        "wallet": row["wallet_label"] or row["wallet_id"],
        "contract": row["contract_address"],
        "chain id": row["blockchain_token_id"],
        "name": row["name"],
        "edition": _edition(row["edition_id"], row["total_edition"]),
        "amount": row["amount"],
        "held since": since and f"{since[:19]}Z",
    }
    return line | {"certainty": row["certainty"]} if "certainty" in row else line


def _edition(number: int | None, total: int | None) -> str | None:
    if total is None:
        return None if number is None else str(number)
    return f"of {total}" if number is None else f"{number} of {total}"


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
    from nftsync.reports.changes import open_feed
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
            _show_changes(feed, start, limit)


def _show_changes(feed: ChangeFeed, after: int, limit: int) -> None:
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
    from nftsync.reports.changes import POLL_SECONDS

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


_HOLDINGS = {
    "token_id": "token_id",
    "contract": "contract_address",
    "chain id": "blockchain_token_id",
    "name": "name",
    "amount": "amount",
    "held since": "held_since",
}
_READS = (
    *("first_read_at", "last_read_at", "reads", "body_sha256"),
    *("run_id", "run_started_at", "run_finished_at", "run_status"),
)


@click.command()
@click.argument("wallet_id", metavar="WALLET_ID")
@with_settings("database")
@click.option("--at", required=True, metavar="TIME", help="The time in question.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def evidence(settings: Settings, wallet_id: str, *, at: str, as_json: bool) -> None:
    """Tell what a wallet held at a time, and how that is known.

    \b
    The proof is in the reads around that time:
      bracketed   the same state was read before and after it
      gap         what was read next differed, so it changed in between
      open        the wallet was not read since
      unknown     the wallet had not been read by then

    Each read is named by its time, its run, and the SHA-256 of the provider's answer. TIME is
    ISO 8601, in UTC where it has no offset; a bare date is the end of that day.

    \b
    Examples:
      nftsync evidence 8d1cc10a-7fbf-42e7-b58d-5110899866aa --at 2026-01-31
      nftsync evidence 8d1cc10a-7fbf-42e7-b58d-5110899866aa --at 2026-01-31T12:00:00+01:00 --json
    """
    from nftsync.reports.evidence import find_evidence
    from nftsync.times import parse_time

    found = find_evidence(settings.database, wallet_id, parse_time(at))
    if as_json:
        print_json(found)
    else:
        _show_evidence(found)


def _show_evidence(found: Evidence) -> None:
    name = found.wallet_id if found.label is None else f"{visible(found.label)} ({found.wallet_id})"
    click.echo(f"{name} at {found.at}: {found.certainty}\n\n{found.statement}\n")
    if found.holdings:
        rows = [{head: row[key] for head, key in _HOLDINGS.items()} for row in found.holdings]
        print_table(rows, list(_HOLDINGS), title=f"Holdings ({len(rows):,})")
    else:
        click.echo("No holdings.\n")
    if found.reads:
        # A run's number is no long id, which the heading would make of it.
        reads = [{_heading(key): getattr(state, key) for key in _READS} for state in found.reads]
        print_table(reads, [_heading(key) for key in _READS], title="Reads around that time")


def _heading(key: str) -> str:
    return key.replace("run_id", "run")
