"""How many holdings were known of, over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import pandas as pd

from nftsync.charts._groups import Groups, folded, grouped, largest
from nftsync.charts._labels import Names, counted, given_names, name_group, tell_apart, without
from nftsync.charts._log import Movements, microseconds, movements, tick_of
from nftsync.charts._look import BLUE, DASHES, GREY, ORANGE, SERIES, TEXT_ONLY, empty_figure, figure
from nftsync.charts._options import MOST_POINTS, choice, number_of
from nftsync.charts._steps import (
    Ticks,
    distinct_times,
    plotted,
    shown_times,
    standing,
    step_line,
    to_the_second,
)
from nftsync.frames import tokens, wallets
from nftsync.frames._columns import Moment
from nftsync.frames._grouping import distinct_in_each
from nftsync.frames._source import Numbers, Store
from nftsync.frames._tables import WalletIds

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["NO_HISTORY", "holdings_over_time"]

NO_HISTORY = "No changes in this database yet; each nftsync sync adds what it finds."

_TITLE = "Holdings over time"
_MOST_MARKS = 100
_SOURCES: dict[str, Callable[[Store], pd.DataFrame]] = {
    "contract_address": tokens,
    "creator_name": tokens,
    "wallet_group": wallets,
    "wallet_id": wallets,
}


def holdings_over_time(
    db: Store = None,
    *,
    by: str | None = None,
    top: SupportsIndex = 5,
    since: Moment | None = None,
    exclude: WalletIds = (),
    names: Names = None,
) -> go.Figure:
    """Draw how many holdings were known of at each time, from the change log.

    A holding is a wallet with more than zero of a token; how much more doesn't count. The line
    steps when a read found a change, which may be long after it happened. A wallet's first read
    shows all that it held before, so these times are marked: what a line gains there was known
    from then on, not bought then. The lines end at the last read of a wallet or the last change.

    Args:
        db: a path, a connection, a `sqlite_utils.Database`, or None for the configured database.
        by: None for one line of all holdings; or a line each by `contract_address`,
            `creator_name`, `wallet_group` or `wallet_id`, as they are today.
        top: lines shown on their own, 1 to 5, those that end highest; the rest are one line.
        since: where the picture begins; the counts are those of the whole log. Text, a date (its
            end) or a datetime.
        exclude: wallets to leave out; one id or several.
        names: what to call contracts or wallets, by address or id.

    Raises:
        InputError: an option cannot be used.
        NftsyncError: plotly is not installed.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    number, known = number_of(top, "top", len(SERIES) - 1), given_names(names)
    chosen = None if by is None else choice(by, "by", _SOURCES)
    begin = None if since is None else tick_of(since)
    log = movements(db, exclude)
    about = wallets(db)
    if not len(log.at):
        return empty_figure(_TITLE, NO_HISTORY)
    ends = max(int(log.at[-1]), int(microseconds(about["synced_at"]).max()))
    if chosen == "wallet_id":
        known = dict(about.set_index("wallet_id")["label"].dropna()) | known
    begin = int(log.at[0]) if begin is None else begin
    if begin > ends:
        return empty_figure(_TITLE, "Nothing was read since the given time.")
    times, thinned = _times(log.at, begin, ends, MOST_POINTS // (number + 1 if by else 1))
    if chosen is None:
        counts = standing(log.at, log.step, times)
        traces = [step_line("holdings", BLUE, "solid", times, counts, "holdings")]
    else:
        traces = _lines(log, _groups_of(db, log, chosen), chosen, number, times, known)
    # With several lines there is no one line for the marks to stand on.
    traces += _first_reads(log, begin, on_line=chosen is None)
    return figure(
        traces,
        _TITLE,
        subtitle="as reads found them" + (f"; {len(times):,} times are drawn" if thinned else ""),
        x={"title": {"text": "time (UTC)"}, "type": "date"},
        y={"title": {"text": "holdings (wallet and token)"}, "rangemode": "tozero"},
        height=480,
    )


def _times(at: Ticks, begin: int, ends: int, most: int) -> tuple[Ticks, bool]:
    """Choose at which times lines are drawn, and tell whether some had to be left out."""
    inside = distinct_times(at[(at > begin) & (at < ends)])
    shown = shown_times(inside, most - 2)
    return np.union1d(np.array([begin, ends]), shown), len(shown) < len(inside)


def _groups_of(db: Store, log: Movements, by: str) -> Groups:
    """Group the rows of the log by what is known of their wallet or token today."""
    about = _SOURCES[by](db)
    if "wallet_id" in about.columns:
        place, rows = pd.Index(about["wallet_id"]).get_indexer(log.wallet_ids), log.wallet
    else:
        place, rows = pd.Index(about["token_id"]).get_indexer(log.token_ids), log.token
    groups = grouped(about, by)
    codes = np.append(groups.codes, len(groups) - 1)[place]
    return Groups(codes[rows], groups.values)


def _lines(
    log: Movements, groups: Groups, by: str, top: int, times: Ticks, known: dict[str, str]
) -> list[dict[str, Any]]:
    final = np.bincount(groups.codes, log.step, len(groups)).astype(np.int64)
    seen = np.bincount(groups.codes, minlength=len(groups))
    # A group that holds nothing any more comes after those that do, by its history.
    shown = largest((final + (seen > 0), seen), groups.values, top)
    labels, hovers = zip(
        *(name_group(groups.values[code], without(by), known) for code in shown), strict=True
    )
    ids = [str(groups.values[code] or "") for code in shown]
    codes = folded(groups.codes, shown, len(groups))
    lines = [
        step_line(label, color, dash, times, _count(log, codes == place, times), hover)
        for place, (label, hover, color, dash) in enumerate(
            zip(tell_apart(labels, ids), hovers, SERIES, DASHES, strict=False)
        )
    ]
    rest = int(np.count_nonzero(seen)) - len(shown)
    if rest:
        name = counted(rest, "other")
        counts = _count(log, codes == len(shown), times)
        lines.append(step_line(name, GREY, "solid", times, counts, name))
    return lines


def _count(log: Movements, rows: Any, times: Ticks) -> Numbers:
    return standing(log.at[rows], log.step[rows], times)


def _first_reads(log: Movements, begin: int, *, on_line: bool) -> list[dict[str, Any]]:
    """Marks where wallets were read for the first time, few enough to tell apart."""
    rows = log.first_read & (log.at >= begin)
    if not rows.any():
        return []
    at, wallet, step = log.at[rows], log.wallet[rows], log.step[rows]
    marks = shown_times(at, _MOST_MARKS)
    of = np.searchsorted(marks, at)
    found = np.bincount(of, step, len(marks)).astype(np.int64)
    readers = distinct_in_each(of, wallet, len(marks))
    shown = plotted(marks)
    heights = standing(log.at, log.step, marks) if on_line else np.zeros(len(marks), np.int64)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "first reads (held before, nobody knows since when)",
            "x": shown,
            "y": heights.tolist(),
            "hovertext": [
                f"<b>{counted(wallets, 'wallet')} read for the first time</b>"
                f"<br>{counted(count, 'holding')} seen, held since an unknown time"
                f"<br>by {to_the_second(time)}"
                for wallets, count, time in zip(
                    readers.tolist(), found.tolist(), shown, strict=True
                )
            ],
            "hovertemplate": TEXT_ONLY,
            "cliponaxis": False,
            "marker": {
                "symbol": "diamond-open",
                "size": 10,
                "color": ORANGE,
                "line": {"width": 2, "color": ORANGE},
            },
        }
    ]
