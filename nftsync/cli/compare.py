"""The command `compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.holdings import TOKEN, WALLET, wallet_options
from nftsync.cli.movements import amount_pages, with_texts
from nftsync.cli.output import frame_warnings, one_line, print_json, wrapped
from nftsync.cli.tables import TableColumn, View, view_options

if TYPE_CHECKING:
    from nftsync.settings import Settings

_COLUMNS = (
    TableColumn("difference", "verdict", "state"),
    WALLET,
    TOKEN,
    TableColumn("nftsync", "amount", "number"),
    TableColumn("list", "other_amount", "number"),
    TableColumn("line", "line", "number", optional=True),
    TableColumn("on-chain id", "blockchain_token_id", "id", optional=True),
)


@click.command()
@click.argument("list_file", metavar="LIST.csv")
@options.with_settings("database")
@options.time("--at", "end", "Time of the list. Default: its column as_of, or now. TIME is")
@wallet_options
@view_options("Print the result as JSON.")
def compare(
    settings: Settings, list_file: str, *, at: str | None, view: View, **filters: Any
) -> int:
    """Compare holdings with a second list, such as an auditor's.

    LIST.csv (- for stdin) has a row per holding: wallet (id or label; without it, all wallets count
    together), token_id or contract with blockchain_token_id, and amount (default: 1). Other columns
    are ignored, so exports of nftsync are lists, too. The command exits with 1 if anything differs.
    It corrects nothing.

    \b
    Differences:
      amount differs    both have the holding, with different amounts
      only here         only nftsync has it
      only there        only the list has it
      unknown wallet    the database has no such wallet
      unknown token     the database has no such token
      in motion         nftsync observed a change of it after the time of the list

    \b
    Examples:
      nftsync compare console.csv
      nftsync compare books.csv --at 2026-10-31 --group house
      nftsync compare exports/2026-10-31/holdings.csv --json
    """
    from nftsync import frames
    from nftsync.reports.comparison import counts_of, differences, in_words, summary

    with frame_warnings():
        frame = frames.compare(settings.database, list_file, at, **filters)
    rows = with_texts(differences(frame))
    if view.as_json:
        listed = [row for page in amount_pages(rows) for row in page]
        at = frame.attrs["at"]
        print_json({"at": at, "counts": counts_of(frame), "differences": listed})
        return int(len(rows) > 0)
    name = "standard input" if list_file == "-" else one_line(list_file)
    click.echo(wrapped(summary(frame, name)))
    if len(rows):
        click.echo()
        rows["verdict"] = rows["verdict"].map(in_words)
        columns = [one for one in _COLUMNS if one is not WALLET or frame["wallet"].notna().any()]
        view.show(rows, columns, "differences", pages=amount_pages)
    return int(len(rows) > 0)
