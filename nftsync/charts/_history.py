"""Charts over time from the change feed: holdings, arrivals and departures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import pandas as pd

from nftsync.charts import _style
from nftsync.charts._bars import Groups, grouped, names_in, refuse_filters
from nftsync.columnar.filters import Moment, stored_time, ticks_of, whole_number
from nftsync.columnar.hidden import hidden_note
from nftsync.columnar.inputs import FrameOrDb, require_columns
from nftsync.columnar.periods import (
    DAY,
    Every,
    fitting_period,
    period_edges,
    period_name,
    period_of,
)
from nftsync.columnar.source import Numbers, Store, reading
from nftsync.frames import holdings_over_time as read_over_time
from nftsync.frames import wallets
from nftsync.store.wallets import WalletIds
from nftsync.text import counted

if TYPE_CHECKING:
    import plotly.graph_objects as go


def sampled_times(ticks: Numbers, most: int) -> Numbers:
    """Return the times, or if they are too many, the first and the last of each of equal spans."""
    distinct = np.unique(ticks)
    if len(distinct) <= most:
        return distinct
    since = (distinct - distinct[0]).astype(np.float64)
    spans = (since / since[-1] * (most - 2)).astype(np.int64)
    last = np.append(spans[1:] != spans[:-1], True)
    return np.union1d(distinct[:1], distinct[last])


def counts_at(ticks: Numbers, steps: Numbers, at: Numbers) -> Numbers:
    """Return a count at some times, from its steps and their ascending times."""
    sums = np.append(0, np.cumsum(steps))
    counts: Numbers = sums[np.searchsorted(ticks, at, side="right")]
    return counts


def plotly_times(ticks: Numbers) -> list[str]:
    """Return times as text in UTC; plotly's axes have no time zones."""
    texts: list[str] = np.datetime_as_string(ticks.view("M8[us]"), unit="us").tolist()
    return texts


def readable_time(time: str) -> str:
    return f"{time[:10]} {time[11:19]}"


def step_line(
    name: str, pen: tuple[str, str], times: Numbers, counts: Numbers, hover: str
) -> dict[str, Any]:
    """Return a line that keeps each count until the next time; name and hover are escaped."""
    return _style.line(
        name,
        pen,
        shape="hv",
        x=plotly_times(times),
        y=counts.tolist(),
        hovertemplate=f"<b>{hover}</b>: %{{y:,}}<br>from %{{x|%Y-%m-%d %H:%M:%S}} UTC on"
        "<extra></extra>",
    )


def microseconds(times: pd.Series) -> Numbers:
    """Return times as microseconds since 1970; the minimum integer if missing."""
    ticks: Numbers = times.to_numpy("M8[us]").view(np.int64)
    return ticks


def _movements(over_time: pd.DataFrame) -> pd.DataFrame:
    moved = over_time[over_time[["arrived", "left", "first_seen"]].any(axis="columns")]
    # The rows of several databases are below each other.
    return moved.assign(tick=microseconds(moved["at"])).sort_values("tick", kind="stable")


_NO_HISTORY = "No changes in this database yet; nftsync sync records them."
_TITLE = "Holdings over time"
_MOST_MARKS = 100
#: Points of a line with a chosen period.
_POINTS_CHOSEN = 400


def holdings_over_time(
    db: Store = None,
    *,
    by: str | None = None,
    every: Every = None,
    freq: Every = None,
    top: SupportsIndex = 5,
    since: Moment | None = None,
    exclude: WalletIds = (),
    hidden: bool = False,
    names: _style.GroupLabels = None,
) -> go.Figure:
    """Draw the number of holdings over time, from the change feed.

    A holding is a wallet with more than zero of a token. The line shows the count at the end of
    each period, as known from reads. It includes initial holdings from the beginning, because their
    start date is unknown, and marks the first reads.

    - `by`: a line per value of this column of `frames.holdings_over_time`, such as `collection` or
      `wallet_group`, as of now. None: one line.
    - `every` (or `freq`): the period, as in `frames.holdings_over_time`; None chooses one of an
      hour or more.
    - `top`: lines with the highest final counts, 1 to 5; one more line combines the others.
    - `since`: the start of the time axis; a day is its start. Counts include earlier changes.
    """
    number, renamed = whole_number("top", top, len(_style.PENS) - 1), _style.checked_names(names)
    chosen = period_of(every, freq)
    begin = None if since is None else _tick(db, since)
    log = _movements(read_over_time(db, by, exclude=exclude, hidden=hidden))
    about = wallets(db)
    log["step"] = log["arrived"] - log["left"]
    if log.empty:
        return _style.empty_figure(_TITLE, hidden_note(log) or _NO_HISTORY)
    if not log[["arrived", "left"]].any(axis=None):
        initial = counted(log["first_seen"].sum(), "initial holding")
        message = f"{initial}; no arrivals or departures since the first reads of wallets."
        return _style.empty_figure(_TITLE, message)
    at = log["tick"].to_numpy()
    ends = max(int(at[-1]), int(microseconds(about["synced_at"]).max()))
    begin = int(at[0]) if begin is None else begin
    if begin > ends:
        return _style.empty_figure(_TITLE, "No reads since the given time.")
    period = chosen or fitting_period(begin, ends, _POINTS_CHOSEN)
    edges = period_edges(period, begin, ends, _style.MAX_POINTS)
    times = np.append(begin, np.minimum(edges[1:] - 1, ends))
    if by is None:
        counts = _holdings_at(log, times)
        traces = [step_line("holdings", _style.PENS[0], times, counts, "holdings")]
    else:
        labels = names_in(about, "wallet_id", "label") if by == "wallet_id" else {}
        traces = _lines(log, grouped(log, by), number, times, {**labels, **renamed})
    # Marks need a single line; with several lines, they are on the axis.
    traces += _first_reads(log, times, on_line=by is None)
    return _style.figure(
        traces,
        _TITLE,
        subtitle=_style.with_hidden(
            f"at the end of each {period_name(period)}, as observed;"
            " initial holdings count from the beginning",
            log,
        ),
        x=_style.time_axis(),
        y={"title": {"text": "holdings (wallet and token)"}, "rangemode": "tozero"},
        height=480,
    )


