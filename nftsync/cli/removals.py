"""The command `removals`: list and approve removals held for review."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.output import one_line, open_existing, print_json, say, utc_times
from nftsync.cli.tables import TableColumn, View, print_table, view_options, wrapped
from nftsync.store.contracts import contract_key
from nftsync.text import counted, short_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nftsync.settings import Settings
    from nftsync.store.mirror import Mirror
    from nftsync.store.removals import Held


#: Wallets per transaction.
_AT_ONCE = 100
#: Wallets and collections in the summary.
_LARGEST = 3
_NONE = "No removals are held for review."

_ROW = (
    TableColumn("wallet", "wallet_id", "id", name="wallet_label"),
    TableColumn("name", "token_id", "id", name="name"),
    TableColumn("removal", "what"),
    TableColumn("before", "old_amount", "number"),
    TableColumn("after", "new_amount", "number"),
    TableColumn("collection", "contract_address", "id", name="collection"),
    TableColumn("observed", "observed_at", "time"),
)


@click.group(invoke_without_command=True)
@options.with_settings("database")
@view_options("Print all removals held for review as JSON.")
def removals(settings: Settings, *, view: View) -> None:
    """List or approve the removals held for review.

    If removals in 24 hours exceed half (`removal_limit`) of the holdings of a group, or of all
    wallets, nftsync holds them for review. A provider fault is then more likely than sales.

    The holdings stay unchanged, and the wallets are `incomplete`, until you approve the removals
    with `nftsync removals accept`. If a later read shows the NFTs again, nftsync discards the
    removals.

    \b
    Examples:
      nftsync removals
      nftsync removals accept Treasury
      nftsync removals accept --dry-run
      nftsync removals accept
    """
    from nftsync.store.removals import held, held_rows, share_held
    from nftsync.store.schema import reading

    with reading(settings.database) as connection:
        rows, counts = held_rows(connection), held(connection)
        share = share_held(connection, counts)
    print_held(rows, counts, share, view, "nftsync removals accept")


def print_held(
    rows: list[dict[str, Any]], counts: Held, share: float, view: View, approve: str
) -> None:
    """Print a summary of the removals, the removals, and how to approve them."""
    if rows and not view.as_json:
        click.echo("\n".join(_summary(rows, counts, share)) + "\n")
    view.show(rows, _ROW, "removals")
    if not view.as_json:
        say(f"Approve the removals: {approve}" if rows else _NONE)


def _summary(rows: list[dict[str, Any]], counts: Held, share: float) -> Iterator[str]:
    """Yield lines with the removals' number, share, reads and time, and the largest parts."""
    reads = len({(x["wallet_id"] or x["token_id"], x["run_id"], x["webhook_id"]) for x in rows})
    origin = f"Seen by {counted(reads, 'read')} since {utc_times(str(counts.since))}."
    yield wrapped(f"{counts.summary(share)}: {counts}. {origin}")
    wallets = Counter((x["wallet_id"], x["wallet_label"]) for x in rows if x["wallet_id"])
    contracts = Counter((contract_key(x["contract_address"] or ""), x["collection"]) for x in rows)
    for noun, parts in (("wallet", wallets), ("collection", contracts)):
        named = (
            f"{one_line(name or short_id(key) or 'none')} ({count:,})"
            for (key, name), count in parts.most_common(_LARGEST)
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


def confirmed(
    rows: list[dict[str, Any]], counts: Held, share: float, where: str, *, yes: bool
) -> bool:
    """Ask on a terminal whether to apply removals, after their summary, unless `yes`."""
    if yes or not sys.stdin.isatty():
        return True
    say("\n".join(_summary(rows, counts, share)))
    if click.confirm(f"Remove {counts} from {where}?", err=True):
        return True
    say("Nothing was changed.")
    return False


def print_accepted(
    counts: Held, rows: list[dict[str, Any]], *, dry_run: bool, as_json: bool, **more: Any
) -> None:
    """Print the approved removals; `more` adds entries to the JSON."""
    if as_json:
        entries = {name: getattr(counts, name) for name in ("wallets", "balances", "emptied")}
        print_json({"dry_run": dry_run, **entries, **more, "removals": rows})
    elif counts.since is None:
        say(_NONE)
    elif dry_run:
        print_table([rows], _ROW, wide=False)
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

    accept approves and applies all removals, or only the removals of the named wallets (by id or
    label). Without names, accept also resets the 24-hour count of removals. On a terminal, accept
    asks for confirmation first.
    """
    from nftsync.store import removals as stored
    from nftsync.store.history import approve_all
    from nftsync.store.wallets import ids_in

    with open_existing(settings.database) as mirror:
        connection = mirror.connection
        wallets = ids_in(connection, names) if names else None
        counts = stored.held(connection, wallets)
        share = stored.share_held(connection, counts)
        rows = stored.held_rows(connection, wallets)
        if not dry_run:
            if rows and not confirmed(rows, counts, share, "the database", yes=yes):
                return 1
            _apply(mirror, stored.numbers_held(connection, wallets))
            if wallets is None:
                with mirror.transaction() as transaction:
                    approve_all(transaction.connection)
    print_accepted(counts, rows, dry_run=dry_run, as_json=as_json)
    return 0


def _apply(mirror: Mirror, numbers: Sequence[int]) -> None:
    from nftsync.terminal import progress_bar

    with progress_bar("wallets", len(numbers), unit="wallets", done=0, shown=None) as bar:
        for start in range(0, len(numbers), _AT_ONCE):
            some = numbers[start : start + _AT_ONCE]
            mirror.accept_held(some)
            bar.update(len(some))
