"""The command that lists collections and names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nftsync.cli.common import (
    json_option,
    open_existing,
    pages_of,
    print_json_rows,
    print_table,
    say,
    with_settings,
)

if TYPE_CHECKING:
    from nftsync.settings import Settings

__all__ = ["collections"]


@click.group(invoke_without_command=True)
@with_settings("database")
@json_option("Print the collections as JSON.")
def collections(settings: Settings, *, as_json: bool) -> None:
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
        print_table(rows, ("name", "name_source", "contract", *counts))
    else:
        say("No collections yet; `nftsync sync` reads wallets, and what they hold.")


@collections.command("label")
@click.argument("address")
@click.argument("name")
@with_settings("database")
def label(settings: Settings, address: str, name: str) -> None:
    """Give a contract a name for people; an empty NAME takes it away."""
    from nftsync.store.contracts import label_contract

    with open_existing(settings.database) as mirror:
        mirror.index_tokens()
        with mirror.transaction() as transaction:
            label_contract(transaction.connection, address.strip(), name.strip())
