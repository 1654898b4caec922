"""Bar charts: holdings by collection, holding ages, and any other groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import pandas as pd

from nftsync.charts import _style
from nftsync.columnar.amounts import sums_by_group
from nftsync.columnar.filters import Moment, whole_number
from nftsync.columnar.inputs import ADDRESSES, FrameOrDb, groups_of, load_holdings, require_columns
from nftsync.columnar.source import Numbers
from nftsync.errors import InputError
from nftsync.frames import holding_ages as read_ages
from nftsync.store.contracts import contract_key, short_address
from nftsync.store.wallets import WalletIds, given_wallets
from nftsync.text import counted

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Groups:
    """Which group each row is of.

    Attributes:
        by: the column that tells.
        codes: the number of each row's group.
        values: by number, what the group has in common; None where it is missing.
        names: what contracts are called, by address in the one spelling.
    """

    by: str
    codes: Numbers
    values: list[Any]
    names: dict[str, str] = field(default_factory=dict)

    def largest(self, sizes: pd.DataFrame, top: int) -> list[int]:
        """Number the groups that are shown, the largest first.

        Args:
            sizes: by group; the first column decides, the others where it is the same, and what
                the groups have in common in the end.
            top: how many may be shown.
        """
        ranks = {
            group: ([-size for size in row], str(self.values[group]))
            for group, *row in sizes.itertuples()
        }
        return nsmallest(top, ranks, ranks.__getitem__)

    def places(self, shown: list[int]) -> Numbers:
        """Number each row by its group's place among those that are shown; all others come last."""
        place = np.full(len(self.values), len(shown), dtype=np.int64)
        place[shown] = np.arange(len(shown))
        return place[self.codes]

    def labels(self, shown: list[int], names: dict[str, str]) -> tuple[list[str], list[str]]:
        """The labels and hovers of groups, with given names before their own; see `labels_of`."""
        values = [self.values[group] for group in shown]
        return _style.group_labels(values, self.by, {**self.names, **names})


def grouped(frame: pd.DataFrame, by: str) -> Groups:
    """Group rows by a column; contract addresses whatever the case of their hex digits.

    Raises:
        InputError: what the column holds cannot be grouped.
    """
    codes, values = groups_of(frame, by)
    names = _names(frame, by) if by in ADDRESSES and "collection" in frame.columns else {}
    return Groups(by, codes, values.astype(object).where(values.notna(), None).tolist(), names)


def _names(frame: pd.DataFrame, by: str) -> dict[str, str]:
    """What contracts are called, less those that only have a short address."""
    require_columns(frame, ["collection"])
    once = frame.drop_duplicates(by)
    named = zip(once[by], once["collection"], strict=True)
    known = {contract_key(one): name for one, name in named if isinstance(one, str)}
    return {
        contract: name
        for contract, name in known.items()
        if isinstance(name, str) and name != short_address(contract)
    }


def distinct(group: Numbers, **columns: Any) -> pd.DataFrame:
    """Count the distinct values of columns in each group that has a row."""
    return pd.DataFrame(columns).groupby(group).nunique()


MAX_ROWS = 200
#: A last row that is so many times as long as the longest of the others would squeeze them.
_MUCH_LONGER = 1.5
_ROOM = 1.2
_TEXT_IN_BAR: dict[str, Any] = {
    "textposition": "inside",
    "insidetextanchor": "start",
    "textangle": 0,
    "constraintext": "none",
    "textfont": {"color": "#ffffff"},
}


