"""Rows of a bar chart: what each shows, and all that is left over in the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nftsync.charts._groups import Groups, Held, folded, grouped
from nftsync.charts._labels import tell_apart
from nftsync.charts._look import TEXT_ONLY
from nftsync.frames._grouping import distinct_in_each, sums_in_each
from nftsync.frames._source import Numbers

__all__ = ["Rows", "bars", "rows_axis", "rows_of", "values_axis"]

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
