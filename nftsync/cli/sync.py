"""The commands `sync` and `wallets`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli.common import (
    PROVIDER,
    again,
    duration_option,
    named,
    one_line,
    open_existing,
    print_result,
    run_options,
    say,
    with_settings,
)
from nftsync.cli.tables import TableColumn, View, view_options
from nftsync.store import WALLET_STATUSES
from nftsync.text import counted, short_id

if TYPE_CHECKING:
    from nftsync.pull.result import Failure, SyncResult
    from nftsync.settings import Settings


#: Kinds of failures that are told to a person, and examples of each; `--json` has all.
_UNKNOWN = "the provider answered 404: no such object"
_KINDS, _EXAMPLES = 20, 3

#: What the table of wallets shows.
_WALLET = (
    TableColumn("label", "label"),
    TableColumn("wallet", "wallet_id", "key"),
    TableColumn("group", "wallet_group"),
    TableColumn("status", "status"),
    TableColumn("last read", "synced_at", "time"),
    TableColumn("known since", "first_seen_at", "time"),
    TableColumn("tracked", "read"),
    TableColumn("error", "error", "message"),
)
_YES_NO = ("no", "yes")


@click.command()
@click.argument("named", nargs=-1, metavar="[WALLET]...")
@with_settings("database", "wallets_file", *PROVIDER)
@click.option("--tokens", is_flag=True, help="Also read each token those wallets hold by its id.")
@duration_option("--older-than", "Skip what was read since: 90s, 15m, 6h, 7d")
@run_options
def sync(settings: Settings, named: tuple[str, ...], *, as_json: bool, **which: Any) -> int:
    """Read wallets' balances and tokens into the database.

    Reads the named wallets; none named, those of the wallets file; no file, every tracked wallet.
    WALLET is an id, or a label that one wallet of the database has. Wallets that fail don't hold up
    the others: they are tried once more at the end, then listed, and the exit code is 1.

    \b
    Examples:
      nftsync sync --base-url https://api.example.com --wallets-file wallets.csv
      nftsync sync                        all tracked wallets again
      nftsync sync Treasury               one of them, by its label
      nftsync sync --older-than 6h        only those not read for six hours
      nftsync sync --resume               go on after Ctrl-C, a crash or a power cut
    """
    from nftsync.pull.api import sync_with
    from nftsync.pull.run import SyncRequest
    from nftsync.store.history import ahead_of
    from nftsync.store.schema import reading
    from nftsync.store.wallets import WalletLine, labels_and_statuses
    from nftsync.times import now

    request = SyncRequest(wallets=[WalletLine(wallet) for wallet in named] or None, **which)
    result = sync_with(settings, request, progress=False if as_json else None)
    print_result(result, as_json=as_json)
    failed = [failure.wallet_id for failure in result.failures]
    say_what_failed(result, labels_and_statuses(settings.database, failed) if failed else {})
    with reading(settings.database) as connection:
        said = ahead_of(connection, now())
    if said is not None:
        say(f"nftsync: {said}")
    if result.status == "interrupted":
        say(f"Interrupted; what was fetched is saved. Go on with: {again('sync', '--resume')}")
    return {"ok": 0, "interrupted": 130}.get(result.status, 1)


def say_what_failed(
    result: SyncResult,
    known: Mapping[str, tuple[str | None, str]],
    review: str = "nftsync removals",
) -> None:
    """Tell errors of one kind once, with how many there are and whose they are for example.

    Args:
        result: what a sync came to.
        known: the labels and statuses of wallets that failed, where the database knows them.
        review: the command that lists removals held for review.
    """
    from nftsync.pull.result import of_one_kind
    from nftsync.store.removals import HELD_BACK

    if result.error is not None:
        say(f"nftsync: {one_line(result.error)}")
        return
    kinds = of_one_kind(result.failures)
    for kind in kinds[:_KINDS]:
        error = one_line(kind[0].error)
        if len(kind) == 1:
            say(f"nftsync: {_whose(kind[0], known, whole=True)}: {error}")
        else:
            what = counted(len(kind), "token" if kind[0].token_id else "wallet")
            # Those with labels first, as they say more, whatever order they failed in.
            kind.sort(key=lambda each: (not known.get(each.wallet_id, (None,))[0], each.wallet_id))
            shown = ", ".join(_whose(each, known, whole=False) for each in kind[:_EXAMPLES])
            say(f"nftsync: {what}: {error}: {shown}{_rest_of(kind, known)}")
    if known and any(_UNKNOWN in kind[0].error for kind in kinds):
        say("nftsync: to read no more what it does not know: nftsync wallets untrack WALLET...")
    if (more := len(kinds) - _KINDS) > 0:
        say(f"nftsync: and {counted(more, 'other error')}; all with --json")
    if any(kind[0].error == HELD_BACK for kind in kinds):
        say(f"Review the removals: {review}")


def _whose(failure: Failure, known: Mapping[str, tuple[str | None, str]], *, whole: bool) -> str:
    """Whose failure it is: a token's, or a wallet's, by its label where it has one."""
    if failure.token_id is not None:
        return f"token {failure.token_id}" if whole else short_id(failure.token_id)
    label, _ = known.get(failure.wallet_id, (None, ""))
    return (
        named(failure.wallet_id, label) if whole else one_line(label or short_id(failure.wallet_id))
    )


def _rest_of(kind: Sequence[Failure], known: Mapping[str, tuple[str | None, str]]) -> str:
    """Where the failures are that are not told."""
    if len(kind) <= _EXAMPLES:
        return ""
    _, status = known.get(kind[0].wallet_id, (None, ""))
    listed = f" or `nftsync wallets --status {status}`" if status and not kind[0].token_id else ""
    return f", …; all with --json{listed}"


@click.group(invoke_without_command=True)
@with_settings("database")
@click.option(
    "--status",
    type=click.Choice(WALLET_STATUSES),
    metavar="STATUS",
    help="Only those whose last read went so: never, ok, incomplete or failed.",
)
@click.option("--group", metavar="GROUP", help="Only those of this group.")
@view_options("Print all these wallets as JSON.")
def wallets(settings: Settings, *, status: str | None, group: str | None, view: View) -> None:
    """List the known wallets; add, label, or stop reading them.

    \b
    Examples:
      nftsync wallets
      nftsync wallets --status failed
      nftsync wallets add 8d1cc10a-7fbf-42e7-b58d-5110899866aa
      nftsync wallets label 8d1cc10a-7fbf-42e7-b58d-5110899866aa "Treasury"
    """
    from nftsync.store.wallets import list_wallets

    known = list_wallets(settings.database)
    asked = {"status": status, "wallet_group": group}
    rows = [row for row in known if all(x in (None, row[key]) for key, x in asked.items())]
    if not view.as_json:
        rows = [{**row, "read": _YES_NO[row["tracked"]]} for row in rows]
    view.show(rows, _WALLET, "wallets")
    if rows or view.as_json:
        return
    if known:
        groups = sorted({row["wallet_group"] for row in known} - {None})
        named = f"; groups are: {', '.join(map(one_line, groups))}" if group and groups else ""
        say(f"No wallet of the {len(known):,} known ones is so{named}.")
    else:
        say("No wallets yet; add some with `nftsync wallets add ID`.")


@wallets.command("add")
@click.argument("wallet_ids", nargs=-1, required=True, metavar="ID...")
@with_settings("database")
def add(settings: Settings, wallet_ids: tuple[str, ...]) -> None:
    """Add wallets, so that a sync without names reads them too; untracked ones are read again."""
    from nftsync.records import normalize_uuid
    from nftsync.store.mirror import Mirror
    from nftsync.store.wallets import WalletLine, register
    from nftsync.times import now

    ids = [normalize_uuid(wallet_id, "wallet id") for wallet_id in wallet_ids]
    with Mirror(settings.database) as mirror, mirror.transaction() as transaction:
        lines = [WalletLine(wallet_id) for wallet_id in ids]
        new = register(transaction.connection, lines, now(), track=True)
    say(f"{new} added, {len(set(ids)) - new} known already.")


@wallets.command("label")
@click.argument("wallet", metavar="WALLET")
@click.argument("text")
@with_settings("database")
def label(settings: Settings, wallet: str, text: str) -> None:
    """Give a wallet a name for people; an empty TEXT takes it away.

    WALLET is its id, or the label that it has now.
    """
    from nftsync.store.wallets import ids_in, label_wallet

    with open_existing(settings.database) as mirror, mirror.transaction() as transaction:
        (known,) = ids_in(transaction.connection, wallet)
        label_wallet(transaction.connection, known, text.strip())


@wallets.command("untrack")
@click.argument("named", nargs=-1, required=True, metavar="WALLET...")
@with_settings("database")
def untrack(settings: Settings, named: tuple[str, ...]) -> None:
    """Stop reading wallets, named by id or label; what is known of them stays."""
    from nftsync.store.wallets import ids_in
    from nftsync.store.wallets import untrack as untrack_wallets

    with open_existing(settings.database) as mirror, mirror.transaction() as transaction:
        untrack_wallets(transaction.connection, ids_in(transaction.connection, named))
