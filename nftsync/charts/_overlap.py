"""Which collections have holders in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import pandas as pd

from nftsync.charts._bars import no_holdings
from nftsync.charts._groups import codes_of, folded, grouped, largest
from nftsync.charts._labels import Names, counted, given_names, name_group, tell_apart
from nftsync.charts._look import SHADES, TEXT_ONLY, empty_figure, figure
from nftsync.charts._options import number_of
from nftsync.frames import overlap as measured
from nftsync.frames._contracts import contract_key
from nftsync.frames._given import Given, given_holdings
from nftsync.frames._grouping import distinct_in_each
from nftsync.frames._tables import WalletIds

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["overlap"]

_TITLE = "Holders in common"
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
        return empty_figure(_TITLE, no_holdings(holdings))
    groups = grouped(frame, "contract_address")
    holders = distinct_in_each(groups.codes, codes_of(frame, "wallet_id"), len(groups))
    shown = largest((holders,), groups.values, number)
    addresses = [str(groups.values[code]) for code in shown]
    short, full = zip(*(name_group(one, "", known) for one in addresses), strict=True)
    labels = tell_apart(short, addresses)
    rows = folded(groups.codes, shown, len(groups)) < len(shown)
    shares, hovers = _fields(measured(frame[rows]), addresses, full)
    axis = {
        "tickmode": "array",
        "tickvals": list(range(len(labels))),
        "ticktext": labels,
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
    }
    several = int(np.count_nonzero(holders))
    # The slanted labels below need room of their own, or plotly takes it from the fields.
    side = max(240, 26 * len(labels)) + 6 * max(map(len, short))
    return figure(
        [_heatmap(shares, hovers)],
        _TITLE,
        subtitle=f"{len(labels):,} of {counted(several, 'collection')}, most holders first",
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
