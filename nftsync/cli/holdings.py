"""The commands `holdings`, `find`, `collections`, `changes` and `evidence`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli.common import (
    json_line,
    named,
    open_existing,
    pages_of,
    print_json,
    print_json_rows,
    said_by_frames,
    say,
    say_left_out,
    time_option,
    with_settings,
)
from nftsync.cli.tables import TableColumn, View, print_table, view_options, wrapped

if TYPE_CHECKING:
    import pandas as pd

    from nftsync.reports.change_feed import ChangeFeed
    from nftsync.reports.evidence import Evidence
    from nftsync.settings import Settings


_FILTERS = (
    ("--wallet", "WALLET", "Only this wallet: its id or label."),
    ("--group", "NAME", "Only wallets of this group."),
    ("--contract", "ADDR", "Only NFTs of this contract: its address or name."),
)

#: More than anybody reads.
_ALL = 100_000

_WALLET = TableColumn("wallet", "wallet_id", "id", name="wallet_label")
_TOKEN = TableColumn("name", "token_id", "id", name="name")
_CHAIN_ID = TableColumn("chain id", "blockchain_token_id", "id")
_HELD = (
    _TOKEN,
    TableColumn("amount", "amount", "number"),
    TableColumn("collection", "contract_address", "id", name="collection"),
    TableColumn("held since", "held_since", "time"),
)
#: What the tables show, the answer first.
HOLDING = (_WALLET, *_HELD, TableColumn("edition", "edition"), _CHAIN_ID)
_CERTAINTY = TableColumn("certainty", "certainty")
_CHANGE = (
    TableColumn("observed", "observed_at", "time"),
    _WALLET,
    _TOKEN,
    TableColumn("before", "old_amount", "number"),
    TableColumn("after", "new_amount", "number"),
    TableColumn("seen by", "seen_by"),
    TableColumn("change", "change_id", "number"),
)
_FOUND = (
    TableColumn("kind", "kind"),
    TableColumn("name", "name"),
    TableColumn("id", "id", "key"),
    TableColumn("collection", "collection"),
    TableColumn("holders", "holders", "number"),
    TableColumn("tokens", "tokens", "number"),
)
_READ = (
    TableColumn("first read", "first_read_at", "time"),
    TableColumn("last read", "last_read_at", "time"),
    TableColumn("reads", "reads", "number"),
    TableColumn("run", "run_id", "number"),
    TableColumn("run is", "run_status"),
    TableColumn("run began", "run_started_at", "time"),
    TableColumn("run ended", "run_finished_at", "time"),
    TableColumn("SHA-256 of the answer", "body_sha256", "key"),
)


def _filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the filters of wallets and contracts."""
    for name, metavar, text in reversed(_FILTERS):
        command = click.option(name, metavar=metavar, help=text)(command)
    return command


@click.command()
@with_settings("database")
@_filter_options
@click.option("--as-of", metavar="TIME", help="As it was known at this time, metadata included.")
@view_options("Print all holdings as JSON.")
def holdings(settings: Settings, *, as_of: str | None, view: View, **which: Any) -> None:
    """Show who holds what.

    A row per wallet and NFT that the provider lists.

    TIME is ISO 8601, in UTC where it has no offset, today, yesterday, or 7d (ago); of a day, its
    end. With --as-of each row also says how certain it is; `nftsync evidence` tells more.

    \b
    Examples:
      nftsync holdings
      nftsync holdings --wallet Treasury
      nftsync holdings --group house
      nftsync holdings --contract 0x06012c8cf97BEaD5deAe237070F9587f8E7A266d --limit 0
      nftsync holdings --contract "Salt Harbours"
      nftsync holdings --as-of 2026-01-31 --json
      nftsync holdings --as-of yesterday
    """
    from nftsync import frames
    from nftsync.store.catalog import columns_of

    with said_by_frames() as said:
        frame = frames.holdings(settings.database, as_of=as_of, **which)
    for line in said:
        say(line)
    if view.as_json:
        columns = columns_of("holdings", as_of="certainty" in frame)
        print_json_rows(pages_of(frame, list(columns)))
    elif frame.empty:
        if not said:
            say("Nothing is held.")
    else:
        shown = HOLDING if as_of is None else (*HOLDING, _CERTAINTY)
        print_table(holdings_of(frame[: view.limit or None]), shown, wide=view.wide)
        say_left_out(view.limit, len(frame), "holdings")


