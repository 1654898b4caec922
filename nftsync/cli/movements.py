"""The commands `transfers` and `statement`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.holdings import TOKEN, WALLET, filter_options, hidden_option
from nftsync.cli.output import (
    frame_warnings,
    one_line,
    pages_of,
    print_json_rows,
    say,
    say_hidden,
    say_truncated,
    wrapped,
)
from nftsync.cli.tables import TableColumn, View, print_table, view_options
from nftsync.text import counted
from nftsync.times import MOMENT, shifted, utc_times

if TYPE_CHECKING:
    import pandas as pd

    from nftsync.settings import Settings

TRANSFER = (
    TableColumn("observed", "observed_at", "window", start="observed_after"),
    TableColumn("from", "from_wallet_id", "id", name="from_label", short="from_wallet"),
    TableColumn("to", "to_wallet_id", "id", name="to_label", short="to_wallet"),
    TOKEN,
    TableColumn("amount", "amount", "number"),
    TableColumn("kind", "kind", "state", optional=True),
)
#: What results count.
_COUNTS = (
    "{}: {:,} between two wallets, {:,} received, {:,} sent. Each is one change, or two that match."
)
_NOTE = (
    "Received and sent count holdings that began or ended; a transfer within a row counts in both."
)
_NO_GROUP = " No wallet has a group: set groups in the wallets file, or use --by wallet."
_ENTRIES = ("opening", "initial", "received", "sent", "closing")
#: By value of `--by`: the column that names the groups, and the column of the table.
_GROUPS = {
    "group": ("wallet_group", TableColumn("group", "wallet_group")),
    "wallet": ("wallet_id", WALLET),
    "collection": ("contract", TableColumn("collection", "contract", "id", name="collection")),
}


@click.command()
@options.with_settings("database")
@options.period
@filter_options
@hidden_option
@view_options("Print all transfers as JSON.", "Number of newest rows; 0 shows all.")
def transfers(
    settings: Settings, *, start: str | None, since: str | None, view: View, **filters: Any
) -> None:
    """List transfers with sender and receiver, oldest first.

    nftsync infers transfers from the change feed. Each row is one change of a balance, or a
    decrease and the increase that matches it. A sender or receiver is empty if it is unknown or
    ambiguous. Holdings that a wallet's first read found are not transfers. Each transfer happened
    between `observed_after` and `observed_at` of the JSON.

    \b
    Examples:
      nftsync transfers --month 2026-10
      nftsync transfers --since 2026-10-01 --until 2026-10-15
      nftsync transfers --since 30d --wallet Treasury
      nftsync transfers --contract "Salt Harbours" --json
    """
    from nftsync import frames

    since = since if start is None else shifted(start, MOMENT)
    with frame_warnings():
        frame = frames.transfers(settings.database, since=since, **filters)
    view.show(
        frame,
        TRANSFER,
        "transfers",
        pages=amount_pages,
        as_json=lambda rows: amount_pages(with_texts(rows)),
        newest=True,
        empty="No transfers.",
    )
    if not (view.as_json or frame.empty):
        kinds = frame["kind"].value_counts().reindex(["transfer", "received", "sent"], fill_value=0)
        say(wrapped(_COUNTS.format(counted(len(frame), "movement"), *kinds), sys.stderr))
    say_hidden(frame, "transfer")


@click.command()
@options.with_settings("database")
@options.period
@options.valued(
    "--by", None, click.Choice(list(_GROUPS)), "One row per group, wallet or collection.", "group"
)
@options.text(
    "--prices",
    "FILE",
    "CSV of prices: the columns date, price, currency, source (optional), and token_id or contract "
    "(an address or a collection's name). Shows the value of both balances in each currency, at "
    "the latest price up to their dates.",
)
@filter_options
@options.flag("--hidden", "Count hidden NFTs in the regular rows, not in a separate row.")
@view_options("Print the statement as JSON.")
def statement(settings: Settings, *, by: str, view: View, **arguments: Any) -> None:
    """Print opening balance, movements and closing balance.

    Rows count holdings: a token counts once per wallet that holds it. If amounts differ from these
    counts, a second table shows the amounts. In each row, opening + initial + received − sent =
    closing. `initial` counts holdings that a first read found; their start date is unknown.

    A start before the first complete read moves to it, because earlier holdings are unknown.

    \b
    Examples:
      nftsync statement --month 2026-10
      nftsync statement --from 2026-09-30 --to 2026-10-31             the same
      nftsync statement --month 2026-10 --by wallet --group house
      nftsync statement --month 2026-10 --prices prices.csv
      nftsync statement --from 2025-12-31 --by collection --json
    """
    from nftsync import frames
    from nftsync.columnar.hidden import HIDDEN_ROW

    column, heading = _GROUPS[by]
    with frame_warnings():
        frame = frames.statement(settings.database, by=column, **arguments)
    if view.as_json:
        print_json_rows(amount_pages(with_texts(frame.assign(**frame.attrs))))
        return
    span = utc_times(f"{frame.attrs['start']} to {frame.attrs['end'] or 'now'}").replace(" UTC", "")
    rows = len(frame) - (2 if HIDDEN_ROW in frame[column].tolist()[-2:] else 1)
    limit = min(view.limit or rows, rows)
    shown = with_texts(frame).drop(index=range(limit, rows))
    shown[column] = shown[column].fillna(f"no {by}")
    tables: dict[str, Sequence[str]] = {f"From {span} (UTC), in holdings:": _ENTRIES}
    amounts = [f"{name}_amount" for name in _ENTRIES]
    if (frame[[*_ENTRIES]].to_numpy() != frame[amounts].to_numpy()).any():
        tables["In amounts:"] = amounts
    if values := _values(frame):
        values.sort(key=lambda name: name.partition("_value_")[2])
        tables["Values, at the newest prices up to each date:"] = [*values, "closing_unpriced"]
    for place, (title, names) in enumerate(tables.items()):
        if place:
            click.echo()
        click.echo(f"{title}\n")
        columns = [TableColumn(_heading(name), name, "number") for name in names]
        print_table(amount_pages(shown), [heading, *columns], wide=view.wide)
    say_truncated(view.limit, rows, "rows")
    without_groups = by == "group" and rows == 1 and bool(frame[column].isna()[0])
    say(wrapped(_NOTE + _NO_GROUP * without_groups, sys.stderr))


def _heading(name: str) -> str:
    if name == "closing_unpriced":
        return "no price"
    return one_line(name.removesuffix("_amount").replace("_value_", " ", 1))


def _values(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame if "_value_" in name]


def with_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with amounts and values as texts, which JSON keeps exactly."""
    amounts = [name for name in frame if name.endswith("amount")]
    texts = {name: frame[name].astype(object).map(str, na_action="ignore") for name in amounts}
    for name in _values(frame):
        places = max(len(f"{value:f}".partition(".")[2]) for value in frame[name])
        texts[name] = frame[name].map(f"{{:.{places}f}}".format)
    return frame.assign(**texts)


def amount_pages(frame: pd.DataFrame) -> Iterator[list[dict[str, Any]]]:
    """Yield pages of rows whose amounts are texts already."""
    amounts = {"amount_text": frame["amount"]} if "amount" in frame else {}
    return pages_of(frame.assign(**amounts), list(frame))
