"""Commands that read the database: who holds what and since when, its log, copies of it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli.common import (
    json_option,
    limit_option,
    named,
    one_line,
    pages_of,
    print_json,
    print_json_rows,
    print_table,
    say,
    with_settings,
)
from nftsync.errors import NftsyncWarning

if TYPE_CHECKING:
    import pandas as pd

    from nftsync.reports.evidence import Evidence
    from nftsync.reports.export import ExportFormat
    from nftsync.reports.logs import ChangeFeed
    from nftsync.settings import Settings

__all__ = ["changes", "evidence", "export", "find", "holdings", "snapshot"]

#: What the table of changes shows.
_CHANGE = (
    *("change_id", "observed_at", "wallet_label", "wallet_id", "name", "token_id"),
    *("old_amount", "new_amount", "baseline"),
)

#: More than anybody reads.
_ALL = 100_000

#: What the table of evidence shows of a holding.
_HOLDING = ("token_id", "contract_address", "blockchain_token_id", "name", "amount", "held_since")


@click.command()
@with_settings("database")
@click.option("--wallet", metavar="WALLET", help="Only what this one holds: its id or label.")
@click.option(
    "--contract", metavar="ADDR", help="Only NFTs of this contract, or of the collection so called."
)
@click.option("--as-of", metavar="TIME", help="As it was known at this time, metadata included.")
@limit_option("Rows of the table; 0 shows all.", 50)
@json_option("Print all holdings as JSON.")
def holdings(
    settings: Settings, *, as_of: str | None, limit: int, as_json: bool, **which: Any
) -> None:
    """Show who holds what.

    A row per wallet and NFT that the provider lists.

    TIME is ISO 8601, in UTC where it has no offset, today, yesterday, or 7d (ago); of a day, its
    end. With --as-of each row also says how certain it is; `nftsync evidence` tells more.

    \b
    Examples:
      nftsync holdings
      nftsync holdings --wallet Treasury
      nftsync holdings --contract 0x06012c8cf97BEaD5deAe237070F9587f8E7A266d --limit 0
      nftsync holdings --contract "Salt Harbours"
      nftsync holdings --as-of 2026-01-31 --json
      nftsync holdings --as-of yesterday
    """
    from nftsync import frames

    with _said_by_frames() as said:
        frame = frames.holdings(settings.database, as_of=as_of, **which)
    for line in said:
        say(line)
    if as_json:
        print_json_rows(_pages(frame))
    elif frame.empty:
        if not said:
            say("Nothing is held.")
    else:
        shown = frame.head(limit) if limit else frame
        lines = table_of(shown)
        print_table(lines, list(lines[0]))
        if len(shown) < len(frame):
            say(f"{len(shown):,} of {len(frame):,} holdings; all with --limit 0, or with --json.")


@contextmanager
def _said_by_frames() -> Iterator[list[str]]:
    """What frames warn of during a block, each as one line."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", NftsyncWarning)
        yield said
    lines = [one_line(str(each.message)) for each in told if each.category is NftsyncWarning]
    said += [line[:1].upper() + line[1:] for line in lines]


def table_of(holdings: pd.DataFrame) -> list[dict[str, Any]]:
    """What a table shows of holdings."""
    return [_line(row) for page in _pages(holdings) for row in page]


def _pages(frame: pd.DataFrame) -> Iterator[list[dict[str, Any]]]:
    from nftsync.store.catalog import columns_of

    return pages_of(frame, list(columns_of("holdings", as_of="certainty" in frame)))


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    since = row["held_since"]
    number, total = row["edition_id"], row["total_edition"]
    edition = [] if number is None else [str(number)]
    line = {
        "wallet": row["wallet_label"] or row["wallet_id"],
        "collection": row["collection"],
        "chain id": row["blockchain_token_id"],
        "name": row["name"],
        "edition": " ".join(edition if total is None else [*edition, f"of {total}"]),
        "amount": row["amount"],
        "held since": since and f"{since[:19]}Z",
    }
    return line | {"certainty": row["certainty"]} if "certainty" in row else line


