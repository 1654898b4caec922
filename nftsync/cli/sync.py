"""The commands `sync` and `wallets`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from nftsync.cli import options
from nftsync.cli.output import (
    one_line,
    open_existing,
    print_result,
    rerun,
    say,
    unreadable_shown,
    wallet_name,
)
from nftsync.cli.tables import TableColumn, View, view_options
from nftsync.store import WALLET_STATUSES
from nftsync.text import counted, short_id
from nftsync.times import now, utc_times

if TYPE_CHECKING:
    from nftsync.pull.result import Failure, SyncResult
    from nftsync.settings import Settings


_UNKNOWN = "the provider answered 404: no such object"
#: Kinds of failures shown, and examples of each.
_KINDS, _EXAMPLES = 20, 3
#: Labels and statuses of wallets.
_Wallets: TypeAlias = Mapping[str, tuple[str | None, str]]

#: Columns of the table of wallets.
_WALLET = (
    TableColumn("label", "label"),
    TableColumn("wallet", "wallet_id", "ref"),
    TableColumn("group", "wallet_group"),
    TableColumn("status", "status", "state"),
    TableColumn("last read", "synced_at", "time"),
    TableColumn("known since", "first_seen_at", "day", optional=True),
    TableColumn("tracked", "read", optional=True),
    TableColumn("error", "error", "message"),
)
_YES_NO = ("no", "yes")


@click.command()
@click.argument("names", nargs=-1, metavar="[WALLET]...")
@options.with_settings("database", "wallets_file", *options.PROVIDER)
@options.flag("--tokens", "Also read each token in these wallets by its id.")
@options.duration("--older-than", "Only wallets not read for this long: 90s, 15m, 6h, 7d")
@options.run
def sync(settings: Settings, names: tuple[str, ...], *, as_json: bool, **options: Any) -> int:
    """Read wallet balances and tokens into the database.

    sync reads the named wallets (by id or label), otherwise the wallets in the wallets file,
    otherwise all tracked wallets.

    At the end, the sync tries failed wallets once more. If a wallet fails again, the sync lists it
    and exits with 1. To try it without a provider: `nftsync sandbox`.

    \b
    Examples:
      nftsync sync --base-url https://api.example.com --wallets-file wallets.csv
      nftsync sync                        all tracked wallets
      nftsync sync Treasury               one wallet, by its label
      nftsync sync --older-than 6h        only wallets not read for six hours
      nftsync sync --resume               after Ctrl-C or a crash
    """
    from nftsync.pull.api import sync_with
    from nftsync.pull.plan import SyncRequest
    from nftsync.store.hidden import file_entries, note_unknown
    from nftsync.store.history import ahead_of
    from nftsync.store.schema import reading
    from nftsync.store.wallets import WalletLine, labels_and_statuses

    request = SyncRequest(wallets=[WalletLine(wallet) for wallet in names] or None, **options)
    result = sync_with(settings, request, progress=False if as_json else None)
    print_result(result, as_json=as_json)
    failed = [failure.wallet_id for failure in result.failures]
    say_failures(result, labels_and_statuses(settings.database, failed) if failed else {})
    if result.unreadable:
        say(f"nftsync: {unreadable_shown(result.unreadable)}")
    with reading(settings.database) as connection:
        warning = ahead_of(connection, now())
        unknown = note_unknown(connection, file_entries(connection)) if settings.hidden_file else ""
    if unknown:
        say(f"{one_line(str(settings.hidden_file))}: {unknown}")
    if warning is not None:
        say(f"nftsync: {utc_times(warning)}")
    if result.status == "interrupted":
        say(f"Interrupted; all reads are saved. Resume: {rerun('sync', '--resume')}")
    return {"ok": 0, "interrupted": 130}.get(result.status, 1)


def say_failures(result: SyncResult, wallets: _Wallets, review: str = "nftsync removals") -> None:
    """Print each kind of failure, with examples."""
    from nftsync.pull.result import grouped_failures
    from nftsync.store.removals import HELD_BACK

    if result.error is not None:
        say(f"nftsync: {one_line(result.error)}")
        return
    kinds = grouped_failures(result.failures)
    for kind in kinds[:_KINDS]:
        error = one_line(kind[0].error)
        if len(kind) == 1:
            say(f"nftsync: {_subject(kind[0], wallets, whole=True)}: {error}")
        else:
            count = counted(len(kind), "token" if kind[0].token_id else "wallet")
            # Labels say more than ids.
            kind.sort(key=lambda x: (not wallets.get(x.wallet_id, (None,))[0], x.wallet_id))
            shown = ", ".join(_subject(x, wallets, whole=False) for x in kind[:_EXAMPLES])
            say(f"nftsync: {count}: {error}: {shown}{_remainder(kind, wallets)}")
    if wallets and any(kind[0].error.endswith(_UNKNOWN) for kind in kinds):
        say("To stop syncing unknown wallets: nftsync wallets untrack WALLET...")
    if (more := len(kinds) - _KINDS) > 0:
        say(f"nftsync: and {counted(more, 'other error')}. Show all: --json")
    if any(kind[0].error == HELD_BACK for kind in kinds):
        say(f"Review the removals: {review}")


def _subject(failure: Failure, wallets: _Wallets, *, whole: bool) -> str:
    if failure.token_id is not None:
        return f"token {failure.token_id}" if whole else short_id(failure.token_id)
    label, _ = wallets.get(failure.wallet_id, (None, ""))
    if whole:
        return wallet_name(failure.wallet_id, label)
    return one_line(label or short_id(failure.wallet_id))


def _remainder(kind: Sequence[Failure], wallets: _Wallets) -> str:
    if len(kind) <= _EXAMPLES:
        return ""
    _, status = wallets.get(kind[0].wallet_id, (None, ""))
    listed = f" or `nftsync wallets --status {status}`" if status and not kind[0].token_id else ""
    return f", …. Show all: --json{listed}"


@click.group(invoke_without_command=True)
@options.with_settings("database")
@click.option(
    "--status",
    type=click.Choice(WALLET_STATUSES),
    metavar="STATUS",
    help="Only wallets with this status: never, ok, incomplete or failed.",
)
@options.text("--group", "GROUP", "Only wallets of this group.")
@view_options("Print all selected wallets as JSON.")
def wallets(settings: Settings, *, status: str | None, group: str | None, view: View) -> None:
    """List, add, label or untrack wallets.

    \b
    Examples:
      nftsync wallets
      nftsync wallets --status failed
      nftsync wallets add 8d1cc10a-7fbf-42e7-b58d-5110899866aa
      nftsync wallets label 8d1cc10a-7fbf-42e7-b58d-5110899866aa "Treasury"
    """
    from nftsync.store.wallets import list_wallets

    all_rows = list_wallets(settings.database)
    filters = {"status": status, "wallet_group": group}
    rows = [row for row in all_rows if all(x in (None, row[key]) for key, x in filters.items())]
    if not view.as_json:
        rows = [{**row, "read": _YES_NO[row["tracked"]]} for row in rows]
    view.show(rows, _WALLET, "wallets")
    if rows or view.as_json:
        return
    if all_rows:
        groups = sorted({row["wallet_group"] for row in all_rows} - {None})
        listed = f" Groups: {', '.join(map(one_line, groups))}." if group and groups else ""
        say(f"None of the {counted(len(all_rows), 'wallet')} matches.{listed}")
    else:
        say("No wallets yet. Add some: nftsync wallets add ID")


@wallets.command("add")
@click.argument("wallet_ids", nargs=-1, required=True, metavar="ID...")
@options.with_settings("database")
def add(settings: Settings, wallet_ids: tuple[str, ...]) -> None:
    """Track new wallets, or resume tracking untracked ones."""
    from nftsync.records import normalize_uuid
    from nftsync.store.mirror import Mirror
    from nftsync.store.wallets import WalletLine, register

    ids = [normalize_uuid(wallet_id, "wallet id") for wallet_id in wallet_ids]
    with Mirror(settings.database) as mirror, mirror.transaction() as transaction:
        lines = [WalletLine(wallet_id) for wallet_id in ids]
        new = register(transaction.connection, lines, now(), track=True)
    say(f"{new} added, {len(set(ids)) - new} already known.")


@wallets.command("label")
@click.argument("wallet", metavar="WALLET")
@click.argument("text")
@options.with_settings("database")
def label(settings: Settings, wallet: str, text: str) -> None:
    """Set a wallet's label, or remove it with an empty TEXT.

    WALLET is an id, or the current label.
    """
    from nftsync.store.wallets import ids_in, label_wallet

    with open_existing(settings.database) as mirror, mirror.transaction() as transaction:
        (wallet_id,) = ids_in(transaction.connection, wallet)
        label_wallet(transaction.connection, wallet_id, text.strip())


@wallets.command("untrack")
@click.argument("names", nargs=-1, required=True, metavar="WALLET...")
@options.with_settings("database")
def untrack(settings: Settings, names: tuple[str, ...]) -> None:
    """Stop tracking wallets, named by id or label. Their data stays."""
    from nftsync.store.wallets import ids_in
    from nftsync.store.wallets import untrack as untrack_wallets

    with open_existing(settings.database) as mirror, mirror.transaction() as transaction:
        untrack_wallets(transaction.connection, ids_in(transaction.connection, names))
