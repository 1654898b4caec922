"""Charts over time from the change log: holdings, arrivals and departures."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from nftsync.charts import _style
from nftsync.charts._bars import Groups, grouped
from nftsync.columnar.filters import (
    DAY,
    Moment,
    floored,
    microseconds_of,
    one_of,
    stored_time,
    ticks_of,
    whole_number,
)
from nftsync.columnar.inputs import FrameOrDb, require_columns
from nftsync.columnar.source import Numbers, Store, reading
from nftsync.errors import InputError
from nftsync.frames import holdings_over_time as read_over_time
from nftsync.frames import wallets
from nftsync.store.wallets import WalletIds, given_wallets
from nftsync.text import counted

if TYPE_CHECKING:
    import plotly.graph_objects as go

#: Microseconds since 1970.
Ticks: TypeAlias = npt.NDArray[np.int64]


def sampled_times(ticks: Ticks, most: int) -> Ticks:
    """Choose at which times a step line is drawn.

    Args:
        ticks: when something changed, in microseconds, ascending; may repeat.
        most: how many times may be chosen, 2 or more.

    Returns:
        All distinct times if they are few enough. Else the first, and the last within each of
        equal spans: at these the line is exact.
    """
    distinct = np.unique(ticks)
    if len(distinct) <= most:
        return distinct
    since = (distinct - distinct[0]).astype(np.float64)
    spans = (since / since[-1] * (most - 2)).astype(np.int64)
    last = np.append(spans[1:] != spans[:-1], True)
    return np.union1d(distinct[:1], distinct[last])


def counts_at(ticks: Ticks, steps: npt.NDArray[np.int64], at: Ticks) -> npt.NDArray[np.int64]:
    """What a count has come to after all steps up to each of some times.

    Args:
        ticks: when each step was, ascending.
        steps: by how much the count changed then.
        at: the times.
    """
    sums = np.append(0, np.cumsum(steps))
    counts: npt.NDArray[np.int64] = sums[np.searchsorted(ticks, at, side="right")]
    return counts


def plotly_times(ticks: Ticks) -> list[str]:
    """Times as plotly takes them: its axes know no zones, so theirs is UTC."""
    texts: list[str] = np.datetime_as_string(ticks.view("M8[us]"), unit="us").tolist()
    return texts


def readable_time(time: str) -> str:
    """A time as `plotly_times` gives it, for a person."""
    return f"{time[:10]} {time[11:19]}"


def step_line(
    name: str, pen: tuple[str, str], times: Ticks, counts: Numbers, hover: str
) -> dict[str, Any]:
    """A line that keeps each count until the next time; name and hover are escaped."""
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
    """A column of times as microseconds since 1970; the least integer where one is missing."""
    ticks: Numbers = times.to_numpy("M8[us]").view(np.int64)
    return ticks


def _movements(over_time: pd.DataFrame) -> pd.DataFrame:
    """The rows in which a holding began or ended, not only an amount changed; `tick` is when."""
    moved = over_time[over_time[["arrived", "left", "first_seen"]].any(axis="columns")]
    return moved.assign(tick=microseconds(moved["at"]))


_NO_HISTORY = "No changes in this database yet; each nftsync sync adds what it finds."
_TITLE = "Holdings over time"
_MOST_MARKS = 100
_BY = ("contract_address", "creator_name", "wallet_group", "wallet_id")


def holdings_over_time(
    db: Store = None,
    *,
    by: str | None = None,
    top: SupportsIndex = 5,
    since: Moment | None = None,
    exclude: WalletIds = (),
    names: _style.Names = None,
) -> go.Figure:
    """Draw how the number of holdings grew and shrank, from the change log.

    A holding is a wallet with more than zero of a token. The line steps when a read found a change,
    maybe long after it happened. First reads of wallets are no growth: what they showed was held
    before, nobody knows since when, so it is drawn from the beginning, and the reads are marked.

    Args:
        db: a path, a connection, a `sqlite_utils.Database`, or None for the configured database.
        by: None for one line of all holdings; or a line each by `contract_address`,
            `creator_name`, `wallet_group` or `wallet_id`, as they are today.
        top: lines shown on their own, 1 to 5, those that end highest; the rest are one line.
        since: where the picture begins, of a day at its start; counts are of the whole log.
        exclude: wallets to leave out; one or several, by id or label.
        names: what to call contracts or wallets, by address or id; else as their collections and
            labels are.

    Raises:
        InputError: an option cannot be used.
        NftsyncError: plotly is not installed.
    """
    number, known = whole_number("top", top, len(_style.PENS) - 1), _style.checked_names(names)
    chosen = None if by is None else one_of(by, "by", _BY)
    begin = None if since is None else _tick(db, since)
    log = _movements(read_over_time(db, by, exclude=exclude))
    about = wallets(db)
    log["step"] = log["arrived"] - log["left"]
    if log.empty:
        return _style.empty_figure(_TITLE, _NO_HISTORY)
    if not log[["arrived", "left"]].any(axis=None):
        seen = counted(log["first_seen"].sum(), "holding")
        nothing = f"{seen} seen by first reads of wallets; nothing has come or gone since."
        return _style.empty_figure(_TITLE, nothing)
    at = log["tick"].to_numpy()
    ends = max(int(at[-1]), int(microseconds(about["synced_at"]).max()))
    begin = int(at[0]) if begin is None else begin
    if begin > ends:
        return _style.empty_figure(_TITLE, "Nothing was read since the given time.")
    inside = np.unique(at[(at > begin) & (at < ends)])
    drawn = sampled_times(inside, _style.MAX_POINTS // (number + 1 if by else 1) - 2)
    times = np.union1d([begin, ends], drawn)
    if chosen is None:
        counts = _holdings_at(log, times)
        traces = [step_line("holdings", _style.PENS[0], times, counts, "holdings")]
    else:
        labels = about.set_index("wallet_id")["label"].dropna() if chosen == "wallet_id" else {}
        traces = _lines(log, grouped(log, chosen), number, times, {**labels, **known})
    # With several lines there is no one line for the marks to stand on.
    traces += _first_reads(log, begin, on_line=chosen is None)
    thinned = f"; {len(times):,} times are drawn" if len(drawn) < len(inside) else ""
    return _style.figure(
        traces,
        _TITLE,
        subtitle=f"as reads found them; what first reads saw counts from the beginning{thinned}",
        x={"title": {"text": "time (UTC)"}, "type": "date"},
        y={"title": {"text": "holdings (wallet and token)"}, "rangemode": "tozero"},
        height=480,
    )


def _tick(db: Store, since: Moment) -> int:
    """A time that a caller gave, in microseconds since 1970."""
    with reading(db) as source:
        return ticks_of(stored_time(source, since, "start"))


def _holdings_at(log: pd.DataFrame, times: Ticks) -> npt.NDArray[np.int64]:
    """What was held at each of some times, with what first reads saw, whenever they did."""
    counts = counts_at(log["tick"].to_numpy(), log["step"].to_numpy(), times)
    return counts + int(log["first_seen"].sum())


def _lines(
    log: pd.DataFrame, groups: Groups, top: int, times: Ticks, known: dict[str, str]
) -> list[dict[str, Any]]:
    steps = (log["step"] + log["first_seen"]).groupby(groups.codes)
    # A group that holds nothing any more comes after those that do, by its history.
    sizes = pd.DataFrame({"final": steps.sum(), "seen": steps.size()})
    shown = groups.largest(sizes, top)
    pens = list(zip(*groups.labels(shown, known), _style.PENS, strict=False))
    if len(sizes) > len(shown):
        rest = counted(len(sizes) - len(shown), "other")
        pens.append((rest, rest, (_style.GREY, "solid")))
    places = groups.places(shown)
    return [
        step_line(label, pen, times, _holdings_at(log[places == place], times), hover)
        for place, (label, hover, pen) in enumerate(pens)
    ]


def _first_reads(log: pd.DataFrame, begin: int, *, on_line: bool) -> list[dict[str, Any]]:
    """Marks where wallets were read for the first time, few enough to tell apart."""
    first = log[(log["first_seen"] > 0) & (log["tick"] >= begin)]
    if first.empty:
        return []
    marks = sampled_times(first["tick"].to_numpy(), _MOST_MARKS)
    found = first.groupby(np.searchsorted(marks, first["tick"]))["first_seen"].sum()
    shown = plotly_times(marks)
    heights = _holdings_at(log, marks) * on_line
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "first reads (held before, nobody knows since when)",
            "x": shown,
            "y": heights.tolist(),
            "hovertext": [
                f"<b>{counted(count, 'holding')} seen by first reads of wallets</b>"
                f"<br>held since an unknown time<br>by {readable_time(time)} UTC"
                for count, time in zip(found, shown, strict=True)
            ],
            "hovertemplate": _style.TEXT_ONLY,
            "cliponaxis": False,
            "marker": {
                "symbol": "diamond-open",
                "size": 10,
                "color": _style.ORANGE,
                "line": {"width": 2},
            },
        }
    ]


_ARRIVALS_TITLE = "Arrivals and departures"
_UNITS = {"day": DAY, "hour": DAY // 24, "minute": 60_000_000, "second": 1_000_000}

#: Periods to choose from; the last for logs of centuries.
_SECONDS = (1, 5, 15, 60, 300, 900, 3_600, 10_800, 21_600)
_PERIODS = tuple(1_000_000 * each for each in _SECONDS) + tuple(
    DAY * each for each in (1, 7, 28, 364, 3_640)
)
_MOST_BARS_CHOSEN, _BARS_PER_TIME = 60, 4


def arrivals_and_departures(
    db: FrameOrDb = None,
    *,
    every: str | timedelta | None = None,
    since: Moment | None = None,
    exclude: WalletIds = (),
) -> go.Figure:
    """Draw how many holdings began and ended in each period.

    An arrival is a wallet that came to hold more than zero of a token, a departure one that came
    to hold none; a transfer between two known wallets is one of each. They count in the period in
    which a read found them. Left out are first reads of wallets, and amounts that did not become 0.

    Args:
        db: a database, of whose log every change counts, also what came and went again; or a
            frame as `frames.transfers` or `frames.diff` returns it. Of transfers, each known wallet
            that received counts as an arrival, and each that sent as a departure. Of differences,
            each row counts: more is an arrival, less a departure.
        every: the length of a period in UTC, such as `15m`, `6h`, `1d`, `7d` (from Monday) or a
            timedelta; None chooses one that fits: at most 60 bars, and fewer for few changes.
        since: only what was found at this time or later, of a day from its start on. Only with a
            database.
        exclude: wallets to leave out; one or several, by id or label. Only with a database.

    Raises:
        InputError: an option or the frame cannot be used, or `every` gives more than 2,000
            periods.
        NftsyncError: plotly is not installed.
    """
    given = None if every is None else microseconds_of(every)
    log = _read_movements(db, exclude, since)
    found = log[(log["arrived"] > 0) | (log["left"] > 0)]
    if found.empty:
        since_when = "the given time" if log.empty else "each wallet's first read"
        nothing = f"Nothing arrived or left since {since_when}."
        none_yet = log.empty and since is None and not isinstance(db, pd.DataFrame)
        return _style.empty_figure(_ARRIVALS_TITLE, _NO_HISTORY if none_yet else nothing)
    at = found["tick"].to_numpy()
    times = np.unique(at)
    first, last = int(times[0]), int(times[-1])
    period = given or _fitting_period(times)
    bins = _bins(first, last, period)
    if bins > _style.MAX_POINTS:
        raise InputError(
            f"every={every!r} makes {bins:,} periods of this log; give a longer one, or since="
        )
    start = floored(first, period)
    named, first_seen = _period_name(period), int(log["first_seen"].sum())
    seen = f"; {counted(first_seen, 'holding')} seen by first reads of wallets left out"
    arrived, left = found["arrived"].to_numpy(), found["left"].to_numpy()
    came = _bars("arrived", _style.BLUE, start, period, at, arrived, 1)
    went = _bars("left", _style.ORANGE, start, period, at, left, -1)
    return _style.figure(
        [came, went],
        _ARRIVALS_TITLE,
        subtitle=f"{counted(arrived.sum(), 'arrival')} and {counted(left.sum(), 'departure')}"
        + (seen if first_seen else ""),
        x={
            "title": {"text": f"time (UTC), one bar per {named}"},
            "type": "date",
            "range": plotly_times(start + np.array([-1, bins + 1]) * period),
            # Bars of days stand at noon, which nobody needs to read.
            **({"tickformat": "%-d %b<br>%Y"} if period >= DAY else {}),
        },
        y={"title": {"text": f"holdings per {named}"}},
        barmode="relative",
    )


def _read_movements(db: FrameOrDb, exclude: WalletIds, since: Moment | None) -> pd.DataFrame:
    """What arrived, left and was first seen at which times: of a comparison, or of the log."""
    if not isinstance(db, pd.DataFrame):
        return _movements(read_over_time(db, start=since, exclude=exclude))
    if since is not None or given_wallets(exclude):
        raise InputError(
            "since= and exclude= need a database; filter in frames.diff or frames.transfers instead"
        )
    if {"from_wallet_id", "to_wallet_id"} <= set(db.columns):
        require_columns(db, ("observed_at",), "frames.transfers")
        sides = {"arrived": db["to_wallet_id"].notna(), "left": db["from_wallet_id"].notna()}
        table = pd.DataFrame(sides).astype(int)
        return _movements(table.assign(at=db["observed_at"], first_seen=0))
    require_columns(db, ("kind", "before", "after", "changed_at"), "frames.diff")
    # Where an amount is no number, nobody can tell whether it grew.
    known = (db["kind"] == "changed") & db["before"].notna() & db["after"].notna()
    grew = known & (db["after"].where(known, 0) > db["before"].where(known, 0))
    kinds = {
        "arrived": (db["kind"] == "arrived") | grew,
        "left": (db["kind"] == "left") | (known & ~grew),
        "first_seen": db["kind"] == "first_seen",
    }
    return _movements(pd.DataFrame(kinds).astype(int).assign(at=db["changed_at"]))


def _fitting_period(times: Ticks) -> int:
    """A period for some distinct times: a day for one, else little shorter than they are apart."""
    if len(times) == 1:
        return DAY
    most = min(_MOST_BARS_CHOSEN, _BARS_PER_TIME * len(times))
    few = (one for one in _PERIODS if _bins(int(times[0]), int(times[-1]), one) <= most)
    return next(few, _PERIODS[-1])


def _bins(first: int, last: int, period: int) -> int:
    return (floored(last, period) - floored(first, period)) // period + 1


def _bars(
    name: str, color: str, start: int, period: int, at: Ticks, each: Numbers, sign: int
) -> dict[str, Any]:
    counts = np.bincount((at - start) // period, each).astype(np.int64)
    some = np.flatnonzero(counts)  # empty periods have no bar
    counts = counts[some]
    begins = start + some * period
    return {
        "type": "bar",
        "name": name,
        "x": plotly_times(begins + period // 2),
        "y": (counts * sign).tolist(),
        "width": [0.9 * period / 1_000] * len(some),
        "hovertext": [
            f"<b>{counted(count, 'holding')} {name}</b>"
            f"<br>{readable_time(begin)} to {readable_time(end)} UTC"
            for count, begin, end in zip(
                counts.tolist(), plotly_times(begins), plotly_times(begins + period), strict=True
            )
        ],
        "hovertemplate": _style.TEXT_ONLY,
        "marker": {"color": color},
    }


def _period_name(period: int) -> str:
    for name, size in _UNITS.items():
        if period % size == 0:
            return name if period == size else counted(period // size, name)
    return f"{period / _UNITS['second']:g} seconds"