def holdings_of(frame: pd.DataFrame) -> Iterator[list[dict[str, Any]]]:
    """A frame of holdings as tables take rows, some at a time."""
    columns = (*HOLDING, _CERTAINTY)
    wanted = {*(column.key for column in columns), *(column.name for column in columns)}
    wanted |= {"edition_id", "total_edition"}
    for page in pages_of(frame, [str(name) for name in frame if name in wanted]):
        for row in page:
            number, total = row["edition_id"], row["total_edition"]
            of = f"{'' if number is None else number} of {total}".lstrip()
            row["edition"] = of if total else number or None
        yield page


@click.command()
@click.argument("text", nargs=-1, required=True, metavar="TEXT...")
@with_settings("database")
@view_options("Print what was found as JSON.", "Rows at most, the best; 0 shows all.", 20, _ALL)
def find(settings: Settings, text: tuple[str, ...], *, view: View) -> None:
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

    with said_by_frames() as said:
        frame = frames.find(settings.database, " ".join(text), limit=view.limit or _ALL)
    pages = pages_of(frame, list(frame.columns))
    if view.as_json:
        print_json_rows(pages)
    elif not frame.empty:
        print_table(pages, _FOUND, wide=view.wide)
    for line in said:
        say(line)


@click.command()
@with_settings("database")
@time_option("--since", "start", "Only what was observed at this time or later.")
@time_option("--until", "end", "Only what was observed at this time or earlier.")
@click.option(
    "--after",
    type=click.IntRange(min=0, max=2**63 - 1),
    metavar="CHANGE_ID",
    help="Only changes with a greater id, to go on where the last call ended.",
)
@_filter_options
@click.option("--follow", is_flag=True, help="Wait for more; print each change as a line of JSON.")
@view_options("Print all these changes as JSON.", "Rows of the table, the newest; 0 shows all.")
def changes(
    settings: Settings,
    *,
    since: str | None,
    until: str | None,
    after: int | None,
    follow: bool,
    view: View,
    **which: Any,
) -> None:
    """Show the change feed of balances, the oldest change first.

    An empty old amount marks a new holding; an empty new amount marks a holding that ended.
    `baseline` is 1 for the holdings of a wallet's first read, whose start is unknown.

    --follow starts with the changes that --since or --after selects, or with the next change, and
    prints until Ctrl-C. TIME is ISO 8601 (UTC if it has no offset), today, yesterday, or 7d (ago).
    A date is the start of its day in --since, and the end of its day in --until.

    \b
    Examples:
      nftsync changes --since 2026-01-31
      nftsync changes --since 2026-01-01 --until 2026-01-31 --group house
      nftsync changes --since 7d --wallet Treasury --contract "Salt Harbours"
      nftsync changes --after 4711 --json
      nftsync changes --follow | while read -r change; do notify "$change"; done
    """
    from nftsync.reports.change_feed import POLL_SECONDS, ChangeFeed

    if follow and until is not None:
        raise click.UsageError("--follow waits for new changes; it cannot be used with --until")
    with ChangeFeed.open(settings.database, live=follow) as feed:
        before, last = feed.filter_by(since=since, until=until, **which)
        start = max(after or 0, before)
        if follow:
            from_now_on = after is None and since is None
            wait = _wait_while_read(POLL_SECONDS)
            for page in feed.follow(feed.newest() if from_now_on else start, wait):
                click.echo(b"".join(json_line(change) + b"\n" for change in page), nl=False)
        elif view.as_json:
            print_json_rows(feed.read(start, last))
        else:
            _show_changes(feed, start, last, view)


