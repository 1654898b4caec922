"""The command for what vanished and is held back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nftsync.cli.common import (
    json_option,
    limit_option,
    open_existing,
    print_json_rows,
    say,
    say_left_out,
    with_settings,
)
from nftsync.cli.tables import Column, print_table, wide_option

if TYPE_CHECKING:
    from nftsync.settings import Settings

__all__ = ["removals"]

#: Wallets of which what was held back is applied in one transaction.
_AT_ONCE = 100

_ROW = (
    Column("wallet", "wallet_id", "id", name="wallet_label"),
    Column("name", "token_id", "id", name="name"),
    Column("what", "what"),
    Column("held", "old_amount", "number"),
    Column("now", "new_amount", "number"),
    Column("collection", "contract_address", "id", name="collection"),
    Column("seen", "observed_at", "time"),
)


@click.group(invoke_without_command=True)
@with_settings("database")
@limit_option("Rows of the table; 0 shows all.", 50)
@wide_option
@json_option("Print all of it as JSON.")
def removals(settings: Settings, *, limit: int, wide: bool, as_json: bool) -> None:
    """List what vanished and is held back; let it through.

    When more than half (`removal_limit`) of what a group of wallets or all of them held vanishes
    within 24 hours, a fault of the provider is likelier than sales. Then what reads show to be gone
    is held back: holdings stay as they were, and the wallets are `incomplete`. A later read that
    shows it again clears it; `nftsync removals accept` lets it through.

    \b
    Examples:
      nftsync removals
      nftsync removals accept Treasury
      nftsync removals accept
    """
    from nftsync.store import held_back
    from nftsync.store.schema import reading

    with reading(settings.database) as connection:
        rows, held = list(held_back.held_rows(connection)), held_back.held(connection)
    if as_json:
        print_json_rows([rows])
    elif rows:
        print_table([rows[:limit] if limit else rows], _ROW, wide=wide)
        say_left_out(limit, len(rows), "removals")
        say(f"Held back: {held}. To let it through: nftsync removals accept")
    else:
        say("Nothing is held back.")


@removals.command("accept")
@click.argument("named", nargs=-1, metavar="[WALLET]...")
@with_settings("database")
def accept(settings: Settings, named: tuple[str, ...]) -> None:
    """Let through what is held back: all of it, or that of some wallets.

    WALLET is an id, or a label that one wallet has. What vanished so far no longer counts against
    what vanishes next.
    """
    from nftsync.store import held_back
    from nftsync.store.labels import ids_in
    from nftsync.store.removals import begin_anew
    from nftsync.text import progress_bar

    with open_existing(settings.database) as mirror:
        wallets = ids_in(mirror.connection, named) if named else None
        before = held_back.held(mirror.connection)
        numbers = held_back.numbers_held(mirror.connection, wallets)
        with progress_bar("wallets", len(numbers), unit="wallets", done=0, shown=None) as bar:
            for start in range(0, len(numbers), _AT_ONCE):
                some = numbers[start : start + _AT_ONCE]
                mirror.accept_held(some)
                bar.update(len(some))
        if wallets is None:
            with mirror.transaction() as transaction:
                begin_anew(transaction.connection)
        after = held_back.held(mirror.connection)
    let = held_back.Held(
        before.wallets - after.wallets,
        before.balances - after.balances,
        before.emptied - after.emptied,
        before.since,
    )
    say(f"Let through: {let}.")