def bar_rows(
    frame: pd.DataFrame,
    groups: Groups,
    shown: list[int],
    names: dict[str, str],
    what: str,
) -> pd.DataFrame:
    """What a bar chart shows, by row: the groups that are shown, and the rest in a last one.

    Args:
        frame: holdings.
        groups: of which a row is.
        shown: numbers of the groups with a row of their own.
        names: what to call those, by value.
        what: what a group is called, in the row of the rest.

    Returns:
        `label` and `hover`, the distinct `tokens`, `wallets`, `contracts` and `holdings` (wallets
        and tokens, which a caller's frame may name twice), in `total` what their amounts add up
        to, of which `says` is the text, and `rest`, which marks the last row.
    """
    places = groups.places(shown)
    labels, hovers = groups.labels(shown, names)
    columns = {"tokens": frame["token_id"], "wallets": frame["wallet_id"]}
    if "contract_address" in frame.columns:
        columns["contracts"] = grouped(frame, "contract_address").codes
    table = distinct(places, **columns)
    count = len(table)
    rest = len(np.unique(groups.codes)) - len(shown)
    once = ~frame.duplicated(["wallet_id", "token_id"]).to_numpy()
    others = [counted(rest, f"other {what}")] * (count - len(shown))
    totals = sums_by_group(places, frame["amount"].to_numpy(), count)
    unknown = np.bincount(places, frame["amount"].isna(), count).astype(np.int64)
    return table.assign(
        label=labels + [f"<i>{one}</i>" for one in others],
        hover=hovers + others,
        holdings=np.bincount(places[once], minlength=count),
        total=totals,
        says=[
            f"amounts add up to {total:,}" + f", and {some:,} that are no numbers" * (some > 0)
            for total, some in zip(totals, unknown.tolist(), strict=True)
        ],
        rest=np.arange(count) == len(shown),
    )


def bar_figure(
    rows: pd.DataFrame,
    hovers: list[str],
    bars: dict[str, list[Any]],
    title: str,
    measured: str,
    **layout: Any,
) -> go.Figure:
    """One or two bars by row, on an axis that ends before a last one that would squeeze the others.

    The exact sums of amounts are the bars' custom data.
    """
    axis: dict[str, Any] = {"rangemode": "tozero"}
    traces = []
    for color, (name, values) in zip((_style.BLUE, _style.ORANGE), bars.items(), strict=False):
        trace: dict[str, Any] = {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": values,
            "y": list(range(len(rows))),
            "hovertext": hovers,
            "hovertemplate": _style.TEXT_ONLY,
            "customdata": [str(total) for total in rows["total"]],
            "marker": {"color": color},
        }
        if rows["rest"].iloc[-1] and values[-1] > _MUCH_LONGER * max(values[:-1]) > 0:
            axis = {"range": [0, _ROOM * max(max(each[:-1]) for each in bars.values())]}
            texts = ["" for _ in values[1:]]
            trace |= {"text": [*texts, f"{values[-1]:,.6g} (longer than drawn)"], **_TEXT_IN_BAR}
        traces.append(trace)
    return _style.figure(
        traces,
        title,
        x={
            "title": {"text": measured},
            "exponentformat": "power",
            "minexponent": 9,
            "separatethousands": True,
            **axis,
        },
        y={**_style.numbered_axis(rows["label"].tolist()), "range": [len(rows) - 0.4, -0.6]},
        height=176 + (18 + 8 * len(traces)) * len(rows),
        **layout,
    )


def holdings_by_collection(
    holdings: FrameOrDb = None,
    *,
    top: SupportsIndex = 20,
    exclude: WalletIds = (),
    names: _style.Names = None,
) -> go.Figure:
    """Draw how many NFTs of each collection are held, and by how many wallets.

    A bar for the distinct tokens of a contract that some wallet holds, and one for the distinct
    wallets that hold one; the collections with the most NFTs first. The last row is of all other
    collections together; a wallet that holds NFTs of several of them counts once.

    Args:
        holdings: a frame as `frames.holdings` returns it, or a database to read it from.
        top: collections shown on their own, 1 to 200.
        exclude: wallets to leave out; one or several, by id or label.
        names: what to call contracts, by address; else as their collections are called.

    Raises:
        InputError: an option or the frame cannot be used.
        NftsyncError: plotly is not installed.
    """
    title = "Holdings by collection"
    number, known = whole_number("top", top, MAX_ROWS), _style.checked_names(names)
    needs = ("wallet_id", "token_id", "contract_address", "amount")
    frame = load_holdings(holdings, exclude, needs=needs, wants=("collection",))
    if frame.empty:
        return _style.empty_figure(title, no_holdings(holdings))
    groups = grouped(frame, "contract_address")
    sizes = distinct(groups.codes, tokens=frame["token_id"], wallets=frame["wallet_id"])
    shown = groups.largest(sizes, number)
    rows = bar_rows(frame, groups, shown, known, "collection")
    hovers = [
        f"<b>{row.hover}</b><br>{counted(row.tokens, 'NFT')} held by"
        f" {counted(row.wallets, 'wallet')}<br>{row.says}"
        for row in rows.itertuples()
    ]
    return bar_figure(
        rows,
        hovers,
        {"NFTs held": rows["tokens"].tolist(), "holders": rows["wallets"].tolist()},
        title,
        "count of NFTs, and of wallets that hold one",
        subtitle=f"{counted(rows['tokens'].sum(), 'NFT')} of {counted(len(sizes), 'collection')}",
    )


