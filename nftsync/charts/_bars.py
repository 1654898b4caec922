"""Holdings by collection, and by holder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

import numpy as np
import pandas as pd

from nftsync.charts._groups import (
    Groups,
    Held,
    grouped,
    largest,
)
from nftsync.charts._labels import Names, counted, given_names, name_group, without
from nftsync.charts._look import BLUE, ORANGE, empty_figure, figure
from nftsync.charts._options import MOST_BARS, choice, number_of
from nftsync.charts._rows import bars, rows_axis, rows_of, values_axis
from nftsync.frames._given import Given, given_holdings
from nftsync.frames._grouping import distinct_in_each, first_of_each, sums_in_each
from nftsync.frames._source import Numbers
from nftsync.frames._tables import WalletIds

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["holders", "holdings_by_collection", "no_holdings"]

#: Floats are exact up to here.
_EXACT = 2**53


def holdings_by_collection(
    holdings: Given = None,
    *,
    top: SupportsIndex = 20,
    exclude: WalletIds = (),
    names: Names = None,
) -> go.Figure:
    """Draw how many NFTs of each collection are held, and by how many wallets.

    A bar for the distinct tokens of a contract that some wallet holds, and one for the distinct
    wallets that hold one; the collections with the most NFTs first. The last row is of all other
    collections together; a wallet that holds NFTs of several of them counts once.

    Args:
        holdings: a frame as `frames.holdings` returns it, or a database to read it from.
        top: collections shown on their own, 1 to 200.
        exclude: wallets to leave out; one id or several.
        names: what to call contracts, by address.

    Raises:
        InputError: an option or the frame cannot be used.
        NftsyncError: plotly is not installed.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    title = "Holdings by collection"
    number, known = number_of(top, "top", MOST_BARS), given_names(names)
    needs = ("wallet_id", "token_id", "contract_address", "amount")
    frame = given_holdings(holdings, exclude, needs=needs)
    if frame.empty:
        return empty_figure(title, no_holdings(holdings))
    groups = grouped(frame, "contract_address")
    held = Held.of(frame)
    tokens = distinct_in_each(groups.codes, held.tokens, len(groups))
    wallets = distinct_in_each(groups.codes, held.wallets, len(groups))
    shown = largest((tokens, wallets), groups.values, number)
    labels = [name_group(groups.values[code], without("contract_address"), known) for code in shown]
    rows = rows_of(held, groups, shown, labels, "collection")
    hovers = [
        f"<b>{hover}</b><br>{counted(rows.tokens[row], 'NFT')} held by"
        f" {counted(rows.wallets[row], 'wallet')}<br>{rows.amount(row)}"
        for row, hover in enumerate(rows.hovers)
    ]
    return figure(
        [
            bars(rows, "NFTs held", BLUE, rows.tokens, hovers),
            bars(rows, "holders", ORANGE, rows.wallets, hovers),
        ],
        title,
        subtitle=_of(rows.tokens, "NFT", int(np.count_nonzero(tokens)), "collection"),
        x=values_axis(
            rows, "count of NFTs, and of wallets that hold one", rows.tokens, rows.wallets
        ),
        y=rows_axis(rows.labels),
        height=176 + 34 * len(rows.labels),
    )


def holders(
    holdings: Given = None,
    *,
    top: SupportsIndex = 20,
    measure: Literal["nfts", "amount"] = "nfts",
    exclude: WalletIds = (),
    names: Names = None,
) -> go.Figure:
    """Draw the largest holders.

    A bar for each wallet, the largest first; the last is of all other wallets together.

    Args:
        holdings: a frame as `frames.holdings` returns it, or a database to read it from.
        top: wallets shown on their own, 1 to 200.
        measure: `nfts` counts the tokens that a wallet holds; `amount` adds up how much it holds
            of them, which means something within one collection.
        exclude: wallets to leave out; one id or several.
        names: what to call wallets, by id; else their labels are shown, if the frame has them.

    Raises:
        InputError: an option or the frame cannot be used.
        NftsyncError: plotly is not installed.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    title = "Largest holders"
    number, known = number_of(top, "top", MOST_BARS), given_names(names)
    by_amount = choice(measure, "measure", ("nfts", "amount")) == "amount"
    needs = ("wallet_id", "token_id", "amount")
    frame = given_holdings(
        holdings, exclude, needs=needs, wants=("wallet_label", "contract_address")
    )
    if frame.empty:
        return empty_figure(title, no_holdings(holdings))
    groups = grouped(frame, "wallet_id")
    held = Held.of(frame)
    sizes = distinct_in_each(groups.codes, held.tokens, len(groups))
    order: tuple[Numbers, ...] = (sizes,)
    if by_amount:
        sums = sums_in_each(groups.codes, frame["amount"].to_numpy(), len(groups)).tolist()
        order = (_places(sums) * (sizes > 0), sizes)
    shown = largest(order, groups.values, number)
    labels = _wallet_labels(frame, groups, shown, known)
    rows = rows_of(held, groups, shown, labels, "wallet")
    hovers = [
        f"<b>{hover}</b><br>{counted(rows.holdings[row], 'NFT')}"
        f"{_of_contracts(rows.contracts[row])}<br>{rows.amount(row)}"
        for row, hover in enumerate(rows.hovers)
    ]
    values: list[Any] = [float(amount) for amount in rows.amounts] if by_amount else rows.holdings
    rough = by_amount and max(rows.amounts) > _EXACT
    what = "amount held" if by_amount else "NFTs held"
    return figure(
        [bars(rows, what, BLUE, values, hovers)],
        title,
        subtitle=_of(rows.holdings, "holding", len(groups) - 1, "wallet"),
        x=values_axis(
            rows, f"{what} (approximately; hover has it exactly)" if rough else what, values
        ),
        y=rows_axis(rows.labels),
        height=176 + 26 * len(rows.labels),
        showlegend=False,
    )


def no_holdings(given: object) -> str:
    """What a figure without holdings says of the frame or database that it was drawn from."""
    if isinstance(given, pd.DataFrame):
        return "The given frame has no holdings."
    return "No holdings in what was given yet; nftsync sync reads them."


def _wallet_labels(
    frame: pd.DataFrame, groups: Groups, shown: Numbers, known: dict[str, str]
) -> list[tuple[str, str]]:
    names = dict(known)
    if "wallet_label" in frame.columns:
        first = first_of_each(groups.codes)
        for code in shown:
            label = frame["wallet_label"].iloc[first[code]]
            if isinstance(label, str):
                names.setdefault(str(groups.values[code]), label)
    return [name_group(groups.values[code], "", names) for code in shown]


def _places(sums: list[int]) -> Numbers:
    """Rank sums that fit no machine type: 1 for the least, more for more."""
    places = {amount: place for place, amount in enumerate(sorted(set(sums)), start=1)}
    return np.array([places[amount] for amount in sums], dtype=np.int64)


def _of(held: list[int], what: str, groups: int, of: str) -> str:
    return f"{counted(sum(held), what)} of {counted(groups, of)}"


def _of_contracts(contracts: int) -> str:
    return f" of {counted(contracts, 'collection')}" if contracts else ""