def _show_changes(feed: ChangeFeed, after: int, last: int, view: View) -> None:
    count = feed.count(after, last)
    if not count:
        say("No changes.")
        return
    pages = [feed.newest_page(after, last, view.limit)] if view.limit else feed.read(after, last)
    print_table((_seen_by(page) for page in pages), _CHANGE, wide=view.wide)
    say_left_out(view.limit, count, "changes", newest=True)


def _seen_by(page: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in page:
        through = "sync" if row["webhook_id"] is None else "webhook"
        row["seen_by"] = "first read" if row["baseline"] else through
    return page


def _wait_while_read(seconds: float) -> Callable[[], bool]:
    """What waits between two looks; False once nobody reads standard output any more."""
    import select

    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)  # an error or a hang-up is always told
    return lambda: not watch.poll(seconds * 1000)


@click.command()
@click.argument("wallet", metavar="WALLET")
@with_settings("database")
@time_option("--at", "end", "The time in question.", required=True)
@view_options("Print it as JSON.", "Rows of the table of holdings; 0 shows all.")
def evidence(settings: Settings, wallet: str, *, at: str, view: View) -> None:
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

    found = find_evidence(settings.database, wallet, at)
    if view.as_json:
        print_json(found)
    else:
        _show_evidence(found, view)


def _show_evidence(found: Evidence, view: View) -> None:
    name = named(found.wallet_id, found.label)
    click.echo(f"{name} at {found.at}: {found.certainty}\n\n{wrapped(found.statement)}\n")
    if found.holdings:
        click.echo(f"Holdings ({len(found.holdings):,})\n")
        view.show(found.holdings, (*_HELD, _CHAIN_ID), "holdings")
        click.echo()
    else:
        click.echo("No holdings.\n")
    if found.reads:
        click.echo("Reads around that time\n")
        print_table([found.reads], _READ, wide=view.wide)


_COLLECTION = (
    TableColumn("name", "name"),
    TableColumn("contract", "contract", "key"),
    TableColumn("named by", "name_source"),
    TableColumn("tokens", "tokens", "number"),
    TableColumn("held", "held", "number"),
    TableColumn("holders", "holders", "number"),
)


@click.group(invoke_without_command=True)
@with_settings("database")
@view_options("Print all collections as JSON.")
def collections(settings: Settings, *, view: View) -> None:
    """List the contracts with their names; name one.

    \b
    A name is, in this order,
      given     by `nftsync collections label`
      file      of the collections file (setting `collections_file`), which a sync reads
      guessed   what nearly all of the contract's tokens share, less their numbers
    and missing where there is none.

    Tokens: known ones; held: those that a wallet holds more than zero of; holders: such wallets.

    \b
    Examples:
      nftsync collections
      nftsync collections label 0x06012c8cf97BEaD5deAe237070F9587f8E7A266d "Salt Harbours"
      nftsync collections label "Salt Harbours" Harbours
    """
    from nftsync import frames

    frame = frames.collections(settings.database)
    frame = frame[frame["contract"].notna()]
    columns = ("contract", "contract_address", "collection", "name_source")
    counts = ("tokens", "held", "holders")
    rows = [row for page in pages_of(frame, (*columns, *counts)) for row in page]
    for row in rows:
        called, source = row.pop("collection"), row.pop("name_source")
        row |= {"name": None if source is None else called, "name_source": source}
    view.show(rows, _COLLECTION, "collections")
    if not (rows or view.as_json):
        say("No collections yet; `nftsync sync` reads wallets, and what they hold.")


@collections.command("label")
@click.argument("contract")
@click.argument("name")
@with_settings("database")
def label(settings: Settings, contract: str, name: str) -> None:
    """Give a contract a name for people; an empty NAME takes it away.

    CONTRACT is its address, or the name that it has now.
    """
    from nftsync.store.contracts import label_contract
    from nftsync.store.filters import contract_named

    with open_existing(settings.database) as mirror:
        mirror.index_tokens()
        with mirror.transaction() as transaction:
            address = contract_named(transaction.connection, contract.strip())
            label_contract(transaction.connection, address, name.strip())