def no_holdings(given: object) -> str:
    """What a figure without holdings says of the frame or database that it was drawn from."""
    if isinstance(given, pd.DataFrame):
        return "The given frame has no holdings."
    return "No holdings in what was given yet; nftsync sync reads them."


_AGES = "Ages of holdings"


def holding_ages(
    db: FrameOrDb = None, *, at: Moment | None = None, exclude: WalletIds = ()
) -> go.Figure:
    """Draw how many holdings have been there for how long.

    Those that a wallet's first read showed have been held at least so long, nobody knows how much
    longer: they are hatched, on top of those whose beginning was seen.

    Args:
        db: a frame as `frames.holding_ages` returns it, or a database to read it from.
        at: the holdings that were known at this time, and their age then; None is now. Text, a
            date (its end) or a datetime. Only with a database.
        exclude: wallets to leave out; one or several, by id or label. Only with a database.

    Raises:
        InputError: an option or the frame cannot be used.
        NftsyncError: plotly is not installed.
    """
    frame = _load_ages(db, at, exclude)
    if frame.empty:
        return _style.empty_figure(_AGES, no_holdings(db))
    buckets = frame["bucket"].cat.categories.tolist()
    counts = frame.groupby(["censored", "bucket"], observed=False).size().unstack(fill_value=0)
    counts = counts.reindex([False, True], fill_value=0)
    total, before = int(counts.to_numpy().sum()), int(counts.loc[True].sum())
    of_which = "all" if before == total else f"of which {before:,}"
    traces = [
        {
            "type": "bar",
            "name": name,
            "x": buckets,
            "y": counts.loc[censored].tolist(),
            "hovertext": [
                f"<b>{bucket}</b><br>{counted(count, 'holding')}, {since}"
                for bucket, count in counts.loc[censored].items()
            ],
            "hovertemplate": _style.TEXT_ONLY,
            "marker": {"color": color, "pattern": {"shape": pattern, "fillmode": "replace"}},
        }
        for censored, name, color, pattern, since in (
            (False, "beginning was seen", _style.BLUE, "", "since a change that was seen"),
            (True, "at least so old", _style.ORANGE, "/", "since before the first read"),
        )
    ]
    return _style.figure(
        traces,
        _AGES,
        subtitle=f"{counted(total, 'holding')}, {of_which} were there at their wallet's first read",
        x={"title": {"text": "held for"}, "type": "category", "showgrid": False},
        y={"title": {"text": "holdings (wallet and token)"}, "rangemode": "tozero"},
        barmode="stack",
    )


def _load_ages(db: FrameOrDb, at: Moment | None, exclude: WalletIds) -> pd.DataFrame:
    if not isinstance(db, pd.DataFrame):
        return read_ages(db, at=at, exclude=exclude)
    if at is not None or given_wallets(exclude):
        raise InputError("at= and exclude= need a database; give them to frames.holding_ages")
    require_columns(db, ("bucket", "censored"), "frames.holding_ages")
    if not isinstance(db["bucket"].dtype, pd.CategoricalDtype):
        raise InputError(
            "the given frame's bucket is no category; give what frames.holding_ages returns"
        )
    return db