def _tick(db: Store, since: Moment) -> int:
    with reading(db) as source:
        return ticks_of(stored_time(source, since, "start"))


def _holdings_at(log: pd.DataFrame, times: Numbers) -> Numbers:
    counts = counts_at(log["tick"].to_numpy(), log["step"].to_numpy(), times)
    return counts + int(log["first_seen"].sum())


def _lines(
    log: pd.DataFrame, groups: Groups, top: int, times: Numbers, names: dict[str, str]
) -> list[dict[str, Any]]:
    steps = (log["step"] + log["first_seen"]).groupby(groups.codes)
    # Groups without current holdings come last, by the number of changes.
    sizes = pd.DataFrame({"final": steps.sum(), "seen": steps.size()})
    shown = groups.largest(sizes, top)
    pens = list(zip(*groups.labels(shown, names), _style.PENS, strict=False))
    if len(sizes) > len(shown):
        rest = counted(len(sizes) - len(shown), "other")
        pens.append((rest, rest, (_style.GREY, "solid")))
    places = groups.places(shown)
    return [
        step_line(label, pen, times, _holdings_at(log[places == place], times), hover)
        for place, (label, hover, pen) in enumerate(pens)
    ]


def _first_reads(log: pd.DataFrame, times: Numbers, *, on_line: bool) -> list[dict[str, Any]]:
    first = log[(log["first_seen"] > 0) & (log["tick"] >= times[0])]
    if first.empty:
        return []
    # A mark per period, at the last of its first reads: the later state has their holdings.
    period = np.searchsorted(times[1:], first["tick"])
    lasts = sampled_times(period, _MOST_MARKS)
    groups = first.groupby(np.searchsorted(lasts, period))
    counts, marks = groups["first_seen"].sum(), groups["tick"].max().to_numpy()
    on = times[np.searchsorted(times, marks, side="right") - 1]
    shown = plotly_times(marks)
    hovers = [
        f"<b>{counted(count, 'initial holding')}</b><br>start date unknown"
        f"<br>first reads of wallets by {readable_time(time)} UTC"
        for count, time in zip(counts, shown, strict=True)
    ]
    diamond = {"symbol": "diamond-open", "size": 10, "color": _style.ORANGE, "line": {"width": 2}}
    return [
        _style.hovered(
            "scatter",
            "initial holdings (start date unknown)",
            shown,
            (_holdings_at(log, on) * on_line).tolist(),
            hovers,
            mode="markers",
            cliponaxis=False,
            marker=diamond,
        )
    ]


#: What arrivals and departures are, by a column of the frame; by default, of a database.
_COUNTED = {"observed_at": "known sides of movements", "changed_at": "rows that rose or fell"}
_ARRIVALS_TITLE = "Arrivals and departures"
_MOST_BARS_CHOSEN, _BARS_PER_TIME = 60, 4


