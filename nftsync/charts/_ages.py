"""How long holdings have been there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from nftsync.charts._bars import no_holdings
from nftsync.charts._labels import counted
from nftsync.charts._look import BLUE, ORANGE, TEXT_ONLY, empty_figure, figure
from nftsync.errors import InputError
from nftsync.frames import holding_ages as read_ages
from nftsync.frames._columns import Moment
from nftsync.frames._given import need_columns
from nftsync.frames._source import Store
from nftsync.frames._tables import WalletIds, wallet_ids

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["holding_ages"]

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
