"""Lorenz curves: how unevenly collections are spread over their holders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import pandas as pd

from nftsync.charts._bars import distinct, grouped, no_holdings
from nftsync.charts._look import (
    DASHES,
    GREY,
    SERIES,
    SHADES,
    TEXT_ONLY,
    Names,
    counted,
    empty_figure,
    figure,
    given_names,
    labels_of,
    line,
    missing_of,
    number_of,
    numbered_axis,
)
from nftsync.errors import InputError
from nftsync.frames import concentration as measured
from nftsync.frames import overlap as measured_overlap
from nftsync.frames._columns import contract_key
from nftsync.frames._given import Given, given_holdings
from nftsync.frames._tables import WalletIds

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["concentration", "overlap"]


_TITLE = "Concentration of holdings"
_POINTS = 300


def concentration(
    holdings: Given = None,
    *,
    by: str = "contract_address",
    top: SupportsIndex = 5,
    exclude: WalletIds = (),
    names: Names = None,
) -> go.Figure:
    """Draw Lorenz curves of the groups with the most holders, and the line of equality.

    A curve shows which share of a group's amount its smallest holders have together, for every
    share of the holders; the further below the straight line, the more uneven. The legend has the
    Gini coefficient of `frames.concentration`, whose definitions hold here: a holder is a wallet,
    its amount the exact sum of what it holds of the group, unknown amounts left out.

    Args:
        holdings: a frame as `frames.holdings` returns it, or a database to read it from.
        by: the column that names the groups.
        top: how many groups, 1 to 6, those with the most holders.
        exclude: wallets to leave out; one id or several.
        names: what to call contracts or other groups, by address or value.

    Raises:
        InputError: an option or the frame cannot be used.
        NftsyncError: plotly is not installed.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    number, known = number_of(top, "top", len(SERIES)), given_names(names)
    if not isinstance(by, str):
        raise InputError(f"by={by!r} is not the name of a column")
    frame = given_holdings(holdings, exclude, needs=("wallet_id", "token_id", "amount", by))
    frame = frame[frame["amount"].notna()].reset_index(drop=True)
    if frame.empty:
        return empty_figure(_TITLE, no_holdings(holdings))
    groups = grouped(frame, by)
    holders = distinct(groups.codes, wallets=frame["wallet_id"])
    shown = groups.largest(holders, number)
    labels, hovers = groups.labels(shown, missing_of(by), known)
    places = groups.places(shown)
    gini = measured(frame.assign(group=places)[places < len(shown)], by="group")
    ginis = gini.set_index("group")["gini"]
    curves = [
        _curve(frame[places == place], f"{label}: Gini {ginis[place]:.3f}", hover, color, dash)
        for place, (label, hover, color, dash) in enumerate(
            zip(labels, hovers, SERIES, DASHES, strict=False)
        )
    ]
    of = f"{len(shown):,} of {len(holders):,}" if len(holders) > len(shown) else "all"
    equality = line(
        "equality: Gini 0", GREY, "solid", width=1, x=[0, 100], y=[0, 100], hoverinfo="skip"
    )
    inside = {"xref": "paper", "yref": "paper", "yanchor": "top"}
    return figure(
        [equality, *curves],
        _TITLE,
        subtitle=f"{of} groups by {by.replace('_', ' ')}, those with the most holders",
        x={"title": {"text": "share of the holders, the smallest first (%)"}, "range": [0, 100]},
        y={"title": {"text": "share of the amount they hold (%)"}, "range": [0, 101]},
        height=520,
        legend={"orientation": "v", "x": 0.02, "y": 0.98, **inside},
    )


def _curve(rows: pd.DataFrame, name: str, hover: str, color: str, dash: str) -> dict[str, Any]:
    amounts = sorted(rows["amount"].groupby(rows["wallet_id"]).sum())
    sums = np.add.accumulate(np.array([0, *amounts], dtype=object))
    places = np.unique(np.linspace(0, len(amounts), _POINTS).round().astype(np.int64))
    return line(
        name,
        color,
        dash,
        x=(places / len(amounts) * 100).tolist(),
        y=[100 * int(sums[place]) / sums[-1] for place in places.tolist()],
        hovertemplate=f"<b>{hover}</b><br>the smallest %{{x:.4g}} % of"
        f" {counted(len(amounts), 'holder')}<br>have %{{y:.4g}} % of the amount<extra></extra>",
    )