def arrivals_and_departures(
    db: FrameOrDb = None,
    *,
    every: Every = None,
    freq: Every = None,
    since: Moment | None = None,
    exclude: WalletIds = (),
    hidden: bool = False,
) -> go.Figure:
    """Draw the number of holdings that began and ended in each period.

    An arrival is a wallet whose amount of a token rose above zero; a departure is one whose amount
    fell to zero. A transfer between two known wallets is one of each. They count in the period of
    the read that showed them. First reads and other changes of amounts do not count.

    From a database, every change counts, even if later reversed. In a frame of `frames.transfers`,
    known receivers are arrivals and known senders departures; in one of `frames.diff`, increases
    and decreases.

    - `every` (or `freq`): the period, as in `frames.holdings_over_time`, for at most 2,000 bars;
      None chooses one of an hour or more, for at most 60 bars, and fewer for few changes.
    - `since`: the first time to include; a day is its start.

    For a frame, leave out `since`, `exclude` and `hidden`.
    """
    chosen = period_of(every, freq)
    log = _read_movements(db, exclude, since, hidden=hidden)
    moves = log[(log["arrived"] > 0) | (log["left"] > 0)]
    if moves.empty:
        start_name = "the given time" if log.empty else "each wallet's first read"
        message = f"No arrivals or departures since {start_name}."
        none_yet = log.empty and since is None and not isinstance(db, pd.DataFrame)
        return _style.empty_figure(
            _ARRIVALS_TITLE, hidden_note(log) or (_NO_HISTORY if none_yet else message)
        )
    at = moves["tick"].to_numpy()
    times = np.unique(at)
    first, last = int(times[0]), int(times[-1])
    most = min(_MOST_BARS_CHOSEN, _BARS_PER_TIME * len(times))
    period = chosen or fitting_period(first, last, most)
    edges = period_edges(period, first, last, _style.MAX_POINTS)
    name, first_seen = period_name(period), int(log["first_seen"].sum())
    columns = db.columns if isinstance(db, pd.DataFrame) else ()
    counts = next(
        (_COUNTED[name] for name in columns if name in _COUNTED), "holdings begun or ended"
    )
    excluded = f"; {counted(first_seen, 'initial holding')} left out"
    arrived, left = moves["arrived"].to_numpy(), moves["left"].to_numpy()
    arrivals = _bars("arrived", _style.BLUE, edges, at, arrived, 1)
    departures = _bars("left", _style.ORANGE, edges, at, left, -1)
    margin = np.array([-1, 1]) * (edges[1] - edges[0])
    return _style.figure(
        [arrivals, departures],
        _ARRIVALS_TITLE,
        subtitle=_style.with_hidden(
            f"{counted(arrived.sum(), 'arrival')} and {counted(left.sum(), 'departure')} ({counts})"
            + (excluded if first_seen else ""),
            *((db, "movement") if isinstance(db, pd.DataFrame) else (log,)),
        ),
        x=_style.time_axis(
            f"time (UTC), one bar per {name}",
            range=plotly_times(edges[[0, -1]] + margin),
            # The bar of a day is centered at noon, a time without meaning.
            **({"tickformat": "%-d %b<br>%Y"} if margin[1] >= DAY else {}),
        ),
        y={"title": {"text": f"holdings per {name}"}},
        barmode="relative",
    )


def _read_movements(
    db: FrameOrDb, exclude: WalletIds, since: Moment | None, *, hidden: bool
) -> pd.DataFrame:
    if not isinstance(db, pd.DataFrame):
        return _movements(read_over_time(db, start=since, exclude=exclude, hidden=hidden))
    refuse_filters("since", since, exclude, "frames.diff or frames.transfers", hidden=hidden)
    if {"from_wallet_id", "to_wallet_id"} <= set(db.columns):
        require_columns(db, ("observed_at",), "frames.transfers")
        sides = {"arrived": db["to_wallet_id"].notna(), "left": db["from_wallet_id"].notna()}
        table = pd.DataFrame(sides).astype(int)
        return _movements(table.assign(at=db["observed_at"], first_seen=0))
    require_columns(db, ("kind", "before", "after", "changed_at"), "frames.diff")
    # Without both amounts, the direction is unknown.
    sized = (db["kind"] == "changed") & db["before"].notna() & db["after"].notna()
    grew = sized & (db["after"].where(sized, 0) > db["before"].where(sized, 0))
    kinds = {
        "arrived": (db["kind"] == "arrived") | grew,
        "left": (db["kind"] == "left") | (sized & ~grew),
        "first_seen": db["kind"] == "first_seen",
    }
    return _movements(pd.DataFrame(kinds).astype(int).assign(at=db["changed_at"]))


def _bars(
    name: str, color: str, edges: Numbers, at: Numbers, moves: Numbers, sign: int
) -> dict[str, Any]:
    counts = np.bincount(np.searchsorted(edges, at, side="right") - 1, moves).astype(np.int64)
    some = np.flatnonzero(counts)  # empty periods have no bar
    counts, begins, ends = counts[some], edges[some], edges[some + 1]
    spans = zip(plotly_times(begins), plotly_times(ends), strict=True)
    hovers = [
        f"<b>{counted(count, 'holding')} {name}</b>"
        f"<br>{readable_time(begin)} to {readable_time(end)} UTC"
        for count, (begin, end) in zip(counts.tolist(), spans, strict=True)
    ]
    middles, heights = plotly_times((begins + ends) // 2), (counts * sign).tolist()
    look = {"width": ((ends - begins) * 0.9 / 1_000).tolist(), "marker": {"color": color}}
    return _style.hovered("bar", name, middles, heights, hovers, **look)
