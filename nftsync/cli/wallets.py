"""`nftsync wallets`: which wallets are known, and which of them are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nftsync.cli.options import with_settings
from nftsync.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from nftsync.settings import Settings

__all__ = ["wallets"]

_COLUMNS = (
    *("wallet_id", "label", "wallet_group", "tracked"),
    *("first_seen_at", "synced_at", "status", "error"),
)


@click.group(invoke_without_command=True)
@with_settings("database")
@click.option("--json", "as_json", is_flag=True, help="Print the wallets as JSON.")
@click.pass_context
def wallets(context: click.Context, settings: Settings, *, as_json: bool) -> None:
    """List the known wallets; add, label, or stop reading them.

    \b
    Examples:
      nftsync wallets
      nftsync wallets add 8d1cc10a-7fbf-42e7-b58d-5110899866aa
      nftsync wallets label 8d1cc10a-7fbf-42e7-b58d-5110899866aa "Treasury"
    """
    if context.invoked_subcommand is not None:
        context.obj = settings
        return
    from nftsync.store.registry import list_wallets

    rows = [dict(zip(_COLUMNS, row, strict=True)) for row in list_wallets(settings.database)]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows, _COLUMNS)
    else:
        say("No wallets yet; add some with `nftsync wallets add ID`.")


def _settings_of(context: click.Context, own: Settings) -> Settings:
    """A subcommand's settings: flags may stand before or after its name."""
    outer: Settings | None = context.obj
    if outer is None or own.sources["database"].startswith("flag"):
        return own
    return outer


@wallets.command("add")
@click.argument("wallet_ids", nargs=-1, required=True, metavar="ID...")
@with_settings("database")
@click.pass_context
def add(context: click.Context, settings: Settings, wallet_ids: tuple[str, ...]) -> None:
    """Add wallets, so that a sync without names reads them too; untracked ones are read again."""
    from nftsync.models import normalize_uuid
    from nftsync.store.mirror import Mirror
    from nftsync.store.registry import WalletLine, register
    from nftsync.times import now

    ids = [normalize_uuid(wallet_id, "wallet id") for wallet_id in wallet_ids]
    database = _settings_of(context, settings).database
    with Mirror(database) as mirror, mirror.transaction() as transaction:
        lines = [WalletLine(wallet_id) for wallet_id in ids]
        new = register(transaction.connection, lines, now(), track=True)
    say(f"{new} added, {len(set(ids)) - new} known already.")


@wallets.command("label")
@click.argument("wallet_id", metavar="ID")
@click.argument("text")
@with_settings("database")
@click.pass_context
def label(context: click.Context, settings: Settings, wallet_id: str, text: str) -> None:
    """Give a wallet a name for people; an empty TEXT takes it away."""
    from nftsync.models import normalize_uuid
    from nftsync.store.mirror import Mirror
    from nftsync.store.registry import label_wallet

    database = _settings_of(context, settings).database
    known = normalize_uuid(wallet_id, "wallet id")
    with Mirror(database) as mirror, mirror.transaction() as transaction:
        label_wallet(transaction.connection, known, text.strip())


@wallets.command("untrack")
@click.argument("wallet_ids", nargs=-1, required=True, metavar="ID...")
@with_settings("database")
@click.pass_context
def untrack(context: click.Context, settings: Settings, wallet_ids: tuple[str, ...]) -> None:
    """Stop reading wallets; what is known of them stays."""
    from nftsync.models import normalize_uuid
    from nftsync.store.mirror import Mirror
    from nftsync.store.registry import untrack as untrack_wallets

    ids = [normalize_uuid(wallet_id, "wallet id") for wallet_id in wallet_ids]
    database = _settings_of(context, settings).database
    with Mirror(database) as mirror, mirror.transaction() as transaction:
        untrack_wallets(transaction.connection, ids)
