"""The command `removals`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.holdings import TOKEN, WALLET
from nftsync.cli.output import confirmed, one_line, open_existing, print_json, say, wrapped
from nftsync.cli.tables import TableColumn, View, print_table, view_options
from nftsync.store.contracts import contract_key
from nftsync.terminal import progress_bar
from nftsync.text import counted
from nftsync.times import utc_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nftsync.settings import Settings
    from nftsync.store.mirror import Mirror
    from nftsync.store.removals import Review


#: Wallets per transaction.
_AT_ONCE = 100
#: Wallets and collections in the summary.
_LARGEST = 3
_NONE = "No removals are held for review."

_ROW = (
    WALLET,
    TOKEN,
    TableColumn("removal", "what", "state"),
    TableColumn("before", "old_amount", "number"),
    TableColumn("after", "new_amount", "number"),
    TableColumn("collection", "contract_address", "id", name="collection", within="name"),
    TableColumn("observed", "observed_at", "time", optional=True),
)


@click.group(invoke_without_command=True)
@options.with_settings("database")
@view_options("Print all removals held for review as JSON.")
def removals(settings: Settings, *, view: View) -> None:
    """List or approve the removals held for review.

    If removals in 24 hours exceed half (`removal_limit`) of the holdings of a group, or of all
    wallets, nftsync holds them for review. A provider fault is then more likely than sales.

    The holdings stay unchanged, and the wallets are `incomplete`, until you approve the removals,
    or a later read shows the NFTs again.

    \b
    Examples:
      nftsync removals
      nftsync removals accept Treasury
      nftsync removals accept --dry-run
      nftsync removals accept
    """
    from nftsync.store.removals import review_held
    from nftsync.store.schema import reading

    with reading(settings.database) as connection:
        review = review_held(connection)
    print_held(review, view, "nftsync removals accept")


def print_held(review: Review, view: View, approve: str) -> None:
    """Print the removals, their summary, and how to approve them."""
    if review.rows and not view.as_json:
        click.echo("\n".join(_summary(review)) + "\n")
    view.show(review.rows, _ROW, "removals", empty=_NONE)
    if review.rows and not view.as_json:
        say(f"Approve the removals: {approve}")


def _summary(review: Review) -> Iterator[str]:
    rows, counts = review.rows, review.counts
    reads = len({(x["wallet_id"] or x["token_id"], x["run_id"], x["webhook_id"]) for x in rows})
    origin = f"Seen by {counted(reads, 'read')} since {utc_times(str(counts.since))}."
    yield wrapped(f"{review.summary}: {counts}. {origin}")
    wallets = Counter((x["wallet_id"], x["wallet"]) for x in rows if x["wallet_id"])
    contracts = Counter((contract_key(x["contract_address"] or ""), x["collection"]) for x in rows)
    for noun, parts in (("wallet", wallets), ("collection", contracts)):
        named = (
            f"{one_line(name or 'none')} ({count:,})"
            for (_, name), count in parts.most_common(_LARGEST)
        )
        more = len(parts) - _LARGEST
        others = f", and {counted(more, 'other')}" if more > 0 else ""
        yield wrapped(f"By {noun}: {', '.join(named) or 'none'}{others}.")


#: Flags of `removals accept`.
accept_options = options.combined(
    options.flag("--yes", "Don't ask for confirmation."),
    options.flag("--dry-run", "Show the removals; change nothing."),
    options.json("Print the approved removals as JSON."),
)


def may_remove(review: Review, where: str, *, yes: bool) -> bool:
    """Ask on a terminal whether to apply removals, unless `yes`."""
    question = f"Remove {review.counts} from {where}?"
    return confirmed("\n".join([*_summary(review), question]), yes=yes)


def print_accepted(review: Review, *, dry_run: bool, as_json: bool, **more: Any) -> None:
    """Print the approved removals, in JSON with `more`."""
    counts = review.counts
    if as_json:
        entries = {name: getattr(counts, name) for name in ("wallets", "balances", "emptied")}
        print_json({"dry_run": dry_run, **entries, **more, "removals": review.rows})
    elif counts.since is None:
        say(_NONE)
    elif dry_run:
        print_table([review.rows], _ROW)
        say(f"Dry run: would remove {counts}.")
    else:
        say(f"Approved and applied: {counts}.")


@removals.command("accept")
@click.argument("names", nargs=-1, metavar="[WALLET]...")
@options.with_settings("database")
@accept_options
def accept(
    settings: Settings, names: tuple[str, ...], *, yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Approve removals held for review.

    accept applies all removals, or only those of the named wallets (by id or label). Without names,
    it also resets the 24-hour count of removals. On a terminal, it asks for confirmation first.
    """
    from nftsync.store import removals as stored
    from nftsync.store.day_report import approve_all
    from nftsync.store.wallets import ids_in

    with open_existing(settings.database) as mirror:
        connection = mirror.connection
        review = stored.review_held(connection, ids_in(connection, names) if names else None)
        if not dry_run:
            if review.rows and not may_remove(review, "the database", yes=yes):
                return 1
            _apply(mirror, stored.numbers_held(connection, review.wallets))
            if not names:
                with mirror.transaction() as transaction:
                    approve_all(transaction.connection)
    print_accepted(review, dry_run=dry_run, as_json=as_json)
    return 0


def _apply(mirror: Mirror, numbers: Sequence[int]) -> None:
    with progress_bar("wallets", len(numbers), unit="wallets") as bar:
        for start in range(0, len(numbers), _AT_ONCE):
            some = numbers[start : start + _AT_ONCE]
            mirror.accept_held(some)
            bar.update(len(some))
