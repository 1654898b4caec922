"""How long holdings have been there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from nftsync.charts._look import (
    BLUE,
    MOST_BARS,
    ORANGE,
    TEXT_ONLY,
    Names,
    choice,
    counted,
    empty_figure,
    figure,
    given_names,
    name_group,
    number_of,
    tell_apart,
    without,
)
from nftsync.errors import InputError
from nftsync.frames import holding_ages as read_ages
from nftsync.frames._columns import Moment, coded, contract_groups
from nftsync.frames._given import Given, given_holdings, need_columns, text_column
from nftsync.frames._groups import distinct_in_each, first_of_each, sums_in_each
from nftsync.frames._source import Numbers, Store
from nftsync.frames._tables import WalletIds, wallet_ids

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = [
    "Groups",
    "Held",
    "Rows",
    "bars",
    "codes_of",
    "folded",
    "grouped",
    "holders",
    "holding_ages",
    "holdings_by_collection",
    "largest",
    "no_holdings",
    "rows_axis",
    "rows_of",
    "values_axis",
]


@dataclass(frozen=True)
class Groups:
    """Which group each row is of.

    Attributes:
        codes: the number of each row's group.
        values: by number, what the group has in common; None where it is missing.
    """

    codes: Numbers
    values: list[Any]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Held:
    """Holdings, whose ids are numbered once, as that takes long.

    Attributes:
        frame: a row per wallet and token.
        wallets: the number of each row's wallet.
        tokens: the number of each row's token.
    """

    frame: pd.DataFrame
    wallets: Numbers
    tokens: Numbers

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Held:
        """Number the ids of a frame."""
        return cls(frame, codes_of(frame, "wallet_id"), codes_of(frame, "token_id"))

    def pairs(self) -> Numbers:
        """A number for each wallet and token, which a caller's frame may name twice."""
        return self.wallets * (int(self.tokens.max(initial=0)) + 1) + self.tokens


def grouped(frame: pd.DataFrame, by: str) -> Groups:
    """Group rows by a column; contract addresses whatever the case of their hex digits.

    Raises:
        InputError: there is no such column, or what it holds cannot be grouped.
    """
    need_columns(frame, [by])
    if by == "contract_address":
        codes, spellings = contract_groups(text_column(frame, by))
        return Groups(codes, spellings.to_pylist())
    try:
        codes, distinct = pd.factorize(frame[by])
    except TypeError as error:
        raise InputError(f"cannot group by {by!r}: {error}") from None
    values = [*distinct.tolist(), None]
    return Groups(np.where(codes < 0, len(values) - 1, codes).astype(np.int64), values)


def largest(sizes: Sequence[npt.NDArray[np.int64]], names: Sequence[Any], top: int) -> Numbers:
    """Number the groups that are shown, the largest first; groups without a row are left out.

    Args:
        sizes: by group; the first decides, the others where it is the same.
        names: by group; they decide in the end.
        top: how many may be shown.
    """
    first = sizes[0]
    least = max(1, int(np.sort(first)[-top:].min(initial=1)))

    def rank(group: int) -> tuple[list[int], str]:
        return [-int(size[group]) for size in sizes], str(names[group])

    return np.array(nsmallest(top, np.flatnonzero(first >= least).tolist(), rank), dtype=np.int64)


def folded(codes: Numbers, shown: Numbers, count: int) -> Numbers:
    """Number each row's group by its place among those that are shown; all others come after."""
    place = np.full(count, len(shown), dtype=np.int64)
    place[shown] = np.arange(len(shown))
    return place[codes]


def codes_of(frame: pd.DataFrame, name: str) -> Numbers:
    """Number the distinct texts of a column, such as ids."""
    codes, _ = coded(text_column(frame, name))
    return codes.astype(np.int64)


#: A last row that is so many times as long as the longest of the others would squeeze them.
_MUCH_LONGER = 1.5
_ROOM = 1.2


@dataclass(frozen=True)
class Rows:
    """What the rows of a bar chart show, the rest last.

    Attributes:
        labels: escaped, each different.
        hovers: the first lines of what hovering shows.
        tokens, wallets, contracts: distinct ones.
        holdings: pairs of wallet and token.
        amounts: exact sums of what is known.
        unknown: holdings whose amount is no number.
        rest: whether the last row is of all that has no row of its own.
    """

    labels: list[str]
    hovers: list[str]
    tokens: list[int]
    wallets: list[int]
    contracts: list[int]
    holdings: list[int]
    amounts: list[int]
    unknown: list[int]
    rest: bool

    def amount(self, row: int) -> str:
        """A line for a hover: the exact sum, and what is not in it."""
        unknown = self.unknown[row]
        beside = f", and {unknown:,} that are no numbers" if unknown else ""
        return f"amounts add up to {self.amounts[row]:,}{beside}"


def rows_of(
    held: Held, groups: Groups, shown: Numbers, labels: list[tuple[str, str]], what: str
) -> Rows:
    """Work out what rows show.

    Args:
        held: all holdings.
        groups: of which a row is.
        shown: numbers of the groups with a row of their own.
        labels: label and hover of each of those.
        what: what a group is called, in the row of the rest.
    """
    codes = folded(groups.codes, shown, len(groups))
    rest = int(np.count_nonzero(np.bincount(groups.codes))) - len(shown)
    count = len(shown) + (rest > 0)
    amounts = held.frame["amount"].to_numpy()
    unknown = np.fromiter((amount is None for amount in amounts), bool, len(amounts))

    def distinct(numbers: Numbers) -> list[int]:
        found: list[int] = distinct_in_each(codes, numbers, count).tolist()
        return found

    contracts = [0] * count
    if "contract_address" in held.frame.columns:
        contracts = distinct(grouped(held.frame, "contract_address").codes)
    ids = [str(groups.values[code] or "") for code in shown]
    others = [f"{rest:,} other {what}{'s' if rest > 1 else ''}"] * (rest > 0)
    return Rows(
        rest=rest > 0,
        labels=tell_apart([label for label, _ in labels], ids)
        + [f"<i>{one}</i>" for one in others],
        hovers=[hover for _, hover in labels] + others,
        tokens=distinct(held.tokens),
        wallets=distinct(held.wallets),
        contracts=contracts,
        holdings=distinct(held.pairs()),
        amounts=sums_in_each(codes, amounts, count).tolist(),
        unknown=np.bincount(codes[unknown], minlength=count).tolist(),
    )


