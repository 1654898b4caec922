"""Bar charts of holdings."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nsmallest
from textwrap import wrap
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import pandas as pd

from nftsync.charts import _style
from nftsync.columnar.amounts import sums_by_group
from nftsync.columnar.filters import Moment, whole_number
from nftsync.columnar.hidden import hidden_note
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
    """Groups of a frame's rows: codes by row, values by group, and names of contracts by key."""

    by: str
    codes: Numbers
    values: list[Any]
    names: dict[str, str]

    def largest(self, sizes: pd.DataFrame, top: int) -> list[int]:
        """Return the largest groups, by the columns of `sizes` and then by value."""
        ranks = {
            group: ([-size for size in row], str(self.values[group]))
            for group, *row in sizes.itertuples()
        }
        return nsmallest(top, ranks, ranks.__getitem__)

    def places(self, shown: list[int]) -> Numbers:
        """Return the rank of each row's group among the shown ones; others come last."""
        place = np.full(len(self.values), len(shown), dtype=np.int64)
        place[shown] = np.arange(len(shown))
        return place[self.codes]

    def labels(self, shown: list[int], names: dict[str, str]) -> tuple[list[str], list[str]]:
        values = [self.values[group] for group in shown]
        return _style.group_labels(values, self.by, {**self.names, **names})


def grouped(frame: pd.DataFrame, by: str) -> Groups:
    """Group rows by a column; hex addresses group regardless of case."""
    codes, values = groups_of(frame, by)
    named = names_in(frame, by, "collection").items() if by in ADDRESSES else ()
    keys = ((contract_key(address), name) for address, name in named)
    names = {contract: name for contract, name in keys if name != short_address(contract)}
    return Groups(by, codes, values.astype(object).where(values.notna(), None).tolist(), names)


def names_in(frame: pd.DataFrame, by: str, column: str) -> dict[str, str]:
    if column not in frame.columns:
        return {}
    require_columns(frame, [column])
    pairs = frame.drop_duplicates(by)[[by, column]].itertuples(index=False)
    return {key: name for key, name in pairs if isinstance(key, str) and isinstance(name, str)}


def distinct(group: Numbers, **columns: Any) -> pd.DataFrame:
    return pd.DataFrame(columns).groupby(group).nunique()


MAX_ROWS = 200


def bar_rows(
    frame: pd.DataFrame, groups: Groups, shown: list[int], names: dict[str, str], noun: str
) -> pd.DataFrame:
    """Return the rows of a bar chart, the last one for all other groups (`rest`)."""
    places = groups.places(shown)
    labels, hovers = groups.labels(shown, names)
    columns = {"tokens": frame["token_id"], "wallets": frame["wallet_id"]}
    if "contract_address" in frame.columns:
        columns["contracts"] = grouped(frame, "contract_address").codes
    table = distinct(places, **columns)
    count = len(table)
    rest = len(np.unique(groups.codes)) - len(shown)
    once = ~frame.duplicated(["wallet_id", "token_id"]).to_numpy()
    others = [counted(rest, f"other {noun}")] * (count - len(shown))
    totals = sums_by_group(places, frame["amount"].to_numpy(), count)
    unknown = np.bincount(places, frame["amount"].isna(), count).astype(np.int64)
    return table.assign(
        label=labels + others,
        hover=hovers + others,
        holdings=np.bincount(places[once], minlength=count),
        total=totals,
        summary=[
            f"total amount {total:,}" + f", {counted(some, 'amount')} unknown" * (some > 0)
            for total, some in zip(totals, unknown.tolist(), strict=True)
        ],
        rest=np.arange(count) == len(shown),
    )


def bar_figure(
    rows: pd.DataFrame,
    values: list[Any],
    texts: list[str],
    hovers: list[str],
    title: str,
    axis_title: str,
    subtitle: str,
) -> go.Figure:
    sums, places = [str(total) for total in rows["total"]], list(range(len(rows)))
    lines = 1 + max(label.count("<br>") for label in rows["label"])
    bars = _style.hovered(
        "bar",
        axis_title,
        values,
        places,
        hovers,
        customdata=sums,
        orientation="h",
        marker={"color": _style.BLUE},
        text=texts,
        textfont={"size": 12},
        textposition="outside",
        textangle=0,
        cliponaxis=False,
    )
    return _style.figure(
        [bars],
        title,
        subtitle=subtitle,
        # Texts replace the scale, and the longest bar's text is in the margin.
        x={
            "title": {"text": axis_title},
            "side": "top",
            "range": [0, max(values) or 1],
            "showgrid": False,
            "showticklabels": False,
            "ticks": "",
        },
        y={**_style.numbered_axis(rows["label"].tolist()), "range": [len(rows) - 0.4, -0.6]},
        margin={"r": 16 + 7 * max(map(len, texts))},
        height=142 + (10 + 18 * lines) * len(rows),
        showlegend=False,
    )


