"""Lorenz curves: how unevenly collections are spread over their holders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import pandas as pd

from nftsync.charts._bars import no_holdings
from nftsync.charts._groups import codes_of, grouped, largest
from nftsync.charts._labels import Names, counted, given_names, name_group, tell_apart, without
from nftsync.charts._look import DASHES, GREY, SERIES, empty_figure, figure
from nftsync.charts._options import number_of
from nftsync.errors import InputError
from nftsync.frames import concentration as measured
from nftsync.frames._given import Given, given_holdings
from nftsync.frames._grouping import distinct_in_each, sums_in_each
from nftsync.frames._tables import WalletIds

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["concentration"]

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
    holders = distinct_in_each(groups.codes, codes_of(frame, "wallet_id"), len(groups))
    shown = largest((holders,), groups.values, number)
    labels, hovers = zip(
        *(name_group(groups.values[code], without(by), known) for code in shown), strict=True
    )
    curves = [
        _curve(frame[groups.codes == code], label, hover, color, dash)
        for code, label, hover, color, dash in zip(
            shown,
            tell_apart(labels, [str(groups.values[code] or "") for code in shown]),
            hovers,
            SERIES,
            DASHES,
            strict=False,
        )
    ]
    several = int(np.count_nonzero(holders))
    of = f"{len(shown):,} of {several:,} groups" if several > len(shown) else "all groups"
    return figure(
        [_equality(), *curves],
        _TITLE,
        subtitle=f"{of} by {by.replace('_', ' ')}, those with the most holders",
        x={"title": {"text": "share of the holders, the smallest first (%)"}, "range": [0, 100]},
        y={"title": {"text": "share of the amount they hold (%)"}, "range": [0, 101]},
        height=520,
        legend={
            "orientation": "v",
            "x": 0.02,
            "xref": "paper",
            "y": 0.98,
            "yref": "paper",
            "yanchor": "top",
        },
    )


def _curve(rows: pd.DataFrame, label: str, hover: str, color: str, dash: str) -> dict[str, Any]:
    (of,) = measured(rows.assign(group=0), by="group").to_dict("records")
    wallet = codes_of(rows, "wallet_id")
    amounts = sorted(sums_in_each(wallet, rows["amount"].to_numpy(), int(wallet.max()) + 1))
    sums = np.add.accumulate(np.array([0, *amounts], dtype=object))
    total = sums[-1]
    holders = counted(len(amounts), "holder")
    places = np.unique(np.linspace(0, len(amounts), _POINTS).round().astype(np.int64))
    shares = [100 * int(sums[place]) / total for place in places.tolist()]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{label}: Gini {of['gini']:.3f}",
        "x": (places / len(amounts) * 100).tolist(),
        "y": shares,
        "hovertemplate": f"<b>{hover}</b><br>the smallest %{{x:.4g}} % of {holders}"
        "<br>have %{y:.4g} % of the amount<extra></extra>",
        "line": {"color": color, "dash": dash, "width": 2},
    }


def _equality() -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "equality: Gini 0",
        "x": [0, 100],
        "y": [0, 100],
        "hoverinfo": "skip",
        "line": {"color": GREY, "width": 1},
    }