def bars(rows: Rows, name: str, color: str, values: list[Any], hovers: list[str]) -> dict[str, Any]:
    """Horizontal bars, one per row; the exact sums of amounts are their custom data.

    Args:
        rows: what they are of.
        name: what they measure.
        color: of the bars.
        values: how long they are.
        hovers: what hovering shows, escaped.
    """
    cut = _is_cut(rows, values)
    texts = [""] * (len(values) - 1) + [f"{values[-1]:,.6g} (longer than drawn)"]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": values,
        "y": list(range(len(values))),
        "hovertext": hovers,
        "hovertemplate": TEXT_ONLY,
        "customdata": [str(amount) for amount in rows.amounts],
        "marker": {"color": color},
        **(_TEXT | {"text": texts} if cut else {}),
    }


_TEXT = {
    "textposition": "inside",
    "insidetextanchor": "start",
    "textangle": 0,
    "constraintext": "none",
    "textfont": {"color": "#ffffff"},
}


def values_axis(rows: Rows, title: str, *values: list[Any]) -> dict[str, Any]:
    """The axis along the bars, which ends before a last bar that would squeeze the others."""
    axis = {
        "title": {"text": title},
        "exponentformat": "power",
        "minexponent": 9,
        "separatethousands": True,
    }
    if any(_is_cut(rows, one) for one in values):
        longest = max(max(one[:-1]) for one in values)
        return {**axis, "range": [0, longest * _ROOM]}
    return {**axis, "rangemode": "tozero"}


def _is_cut(rows: Rows, values: list[Any]) -> bool:
    return rows.rest and len(values) > 1 and values[-1] > _MUCH_LONGER * max(values[:-1]) > 0


def rows_axis(labels: list[str]) -> dict[str, Any]:
    """The axis across the bars, with a label each."""
    # Rows are numbered, so that two of the same label stay two.
    return {
        "tickmode": "array",
        "tickvals": list(range(len(labels))),
        "ticktext": labels,
        "range": [len(labels) - 0.4, -0.6],
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
    }


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


#: A frame of ages, or what `frames.holding_ages` reads one from.
Ages: TypeAlias = "pd.DataFrame | Store"

_TITLE = "Ages of holdings"


def holding_ages(
    db: Ages = None, *, at: Moment | None = None, exclude: WalletIds = ()
) -> go.Figure:
    """Draw how many holdings have been there for how long.

    Those that a wallet's first read showed have been held at least so long, nobody knows how much
    longer: they are hatched, on top of those whose beginning was seen.

    Args:
        db: a frame as `frames.holding_ages` returns it, or a database to read it from.
        at: the holdings that were known at this time, and their age then; None is now. Text, a
            date (its end) or a datetime. Only with a database.
        exclude: wallets to leave out; one id or several. Only with a database.

    Raises:
        InputError: an option or the frame cannot be used.
        NftsyncError: plotly is not installed.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    frame = _given(db, at, exclude)
    if frame.empty:
        return empty_figure(_TITLE, no_holdings(db))
    buckets = frame["bucket"].cat.categories.tolist()
    codes = frame["bucket"].cat.codes.to_numpy().astype(np.int64)
    codes, censored = codes[codes >= 0], frame["censored"].to_numpy(dtype=bool)[codes >= 0]
    seen = np.bincount(codes[~censored], minlength=len(buckets)).tolist()
    open_ended = np.bincount(codes[censored], minlength=len(buckets)).tolist()
    return figure(
        [
            _bar("beginning was seen", BLUE, "", buckets, seen, "since a change that was seen"),
            _bar(
                "at least so old", ORANGE, "/", buckets, open_ended, "since before the first read"
            ),
        ],
        _TITLE,
        subtitle=f"{counted(len(codes), 'holding')}, of which {sum(open_ended):,}"
        " were there at their wallet's first read",
        x={"title": {"text": "held for"}, "type": "category", "showgrid": False},
        y={"title": {"text": "holdings (wallet and token)"}, "rangemode": "tozero"},
        barmode="stack",
    )


def _given(db: Ages, at: Moment | None, exclude: WalletIds) -> pd.DataFrame:
    if not isinstance(db, pd.DataFrame):
        return read_ages(db, at=at, exclude=exclude)
    if at is not None or wallet_ids(exclude):
        raise InputError("at= and exclude= need a database; give them to frames.holding_ages")
    need_columns(db, ("bucket", "censored"), "frames.holding_ages")
    if not isinstance(db["bucket"].dtype, pd.CategoricalDtype):
        raise InputError(
            "the given frame's bucket is no category; give what frames.holding_ages returns"
        )
    return db


def _bar(
    name: str, color: str, pattern: str, buckets: list[str], counts: list[int], since: str
) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": name,
        "x": buckets,
        "y": counts,
        "hovertext": [
            f"<b>{bucket}</b><br>{counted(count, 'holding')}, {since}"
            for bucket, count in zip(buckets, counts, strict=True)
        ],
        "hovertemplate": TEXT_ONLY,
        "marker": {"color": color, "pattern": {"shape": pattern, "fillmode": "replace"}},
    }