def holdings_by_collection(
    holdings: FrameOrDb = None,
    *,
    top: SupportsIndex = 20,
    exclude: WalletIds = (),
    hidden: bool = False,
    names: _style.GroupLabels = None,
) -> go.Figure:
    """Draw the distinct NFTs of each collection, most NFTs first, with its number of holders.

    The subtitle counts the other collections and their NFTs. `top` is 1 to 200.
    """
    title = "Holdings by collection"
    number, renamed = whole_number("top", top, MAX_ROWS), _style.checked_names(names)
    needs = ("wallet_id", "token_id", "contract_address", "amount")
    frame = load_holdings(holdings, exclude, needs=needs, wants=("collection",), hidden=hidden)
    if frame.empty:
        return _style.empty_figure(title, no_holdings(holdings, frame))
    groups = grouped(frame, "contract_address")
    sizes = distinct(groups.codes, tokens=frame["token_id"], wallets=frame["wallet_id"])
    shown = groups.largest(sizes, number)
    rows = bar_rows(frame, groups, shown, renamed, "collection")
    subtitle = f"{counted(rows['tokens'].sum(), 'NFT')} of {counted(len(sizes), 'collection')}"
    for row in rows[rows["rest"]].itertuples():
        subtitle += f"\n+ {row.label} with {counted(row.tokens, 'NFT')}"
    rows = rows[~rows["rest"]]
    hovers = [
        f"<b>{row.hover}</b><br>{counted(row.tokens, 'NFT')} held by"
        f" {counted(row.wallets, 'wallet')}<br>{row.summary}"
        for row in rows.itertuples()
    ]
    texts = [f"{row.tokens:,} ({row.wallets:,})" for row in rows.itertuples()]
    nfts = rows["tokens"].tolist()
    return bar_figure(
        rows, nfts, texts, hovers, title, "NFTs held (holders)", _style.with_hidden(subtitle, frame)
    )


def no_holdings(holdings: object, frame: pd.DataFrame) -> str:
    if note := hidden_note(frame):
        return f"{note}; hidden=True includes them."
    if isinstance(holdings, pd.DataFrame):
        return "This frame has no holdings."
    return "No holdings in this database yet; run nftsync sync."


_AGES = "Holdings by age"


def holding_ages(
    db: FrameOrDb = None, *, at: Moment | None = None, exclude: WalletIds = (), hidden: bool = False
) -> go.Figure:
    """Draw the number of holdings by age.

    Initial holdings are hatched: they have at least this age, because their start date is unknown.

    `at` is the time for which to compute ages; None is now, a date its end. For a frame, leave out
    `at`, `exclude` and `hidden`.
    """
    frame = _load_ages(db, at, exclude, hidden=hidden)
    if frame.empty:
        return _style.empty_figure(_AGES, no_holdings(db, frame))
    buckets = frame["bucket"].cat.categories.tolist()
    counts = frame.groupby(["censored", "bucket"], observed=False).size().unstack(fill_value=0)
    counts = counts.reindex([False, True], fill_value=0)
    total, initial = int(counts.to_numpy().sum()), int(counts.loc[True].sum())
    of_which = "all" if initial == total else f"{initial:,} of them"
    traces = [
        _style.hovered(
            "bar",
            name,
            buckets,
            counts.loc[censored].tolist(),
            [
                f"<b>{bucket}</b><br>{counted(count, 'holding')}, {certainty}"
                for bucket, count in counts.loc[censored].items()
            ],
            marker={"color": color, "pattern": {"shape": pattern, "fillmode": "replace"}},
        )
        for censored, name, color, pattern, certainty in (
            (False, "start observed", _style.BLUE, "", "start observed"),
            (True, "minimum age", _style.ORANGE, "/", "held since before the first read"),
        )
    ]
    return _style.figure(
        traces,
        _AGES,
        subtitle=_style.with_hidden(
            f"{counted(total, 'holding')}, {of_which} initial (in their wallet's first read)", frame
        ),
        x={
            "title": {"text": "held for"},
            "type": "category",
            "showgrid": False,
            "tickvals": buckets,
            "ticktext": ["<br>".join(wrap(bucket, 7)) for bucket in buckets],
            "tickfont": {"size": 11},
            "tickangle": 0,
        },
        y={"title": {"text": "holdings (wallet and token)"}, "rangemode": "tozero"},
        barmode="stack",
    )


def refuse_filters(
    name: str, time: Moment | None, exclude: WalletIds, functions: str, *, hidden: bool
) -> None:
    if time is not None or given_wallets(exclude) or hidden:
        raise InputError(f"{name}=, exclude= and hidden= need a database; use them in {functions}")


def _load_ages(
    db: FrameOrDb, at: Moment | None, exclude: WalletIds, *, hidden: bool
) -> pd.DataFrame:
    if not isinstance(db, pd.DataFrame):
        return read_ages(db, at=at, exclude=exclude, hidden=hidden)
    refuse_filters("at", at, exclude, "frames.holding_ages", hidden=hidden)
    require_columns(db, ("bucket", "censored"), "frames.holding_ages")
    if not isinstance(db["bucket"].dtype, pd.CategoricalDtype):
        raise InputError(
            "the frame's column 'bucket' is not a category; use a frame from frames.holding_ages"
        )
    return db
