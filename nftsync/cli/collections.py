"""The command that lists collections and names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nftsync.cli.common import (
    json_option,
    limit_option,
    open_existing,
    pages_of,
    print_json_rows,
    say,
    say_left_out,
    with_settings,
)
from nftsync.cli.tables import Column, print_table, wide_option

if TYPE_CHECKING:
    from nftsync.settings import Settings


_TABLE = (
    Column("name", "name"),
    Column("contract", "contract", "key"),
    Column("named by", "name_source"),
    Column("tokens", "tokens", "number"),
    Column("held", "held", "number"),
    Column("holders", "holders", "number"),
)


@click.group(invoke_without_command=True)
@with_settings("database")
@limit_option("Rows of the table; 0 shows all.", 50)
@wide_option
@json_option("Print all collections as JSON.")
def collections(settings: Settings, *, limit: int, wide: bool, as_json: bool) -> None:
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
    if as_json:
        print_json_rows([rows])
    elif rows:
        print_table([rows[:limit] if limit else rows], _TABLE, wide=wide)
        say_left_out(limit, len(rows), "collections")
    else:
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
