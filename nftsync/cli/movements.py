"""The commands `transfers` and `statement`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.holdings import TOKEN, filter_options, hidden_option
from nftsync.cli.output import (
    frame_warnings,
    one_line,
    pages_of,
    print_json_rows,
    say,
    say_hidden,
    say_truncated,
    utc_times,
)
from nftsync.cli.tables import TableColumn, View, print_table, view_options

if TYPE_CHECKING:
    import pandas as pd

    from nftsync.settings import Settings

_TRANSFER = (
    TableColumn("observed", "observed_at", "time"),
    TableColumn("from", "from_wallet_id", "id", name="from_label"),
    TableColumn("to", "to_wallet_id", "id", name="to_label"),
    TOKEN,
    TableColumn("amount", "amount", "number"),
    TableColumn("kind", "kind", "state", optional=True),
)
_ENTRIES = ("opening", "initial", "received", "sent", "closing")
#: By value of `--by`: the column that names the groups, and the column of the table.
_GROUPS = {
    "group": ("wallet_group", TableColumn("group", "wallet_group")),
    "wallet": ("wallet_id", TableColumn("wallet", "wallet_id", "id", name="wallet_label")),
    "collection": ("contract", TableColumn("collection", "contract", "id", name="collection")),
}


@click.command()
@options.with_settings("database")
@options.time("--since", "start", "Only transfers observed since this time:")
@options.time("--until", "end", "Only transfers observed until this time:")
@filter_options
@hidden_option
@view_options("Print all transfers as JSON.", "Number of newest rows; 0 shows all.")
def transfers(
    settings: Settings, *, since: str | None, until: str | None, view: View, **filters: Any
) -> None:
    """List transfers with sender and receiver, oldest first.

    nftsync infers transfers from the change feed. A sender or receiver is empty if it is unknown or
    ambiguous. The holdings that a wallet's first read found are not transfers. In the JSON, each
    transfer happened between the times `observed_after` and `observed_at`.

    \b
    Examples:
      nftsync transfers --since 2026-10-01 --until 2026-10-31
      nftsync transfers --since 30d --wallet Treasury
      nftsync transfers --contract "Salt Harbours" --json
    """
    from nftsync import frames

    with frame_warnings():
        frame = frames.transfers(settings.database, since, until, **filters)
    if view.as_json:
        _print_json(frame)
    elif frame.empty:
        say("No transfers.")
    else:
        newest = frame[-view.limit :] if view.limit else frame
        print_table(_pages(newest), _TRANSFER, wide=view.wide)
        say_truncated(view.limit, len(frame), "transfers", newest=True)
    say_hidden(frame, "transfer")


@click.command()
@options.with_settings("database")
@options.time("--from", "end", "Time of the opening balance:", required=True)
@options.time("--to", "end", "Time of the closing balance (default: now):")
@options.shown(
    "--by", click.Choice(list(_GROUPS)), "group", "One row per group, wallet or collection."
)
@options.text(
    "--prices",
    "FILE",
    "Show the value of the opening and closing balances in each currency, at the latest price on "
    "or before their dates. FILE is CSV with the columns date, price, currency, source (optional), "
    "and token_id or contract (an address or a collection's name).",
)
@filter_options
@options.flag("--hidden", "Count hidden NFTs in the regular rows, not in a separate row.")
@view_options("Print the statement as JSON.")
def statement(settings: Settings, *, by: str, view: View, **arguments: Any) -> None:
    """Print opening balance, movements and closing balance.

    `initial` counts holdings that a wallet's first read found; their start date is unknown. In each
    row, opening + initial + received - sent = closing. The rows add up to the total.

    Rows count tokens, not amounts: a token counts once per wallet that holds it. If amounts
    differ from these counts, a second table shows the amounts.

    \b
    Examples:
      nftsync statement --from 2026-09-30 --to 2026-10-31             for October
      nftsync statement --from 2026-09-30 --to 2026-10-31 --by wallet --group house
      nftsync statement --from 2026-09-30 --to 2026-10-31 --prices prices.csv
      nftsync statement --from 2025-12-31 --by collection --json
    """
    from nftsync import frames

    start, end = arguments.pop("from"), arguments.pop("to")
    column, heading = _GROUPS[by]
    with frame_warnings():
        frame = frames.statement(settings.database, start, end, column, **arguments)
    if view.as_json:
        _print_json(frame)
        return
    click.echo(utc_times(f"From {start} to {end or 'now'}, in NFTs:\n"))
    _print_statement(frame, [heading, *_numbers("")], view)
    if any((frame[name] != frame[f"{name}_amount"]).any() for name in _ENTRIES):
        click.echo("\nIn amounts:\n")
        _print_statement(frame, [heading, *_numbers("_amount")], view)
    if values := _values(frame):
        click.echo("\nValues, at the newest prices up to each date:\n")
        values.sort(key=lambda name: name.partition("_value_")[2])
        shown = [TableColumn(one_line(x.replace("_value_", " ", 1)), x, "number") for x in values]
        unpriced = TableColumn("no price", "closing_unpriced", "number")
        _print_statement(_with_texts(frame), [heading, *shown, unpriced], view)
    say_truncated(view.limit, len(frame) - _last_rows(frame[column]), "rows")


def _numbers(unit: str) -> list[TableColumn]:
    return [TableColumn(name, f"{name}{unit}", "number") for name in _ENTRIES]


def _values(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame if "_value_" in name]


def _last_rows(names: pd.Series[Any]) -> int:
    """Return the number of rows that a limit leaves out of account: `hidden` and the total."""
    from nftsync.columnar.hidden import HIDDEN_ROW

    return 2 if HIDDEN_ROW in names.tolist()[-2:] else 1


def _print_statement(frame: pd.DataFrame, columns: Sequence[TableColumn], view: View) -> None:
    rows = len(frame) - _last_rows(frame[columns[0].key])
    limit = min(view.limit, rows) if view.limit else rows
    print_table(_pages(frame.drop(index=range(limit, rows))), columns, wide=view.wide)


def _with_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return exact numbers as plain text; the values of a column have the same decimal places."""
    amounts = [name for name in frame if name.endswith("amount")]
    texts = {name: frame[name].astype(object).map(str, na_action="ignore") for name in amounts}
    for name in _values(frame):
        places = max(len(f"{value:f}".partition(".")[2]) for value in frame[name])
        texts[name] = frame[name].map(f"{{:.{places}f}}".format)
    return frame.assign(**texts)


def _print_json(frame: pd.DataFrame) -> None:
    print_json_rows(_pages(_with_texts(frame)))


def _pages(frame: pd.DataFrame) -> Iterator[list[dict[str, Any]]]:
    """Yield pages of rows; `pages_of` takes the text of an amount from its own column."""
    amounts = {"amount_text": frame["amount"]} if "amount" in frame else {}
    return pages_of(frame.assign(**amounts), list(frame))