_OVERLAP_TITLE = "Holders in common"
_MOST = 60


def overlap(
    holdings: Given = None,
    *,
    top: SupportsIndex = 15,
    exclude: WalletIds = (),
    names: Names = None,
) -> go.Figure:
    """Draw how many holders each two collections have in common, as a heatmap.

    A field's shade is the Jaccard index of `frames.overlap`: wallets that hold NFTs of both, over
    wallets that hold one of either. Hovering shows the counts. A collection's field with itself
    stays empty.

    Args:
        holdings: a frame as `frames.holdings` returns it, or a database to read it from.
        top: how many collections, 1 to 60, those with the most holders.
        exclude: wallets to leave out; one id or several.
        names: what to call contracts, by address.

    Raises:
        InputError: an option or the frame cannot be used.
        NftsyncError: plotly is not installed.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    number, known = number_of(top, "top", _MOST), given_names(names)
    frame = given_holdings(holdings, exclude, needs=("wallet_id", "contract_address", "amount"))
    frame = frame[frame["contract_address"].notna()].reset_index(drop=True)
    if frame.empty:
        return empty_figure(_OVERLAP_TITLE, no_holdings(holdings))
    groups = grouped(frame, "contract_address")
    holders = distinct(groups.codes, wallets=frame["wallet_id"])
    shown = groups.largest(holders, number)
    addresses = [str(groups.values[group]) for group in shown]
    labels, full = labels_of(addresses, "", known)
    pairs = measured_overlap(frame[groups.places(shown) < len(shown)])
    shares, hovers = _fields(pairs, addresses, full)
    axis = numbered_axis(labels)
    # The slanted labels below need room of their own, or plotly takes it from the fields.
    side = max(240, 26 * len(labels)) + 6 * max(map(len, labels))
    return figure(
        [_heatmap(shares, hovers)],
        _OVERLAP_TITLE,
        subtitle=f"{len(labels):,} of {counted(len(holders), 'collection')}, most holders first",
        x={**axis, "tickangle": -45},
        y={**axis, "autorange": "reversed"},
        height=side + 120,
    )


def _fields(
    pairs: pd.DataFrame, addresses: list[str], full: Sequence[str]
) -> tuple[list[list[float | None]], list[list[str]]]:
    """The Jaccard index and the hover of each two, in rows; None of each with itself."""
    size = len(addresses)
    place = {contract_key(address): row for row, address in enumerate(addresses)}
    shares: list[list[float | None]] = [[0.0] * size for _ in range(size)]
    hovers = [[f"<b>{a}</b><br><b>{b}</b><br>no holders in common" for b in full] for a in full]
    for pair in pairs.itertuples():
        a, b = place[contract_key(pair.contract_a)], place[contract_key(pair.contract_b)]
        shares[a][b] = shares[b][a] = pair.jaccard
        hovers[a][b] = hovers[b][a] = (
            f"<b>{full[a]}</b><br>{counted(pair.wallets_a, 'holder')}"
            f"<br><b>{full[b]}</b><br>{counted(pair.wallets_b, 'holder')}"
            f"<br>{counted(pair.both, 'wallet')} hold both: Jaccard index {pair.jaccard:.4g}"
        )
    for row in range(size):
        shares[row][row] = None
    return shares, hovers


def _heatmap(shares: list[list[float | None]], hovers: list[list[str]]) -> dict[str, Any]:
    return {
        "type": "heatmap",
        "z": shares,
        "zmin": 0,
        "zmax": max((share for row in shares for share in row if share), default=1),
        "hovertext": hovers,
        "hovertemplate": TEXT_ONLY,
        "hoverongaps": False,
        "colorscale": [list(step) for step in SHADES],
        "colorbar": {
            "title": {"text": "Jaccard index (0 to 1)", "side": "right", "font": {"size": 13}},
            "thickness": 14,
            "outlinewidth": 0,
        },
        "xgap": 1,
        "ygap": 1,
    }
