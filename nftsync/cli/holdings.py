"""The commands `holdings`, `find`, `collections`, `changes` and `evidence`."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.output import (
    frame_warnings,
    json_line,
    open_existing,
    pages_of,
    print_json,
    print_json_rows,
    say,
    say_hidden,
    say_truncated,
    wallet_name,
    wrapped,
)
from nftsync.cli.tables import TableColumn, View, print_table, view_options
from nftsync.store.catalog import columns_of
from nftsync.text import counted
from nftsync.times import now, utc_times

if TYPE_CHECKING:
    import pandas as pd

    from nftsync.reports.change_feed import ChangeFeed
    from nftsync.reports.evidence import Evidence
    from nftsync.settings import Settings


#: Options that filter rows by wallet, and also by contract.
wallet_options = options.combined(
    options.text("--wallet", "WALLET", "Only this wallet, by id or label."),
    options.text("--group", "NAME", "Only wallets of this group."),
)
filter_options = options.combined(
    wallet_options,
    options.text("--contract", "ADDR", "Only NFTs of this contract, by address or name."),
)

hidden_option = options.flag("--hidden", "Include hidden NFTs; to list them: `nftsync hidden`.")

#: Upper limit of `find --limit`, and its meaning of 0.
_ALL = 100_000

WALLET = TableColumn("wallet", "wallet_id", "id", name="wallet_label", short="wallet")
TOKEN = TableColumn("name", "token_id", "id", name="name", short="nft")
_ON_CHAIN_ID = TableColumn("on-chain id", "blockchain_token_id", "id", optional=True)
_HELD = (
    TOKEN,
    TableColumn("amount", "amount", "number"),
    TableColumn("collection", "contract_address", "id", name="collection", within="name"),
    TableColumn("held since", "held_since", "day"),
)
#: Columns of the tables, most important first, as in `frames.brief`.
HOLDING = (WALLET, *_HELD, TableColumn("edition", "edition", optional=True), _ON_CHAIN_ID)
_CERTAINTY = TableColumn("certainty", "certainty", "state")
_CHANGE = (
    TableColumn("observed", "observed_at", "time"),
    WALLET,
    TOKEN,
    TableColumn("before", "old_amount", "number"),
    TableColumn("after", "new_amount", "number"),
    TableColumn("seen by", "seen_by", optional=True),
    TableColumn("change", "change_id", "key", optional=True),
)
_FOUND = (
    TableColumn("kind", "kind"),
    TableColumn("name", "name"),
    TableColumn("id", "id", "key"),
    TableColumn("collection", "collection", within="name"),
    TableColumn("holders", "holders", "number", optional=True),
    TableColumn("tokens", "tokens", "number", optional=True),
)
_READ = (
    TableColumn("first read", "first_read_at", "time"),
    TableColumn("last read", "last_read_at", "time"),
    TableColumn("reads", "reads", "number"),
    TableColumn("run", "run_id", "key"),
    TableColumn("run status", "run_status", "state"),
    TableColumn("run began", "run_started_at", "time"),
    TableColumn("run ended", "run_finished_at", "time"),
    TableColumn("SHA-256 of the response", "body_sha256", "key"),
)


@click.command()
@options.with_settings("database")
@filter_options
@options.time("--as-of", "end", "Show holdings and metadata as known at this time:")
@hidden_option
@view_options("Print all holdings as JSON.")
def holdings(settings: Settings, *, as_of: str | None, view: View, **filters: Any) -> None:
    """Show which wallets hold which tokens.

    With --as-of, the column `certainty` shows whether the reads around that time confirm each row.
    `nftsync evidence` shows these reads.

    \b
    Examples:
      nftsync holdings
      nftsync holdings --wallet Treasury
      nftsync holdings --group house
      nftsync holdings --contract 0x06012c8cf97BEaD5deAe237070F9587f8E7A266d --limit 0
      nftsync holdings --contract "Salt Harbours"
      nftsync holdings --as-of 2026-01-31 --json
    """
    from nftsync import frames

    with frame_warnings() as notes:
        frame = frames.holdings(settings.database, as_of=as_of, **filters)
    columns = list(columns_of("holdings", as_of="certainty" in frame))
    view.show(
        frame,
        HOLDING if as_of is None else (*HOLDING, _CERTAINTY),
        "holdings",
        pages=holdings_of,
        as_json=lambda rows: pages_of(rows, columns),
        empty="" if notes else "No holdings.",
    )
    say_hidden(frame)


def holdings_of(frame: pd.DataFrame) -> Iterator[list[dict[str, Any]]]:
    """Yield pages of rows, with `edition` such as `3 of 25`."""
    columns = (*HOLDING, _CERTAINTY)
    wanted = {name for one in columns for name in (one.key, one.name, one.short)}
    wanted |= {"edition_id", "total_edition"}
    for page in pages_of(frame, [str(name) for name in frame if name in wanted]):
        for row in page:
            number, total = row["edition_id"], row["total_edition"]
            row["edition"] = f"{number} of {total}" if number and total else number or None
        yield page


@click.command()
@click.argument("text", nargs=-1, required=True, metavar="TEXT...")
@options.with_settings("database")
@view_options(
    "Print all matches as JSON.", "Number of best matches; 0 shows up to 100,000.", 20, _ALL
)
def find(settings: Settings, text: tuple[str, ...], *, view: View) -> None:
    """Find tokens, collections and wallets by name.

    The search includes creators, descriptions and groups. The last word may be incomplete. Ids and
    addresses match by their first six or more characters, or by the short form in tables.

    \b
    Examples:
      nftsync find salt harbours
      nftsync find treas
      nftsync find 0x06012c8cf97BEaD5deAe237070F9587f8E7A266d --json
    """
    from nftsync import frames

    with frame_warnings():
        frame = frames.find(settings.database, " ".join(text), limit=view.limit or _ALL)
    view.show(frame, _FOUND, "matches", pages=lambda rows: pages_of(rows, list(rows)))


@click.command()
@options.with_settings("database")
@options.time("--since", "start", "Only changes observed since this time:")
@options.time("--until", "end", "Only changes observed until this time.")
@options.valued(
    "--after",
    "CHANGE_ID",
    click.IntRange(min=0, max=2**63 - 1),
    "Only changes with an id greater than CHANGE_ID. To continue after an earlier call, "
    "give the last change_id of its JSON.",
)
@filter_options
@options.flag(
    "--follow",
    "Print the changes that --since or --after selects, then wait for new ones. Without either, "
    "start with the next change. Each change is a line of JSON. Stop with Ctrl-C.",
)
@view_options("Print all selected changes as JSON.", "Number of newest rows; 0 shows all.")
def changes(
    settings: Settings, *, after: int | None, follow: bool, view: View, **filters: Any
) -> None:
    """Show changes of balances (the change feed), oldest first.

    An empty old amount marks a new holding; an empty new amount marks a holding that ended. In the
    JSON, `baseline` is 1 for holdings that a first read found; their start date is unknown.

    \b
    Examples:
      nftsync changes --since 2026-01-31
      nftsync changes --since 2026-01-01 --until 2026-01-31 --group house
      nftsync changes --since 7d --wallet Treasury --contract "Salt Harbours"
      nftsync changes --after 4711 --json
      nftsync changes --follow | while read -r change; do notify "$change"; done
    """
    from nftsync.reports.change_feed import POLL_SECONDS, ChangeFeed

    if follow and filters["until"] is not None:
        raise click.UsageError("--follow waits for new changes; it cannot be used with --until")
    with ChangeFeed.open(settings.database, live=follow) as feed:
        with frame_warnings():
            before, last = feed.filter_by(**filters)
        start = max(after or 0, before)
        if follow:
            from_now_on = after is None and filters["since"] is None
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
    print_table((_seen_by(feed.named(page)) for page in pages), _CHANGE, wide=view.wide)
    say_truncated(view.limit, count, "changes", newest=True)


def _seen_by(page: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in page:
        source = "sync" if row["webhook_id"] is None else "webhook"
        row["seen_by"] = "first read" if row["baseline"] else source
    return page


def _wait_while_read(seconds: float) -> Callable[[], bool]:
    """Return a function that sleeps; False: stdout has no reader."""
    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)  # errors and hang-ups are always reported
    return lambda: not watch.poll(seconds * 1000)


@click.command()
@click.argument("wallet", metavar="WALLET")
@options.with_settings("database")
@options.time("--at", "end", "Time in the past. Default: now. TIME is")
@view_options("Print the evidence as JSON.", "Number of holdings; 0 shows all.")
def evidence(settings: Settings, wallet: str, *, at: str | None, view: View) -> None:
    """Prove a wallet's holdings, now or at a past time.

    \b
    The certainty depends on the reads around that time, which are listed with
    the SHA-256 of the provider's response:
      bracketed   the reads before and after found the same state
      gap         the state changed between the two reads
      open        the wallet has not been read since that time
      unknown     the wallet had not been read by that time

    WALLET is an id or a label.

    \b
    Examples:
      nftsync evidence Treasury
      nftsync evidence Treasury --at 2026-01-31
      nftsync evidence 8d1cc10a-7fbf-42e7-b58d-5110899866aa --at 2026-01-31T12:00:00+01:00 --json
    """
    from nftsync.reports.evidence import find_evidence

    with frame_warnings():
        proof = find_evidence(settings.database, wallet, at or now())
    if view.as_json:
        print_json(proof)
    else:
        _show_evidence(proof, view)


def _show_evidence(proof: Evidence, view: View) -> None:
    name = wallet_name(proof.wallet_id, proof.label)
    click.echo(f"{name} at {utc_times(proof.at)}: {proof.certainty}\n")
    click.echo(f"{wrapped(utc_times(proof.statement))}\n")
    if proof.holdings:
        click.echo(f"Holdings ({len(proof.holdings):,})\n")
        view.show(proof.holdings, (*_HELD, _ON_CHAIN_ID), "holdings")
        click.echo()
    else:
        click.echo("No holdings.\n")
    if proof.reads:
        click.echo("Reads around that time\n")
        print_table([proof.reads], _READ, wide=view.wide)


_COLLECTION = (
    TableColumn("name", "name"),
    TableColumn("contract", "contract", "ref"),
    TableColumn("name source", "name_source"),
    TableColumn("tokens", "tokens", "number"),
    TableColumn("held", "held", "number"),
    TableColumn("holders", "holders", "number"),
)


@click.group(invoke_without_command=True)
@options.with_settings("database")
@hidden_option
@view_options("Print all collections as JSON.")
def collections(settings: Settings, *, hidden: bool, view: View) -> None:
    """List the collections, or name one.

    \b
    nftsync uses the first of these names that a contract has:
      given     set by you with `nftsync collections label`
      file      from the collections file, which each sync reads
      guessed   the part that nearly all its token names share

    \b
    Each row counts:
      tokens    the contract's known tokens
      held      tokens that at least one wallet holds
      holders   wallets that hold at least one token

    \b
    Examples:
      nftsync collections
      nftsync collections label 0x06012c8cf97BEaD5deAe237070F9587f8E7A266d "Salt Harbours"
      nftsync collections label "Salt Harbours" Harbours
    """
    from nftsync import frames

    frame = frames.collections(settings.database, hidden=hidden)
    frame = frame[frame["contract"].notna()]
    frame = frame.assign(name=frame["collection"].where(frame["name_source"].notna(), None))
    columns = ("contract", "contract_address", "tokens", "held", "holders", "name", "name_source")
    rows = [row for page in pages_of(frame, columns) for row in page]
    empty = "No collections yet. Read wallets and their tokens: `nftsync sync`"
    view.show(rows, _COLLECTION, "collections", empty=empty)
    unnamed = sum(row["name"] is None for row in rows)
    if unnamed and not view.as_json:
        total = f"{unnamed:,} of {counted(len(rows), 'collection')}"
        say(f"Without a name: {total}. Name one: `nftsync collections label ADDRESS NAME`")
    say_hidden(frame, "token")


@collections.command("label")
@click.argument("contract")
@click.argument("name")
@options.with_settings("database")
def label(settings: Settings, contract: str, name: str) -> None:
    """Set a contract's name, or remove it with an empty NAME.

    CONTRACT is an address, or the current name.
    """
    from nftsync.store.contracts import label_contract
    from nftsync.store.filters import contract_named

    with open_existing(settings.database) as mirror:
        mirror.index_tokens()
        with mirror.transaction() as transaction:
            address = contract_named(transaction.connection, contract.strip())
            label_contract(transaction.connection, address, name.strip())