@click.command()
@click.argument("text", nargs=-1, required=True, metavar="TEXT...")
@with_settings("database")
@limit_option("Rows at most, the best; 0 shows all.", 20)
@json_option("Print what was found as JSON.")
def find(settings: Settings, text: tuple[str, ...], *, limit: int, as_json: bool) -> None:
    """Find tokens, collections and wallets by name.

    Tokens are found by words of their name, creator or description, collections by their name,
    wallets by label or group; the last word may be a beginning. Of ids and addresses six
    characters do, or the two ends. What is called just so comes first.

    \b
    Examples:
      nftsync find salt harbours
      nftsync find treas
      nftsync find 0x06012c8cf97BEaD5deAe237070F9587f8E7A266d --json
    """
    from nftsync import frames

    with _said_by_frames() as said:
        frame = frames.find(settings.database, " ".join(text), limit=limit or _ALL)
    columns = list(frame.columns)
    pages = pages_of(frame, columns)
    if as_json:
        print_json_rows(pages)
    elif not frame.empty:
        print_table([row for page in pages for row in page], columns)
    for line in said:
        say(line)


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
@limit_option("Rows of the table, the newest; 0 shows all.", 50)
@json_option("Print all these changes as JSON.")
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
    goes on until Ctrl-C. TIME is ISO 8601, in UTC where it has no offset, today, yesterday, or 7d
    (ago); of a day, its start.

    \b
    Examples:
      nftsync changes --since 2026-01-31
      nftsync changes --since 7d
      nftsync changes --after 4711 --json
      nftsync changes --follow | while read -r change; do notify "$change"; done
    """
    import msgspec

    from nftsync.reports.logs import POLL_SECONDS, ChangeFeed
    from nftsync.times import parse_time

    moment = None if since is None else parse_time(since, "start")
    with ChangeFeed.open(settings.database) as feed:
        start = after or 0
        if moment is not None:
            start = max(start, feed.before(moment))
        if follow:
            from_now_on = after is None and moment is None
            wait = _wait_while_read(POLL_SECONDS)
            for page in feed.follow(feed.newest() if from_now_on else start, wait):
                lines = (msgspec.json.encode(change) + b"\n" for change in page)
                click.echo(b"".join(lines), nl=False)
        elif as_json:
            print_json_rows(feed.read(start, until=feed.newest()))
        else:
            _show_changes(feed, start, limit)


def _show_changes(feed: ChangeFeed, after: int, limit: int) -> None:
    count = feed.count(after)
    if not count:
        say("No changes.")
        return
    rows = feed.newest_page(after, min(limit or count, count))
    for row in rows:
        row["baseline"] = "first read" if row["baseline"] else ""
    print_table(rows, _CHANGE)
    if len(rows) < count:
        say(f"The newest {len(rows):,} of {count:,} changes; all with --limit 0, or with --json.")


def _wait_while_read(seconds: float) -> Callable[[], bool]:
    """What waits between two looks; False once nobody reads standard output any more."""
    import select

    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)  # an error or a hang-up is always told
    return lambda: not watch.poll(seconds * 1000)


@click.command()
@click.argument("wallet", metavar="WALLET")
@with_settings("database")
@click.option("--at", required=True, metavar="TIME", help="The time in question.")
@json_option("Print it as JSON.")
def evidence(settings: Settings, wallet: str, *, at: str, as_json: bool) -> None:
    """Tell what a wallet held at a time, and how that is known.

    \b
    The proof is in the reads around that time:
      bracketed   the same state was read before and after it
      gap         what was read next differed, so it changed in between
      open        the wallet was not read since
      unknown     the wallet had not been read by then

    WALLET is an id, or the label of one wallet. Each read is named by its time, its run, and the
    SHA-256 of the provider's answer. TIME is ISO 8601, in UTC where it has no offset, today,
    yesterday, or 7d (ago); of a day, its end.

    \b
    Examples:
      nftsync evidence Treasury --at 2026-01-31
      nftsync evidence 8d1cc10a-7fbf-42e7-b58d-5110899866aa --at 2026-01-31T12:00:00+01:00 --json
    """
    from nftsync.reports.evidence import find_evidence
    from nftsync.times import parse_time

    found = find_evidence(settings.database, wallet, parse_time(at, "end"))
    if as_json:
        print_json(found)
    else:
        _show_evidence(found)


def _show_evidence(found: Evidence) -> None:
    name = named(found.wallet_id, found.label)
    click.echo(f"{name} at {found.at}: {found.certainty}\n\n{found.statement}\n")
    if found.holdings:
        print_table(found.holdings, _HOLDING, title=f"Holdings ({len(found.holdings):,})")
    else:
        click.echo("No holdings.\n")
    if found.reads:
        print_table(found.reads, list(found.reads[0]), title="Reads around that time")


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@with_settings("database")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["parquet", "csv", "xlsx"]),
    default="parquet",
    show_default=True,
    help="Of the files.",
)
@click.option("--as-of", metavar="TIME", help="What was known at this time.")
def export(
    settings: Settings, directory: Path, *, file_format: ExportFormat, as_of: str | None
) -> None:
    """Write each table and view to a file, all of one moment.

    A manifest comes with them. DIR must be new, or empty; it appears once it is whole, for its
    owner's eyes only. Amounts are text, as no machine type holds them all. CSV cells that a
    spreadsheet would run as a formula get a single quote in front; webhook bodies are base64 there.

    With --format xlsx: one Excel workbook, nftsync.xlsx, with a sheet for each of them, behind one
    that explains all columns. A sheet holds 1,048,575 rows; what has more is refused.

    With --as-of: balances, holdings and tokens as they were known then, and the logs up to then;
    wallets as they are today. TIME is ISO 8601, in UTC where it has no offset, today, yesterday, or
    7d (ago); of a day, its end.

    \b
    Examples:
      nftsync export exports/today
      nftsync export audit-2025 --format csv --as-of 2025-12-31
      nftsync export for-finance --format xlsx
    """
    from nftsync.reports.export import write_export
    from nftsync.times import parse_time

    moment = None if as_of is None else parse_time(as_of, "end")
    with _said_by_frames() as said:
        manifest = write_export(settings.database, directory, file_format=file_format, as_of=moment)
    rows = sum(file.rows for file in manifest.files)
    files = {file.name for file in manifest.files}
    what = f"{len(files)} files" if len(files) > 1 else files.pop()
    say(f"{what} with {rows:,} rows, and manifest.json, in {directory}")
    for line in said:
        say(line)


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@with_settings("database")
def snapshot(settings: Settings, file: Path) -> None:
    """Copy the database while others go on writing it.

    The copy is of one moment, and one file that opens anywhere, from a read-only directory too.
    FILE must not exist; it appears once it is whole, and only its owner may read it.

    \b
    Examples:
      nftsync snapshot for-ann.db
      nftsync holdings --database for-ann.db
    """
    from nftsync.reports.snapshot import write_snapshot

    size = write_snapshot(settings.database, file)
    say(f"{file}: {size / 1e6:,.1f} MB")
