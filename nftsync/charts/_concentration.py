"""Charts of holders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

import numpy as np
import pandas as pd

from nftsync.charts import _bars, _style
from nftsync.columnar.amounts import sums_by_group
from nftsync.columnar.filters import one_of, whole_number
from nftsync.columnar.inputs import ADDRESSES, FrameOrDb, load_holdings
from nftsync.errors import InputError
from nftsync.frames import concentration as read_concentration
from nftsync.frames import overlap as read_overlap
from nftsync.store.contracts import contract_key
from nftsync.store.wallets import WalletIds
from nftsync.text import counted

if TYPE_CHECKING:
    import plotly.graph_objects as go


#: Integers are exact as floats up to here.
_EXACT = 2**53


def holders(
    holdings: FrameOrDb = None,
    *,
    top: SupportsIndex = 20,
    measure: Literal["nfts", "amount"] = "nfts",
    exclude: WalletIds = (),
    hidden: bool = False,
    names: _style.GroupLabels = None,
) -> go.Figure:
    """Draw the largest holders, one bar each; the subtitle counts the others.

    `top` is 1 to 200. The measure `nfts` counts the tokens of a wallet; `amount` sums their
    amounts, which is meaningful within one collection.
    """
    title = "Largest holders"
    number, renamed = whole_number("top", top, _bars.MAX_ROWS), _style.checked_names(names)
    by_amount = one_of(measure, "measure", ("nfts", "amount")) == "amount"
    frame = load_holdings(
        holdings,
        exclude,
        needs=("wallet_id", "token_id", "amount"),
        wants=("wallet_label", "contract_address"),
        hidden=hidden,
    )
    if frame.empty:
        return _style.empty_figure(title, _bars.no_holdings(holdings, frame))
    groups = _bars.grouped(frame, "wallet_id")
    sizes = _bars.distinct(groups.codes, tokens=frame["token_id"])
    if by_amount:
        sums = sums_by_group(groups.codes, frame["amount"].to_numpy(), len(sizes))
        sizes.insert(0, "amount", sums)
    shown = groups.largest(sizes, number)
    labels = _bars.names_in(frame, "wallet_id", "wallet_label")
    rows = _bars.bar_rows(frame, groups, shown, labels | renamed, "wallet")
    subtitle = f"{counted(rows['holdings'].sum(), 'holding')} of {counted(len(sizes), 'wallet')}"
    for row in rows[rows["rest"]].itertuples():
        others = row.summary if by_amount else counted(row.holdings, "holding")
        subtitle += f"\n+ {row.label} with {others}"
    rows = rows[~rows["rest"]]
    values = (rows["total"] if by_amount else rows["holdings"]).tolist()
    measured = "amount held" if by_amount else "NFTs held"
    contracts = rows.get("contracts", pd.Series(0, rows.index))
    hovers = [
        f"<b>{row.hover}</b><br>{counted(row.holdings, 'NFT')}"
        + f" of {counted(of, 'collection')}" * (of > 0)
        + f"<br>{row.summary}"
        for row, of in zip(rows.itertuples(), contracts, strict=True)
    ]
    rough = max(values) > _EXACT
    return _bars.bar_figure(
        rows,
        [float(value) for value in values] if by_amount else values,
        [f"{value:,}" if value <= _EXACT else f"{float(value):.4g}" for value in values],
        hovers,
        title,
        f"{measured} (approximate; hover for the exact sum)" if rough else measured,
        _style.with_hidden(subtitle, frame),
    )


_TITLE = "Concentration of holdings"
_POINTS = 300


def concentration(
    holdings: FrameOrDb = None,
    *,
    by: str = "contract_address",
    top: SupportsIndex = 5,
    exclude: WalletIds = (),
    hidden: bool = False,
    names: _style.GroupLabels = None,
) -> go.Figure:
    """Draw Lorenz curves of the groups with the most holders, and the line of equality.

    A curve shows the share of a group's amount that its smallest holders have together, for every
    share of holders. A curve further below the line is more unequal. The legend shows the Gini
    coefficient of `frames.concentration`. A holder is a wallet with the exact sum of its amounts in
    the group, without unknown amounts. `by` is the column of the groups, and `top` is 1 to 6.
    """
    number, renamed = whole_number("top", top, len(_style.PENS)), _style.checked_names(names)
    if not isinstance(by, str):
        raise InputError(f"by={by!r} is not the name of a column")
    needs = ("wallet_id", "token_id", "amount", by)
    frame = load_holdings(holdings, exclude, needs=needs, wants=("collection",), hidden=hidden)
    frame = frame[frame["amount"].notna()].reset_index(drop=True)
    if frame.empty:
        return _style.empty_figure(_TITLE, _bars.no_holdings(holdings, frame))
    groups = _bars.grouped(frame, by)
    sizes = _bars.distinct(groups.codes, wallets=frame["wallet_id"])
    shown = groups.largest(sizes, number)
    labels, hovers = groups.labels(shown, renamed)
    places = groups.places(shown)
    measures = read_concentration(frame.assign(group=places)[places < len(shown)], by="group")
    ginis = measures.set_index("group")["gini"]
    curves = [
        _curve(frame[places == place], f"{label}: Gini {ginis[place]:.3f}", hover, pen)
        for place, (label, hover, pen) in enumerate(zip(labels, hovers, _style.PENS, strict=False))
    ]
    of = "all" if len(sizes) == len(shown) else f"{len(shown):,} of"
    noun = "collection" if by in ADDRESSES else _style.escaped(by.replace("_", " "))
    equality = _style.line(
        "equality: Gini 0",
        (_style.GREY, "solid"),
        width=1,
        x=[0, 100],
        y=[0, 100],
        hoverinfo="skip",
    )
    return _style.figure(
        [equality, *curves],
        _TITLE,
        subtitle=_style.with_hidden(f"{of} {counted(len(sizes), noun)}, most holders first", frame),
        x={"title": {"text": "share of holders, smallest first (%)"}, "range": [0, 100]},
        y={"title": {"text": "share of the amount held (%)"}, "range": [0, 101]},
        height=560,
    )


def _curve(rows: pd.DataFrame, name: str, hover: str, pen: tuple[str, str]) -> dict[str, Any]:
    amounts = sorted(rows["amount"].groupby(rows["wallet_id"]).sum())
    sums = np.add.accumulate(np.array([0, *amounts], dtype=object))
    places = np.unique(np.linspace(0, len(amounts), _POINTS).round().astype(np.int64))
    return _style.line(
        name,
        pen,
        x=(places / len(amounts) * 100).tolist(),
        y=[100 * int(sums[place]) / sums[-1] for place in places.tolist()],
        hovertemplate=f"<b>{hover}</b><br>the smallest %{{x:.4g}} % of"
        f" {counted(len(amounts), 'holder')}"
        "<br>hold %{y:.4g} % of the amount<extra></extra>",
    )


_OVERLAP_TITLE = "Common holders"
_MOST = 60


def overlap(
    holdings: FrameOrDb = None,
    *,
    top: SupportsIndex = 15,
    exclude: WalletIds = (),
    hidden: bool = False,
    names: _style.GroupLabels = None,
) -> go.Figure:
    """Draw a heatmap of the common holders of each pair of collections, most holders first.

    The shade is the Jaccard index of `frames.overlap`. Hover texts show the counts. The diagonal is
    empty. `top` is 1 to 60.
    """
    number, renamed = whole_number("top", top, _MOST), _style.checked_names(names)
    needs = ("wallet_id", "contract_address", "amount")
    frame = load_holdings(holdings, exclude, needs=needs, wants=("collection",), hidden=hidden)
    frame = frame[frame["contract_address"].notna()].reset_index(drop=True)
    if frame.empty:
        return _style.empty_figure(_OVERLAP_TITLE, _bars.no_holdings(holdings, frame))
    groups = _bars.grouped(frame, "contract_address")
    sizes = _bars.distinct(groups.codes, wallets=frame["wallet_id"])
    shown = groups.largest(sizes, number)
    addresses = [str(groups.values[group]) for group in shown]
    labels, full = groups.labels(shown, renamed)
    pairs = read_overlap(frame[groups.places(shown) < len(shown)])
    rows = [f"{number} {label}" for number, label in enumerate(labels, start=1)]
    # On a phone, adjacent numbers of many columns would touch.
    step = 1 + len(labels) // 11
    numbers = [str(place + 1) if place % step == 0 else "" for place in range(len(labels))]
    lines = 1 + max(label.count("<br>") for label in labels)
    return _style.figure(
        [_heatmap(pairs, addresses, full)],
        _OVERLAP_TITLE,
        subtitle=_style.with_hidden(
            f"{len(labels):,} of {counted(len(sizes), 'collection')}, most holders first\n"
            "shade: Jaccard index (0 to 1)",
            frame,
        ),
        x={**_style.numbered_axis(numbers), "tickangle": 0, "tickfont": {"size": 11}},
        y={**_style.numbered_axis(rows), "autorange": "reversed"},
        margin={"b": 76},
        height=200 + max(26, 18 * lines) * len(labels),
    )


def _heatmap(pairs: pd.DataFrame, addresses: list[str], full: Sequence[str]) -> dict[str, Any]:
    size = len(addresses)
    place = {contract_key(address): row for row, address in enumerate(addresses)}
    shares: list[list[float | None]] = [[0.0] * size for _ in range(size)]
    hovers = [[f"<b>{a}</b><br><b>{b}</b><br>no common holders" for b in full] for a in full]
    for pair in pairs.itertuples():
        a, b = place[contract_key(pair.contract_a)], place[contract_key(pair.contract_b)]
        shares[a][b] = shares[b][a] = pair.jaccard
        hovers[a][b] = hovers[b][a] = (
            f"<b>{full[a]}</b><br>{counted(pair.wallets_a, 'holder')}"
            f"<br><b>{full[b]}</b><br>{counted(pair.wallets_b, 'holder')}"
            f"<br>common holders: {pair.both:,}; Jaccard index {pair.jaccard:.4g}"
        )
    for row in range(size):
        shares[row][row] = None
    return {
        "type": "heatmap",
        "z": shares,
        "zmin": 0,
        "zmax": max((share for row in shares for share in row if share), default=1),
        "hovertext": hovers,
        "hovertemplate": _style.TEXT_ONLY,
        "hoverongaps": False,
        # Low values are transparent, to match light and dark pages.
        "colorscale": [[0.0, "rgba(0, 114, 178, 0.10)"], [1.0, "rgba(0, 114, 178, 1)"]],
        "colorbar": {
            "orientation": "h",
            "thickness": 12,
            "outlinewidth": 0,
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
        },
        "xgap": 1,
        "ygap": 1,
    }
