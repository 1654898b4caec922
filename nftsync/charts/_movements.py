"""What arrived and what left, by period."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from nftsync.charts._history import NO_HISTORY, Movements, movements, plotted
from nftsync.charts._look import BLUE, MOST_POINTS, ORANGE, TEXT_ONLY, counted, empty_figure, figure
from nftsync.errors import InputError
from nftsync.frames._columns import Moment
from nftsync.frames._source import Numbers, Store
from nftsync.frames._tables import WalletIds
from nftsync.times import parse_duration

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["arrivals_and_departures"]

_TITLE = "Arrivals and departures"
_NOTHING_SINCE = "Nothing arrived or left since the given time."
_SECOND = 1_000_000
_MINUTE, _HOUR, _DAY = 60 * _SECOND, 3_600 * _SECOND, 86_400 * _SECOND

#: Periods to choose from; the last for logs of centuries.
_PERIODS = (
    *(_SECOND * one for one in (1, 5, 15)),
    *(_MINUTE * one for one in (1, 5, 15)),
    *(_HOUR * one for one in (1, 3, 6)),
    *(_DAY * one for one in (1, 7, 28, 364, 3_640)),
)
_SHORTEST, _LONGEST = timedelta(seconds=1), timedelta(days=36_525)
_MOST_BARS_CHOSEN = 60

#: How much of its period a bar is wide.
_OF_PERIOD = 0.9

#: 1970 began on a Thursday; weeks begin on Mondays.
_MONDAY = 4 * _DAY
_CAPITAL_DAYS = re.compile(r"[0-9]+D", re.ASCII)


def arrivals_and_departures(
    db: Store = None,
    *,
    every: str | timedelta | None = None,
    since: Moment | None = None,
    exclude: WalletIds = (),
) -> go.Figure:
    """Draw how many holdings began and ended in each period, from the change log.

    An arrival is a wallet that came to hold more than zero of a token, a departure one that came
    to hold none; a transfer between two known wallets is one of each. They count in the period in
    which a read found them. Left out are the first reads of wallets, which show what was held
    before, and amounts that changed without becoming zero.

    Args:
        db: a path, a connection, a `sqlite_utils.Database`, or None for the configured database.
        every: the length of a period in UTC: text such as `15m`, `6h`, `1d`, `7d` (weeks begin on
            Mondays) or a timedelta; None chooses one that gives at most 60 bars.
        since: only what was found at this time or later. Text, a date (its end) or a datetime.
        exclude: wallets to leave out; one id or several.

    Raises:
        InputError: an option cannot be used, or gives more than 2,000 periods.
        NftsyncError: plotly is not installed.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    given = None if every is None else _period(every)
    log = movements(db, exclude, since)
    if not len(log.at):
        return empty_figure(_TITLE, NO_HISTORY if since is None else _NOTHING_SINCE)
    first_reads = int(np.count_nonzero(log.first_read))
    left_out = f"{counted(first_reads, 'holding')} seen by first reads of wallets left out"
    if log.first_read.all():
        return empty_figure(_TITLE, "Nothing arrived or left since each wallet's first read.")
    first, last = int(log.at[0]), int(log.at[-1])
    period = given or next(
        (one for one in _PERIODS if _bins(first, last, one) <= _MOST_BARS_CHOSEN), _PERIODS[-1]
    )
    bins = _bins(first, last, period)
    if bins > MOST_POINTS:
        raise InputError(
            f"every={every!r} makes {bins:,} periods of this log; give a longer one, or since="
        )
    start = _floor(first, period)
    arrived, left = _counted(log, start, period, bins)
    return figure(
        [
            _bars("arrived", BLUE, start, period, arrived, 1),
            _bars("left", ORANGE, start, period, left, -1),
        ],
        _TITLE,
        subtitle=f"{counted(int(arrived.sum()), 'arrival')} and "
        f"{counted(int(left.sum()), 'departure')}; {left_out}",
        x={
            "title": {"text": f"time (UTC), one bar per {_named(period)}"},
            "type": "date",
            "range": plotted(start + np.array([-1, bins + 1]) * period),
        },
        y={"title": {"text": f"holdings per {_named(period)}"}},
        barmode="relative",
    )


def _period(every: str | timedelta) -> int:
    """The length of a period in microseconds."""
    if isinstance(every, timedelta):
        length = every
    elif isinstance(every, str):
        # pandas writes days as D; its M is a month, and not to be taken for a minute.
        length = parse_duration(every.lower() if _CAPITAL_DAYS.fullmatch(every) else every)
    else:
        raise InputError(f"every={every!r} is not a duration; write 90s, 15m, 6h or 7d")
    if not _SHORTEST <= length <= _LONGEST:
        raise InputError(f"every={every!r} is no period of a second to a century")
    return length // timedelta(microseconds=1)


def _floor(tick: int, period: int) -> int:
    zero = _MONDAY if period % (7 * _DAY) == 0 else 0
    return (tick - zero) // period * period + zero


def _bins(first: int, last: int, period: int) -> int:
    return (_floor(last, period) - _floor(first, period)) // period + 1


def _counted(log: Movements, start: int, period: int, bins: int) -> tuple[Numbers, Numbers]:
    counts = log.chosen(~log.first_read)
    place = (counts.at - start) // period
    return (
        np.bincount(place[counts.step > 0], minlength=bins),
        np.bincount(place[counts.step < 0], minlength=bins),
    )


def _bars(
    name: str, color: str, start: int, period: int, counts: Numbers, sign: int
) -> dict[str, Any]:
    # Empty periods have no bar.
    some = np.flatnonzero(counts)
    begins = start + some * period
    return {
        "type": "bar",
        "name": name,
        "x": plotted(begins + period // 2),
        "y": (counts[some] * sign).tolist(),
        "width": [period / 1_000 * _OF_PERIOD] * len(some),
        "hovertext": [
            f"<b>{counted(count, 'holding')} {name}</b><br>{_from(begin)} to {_from(end)} UTC"
            for count, begin, end in zip(
                counts[some].tolist(), plotted(begins), plotted(begins + period), strict=True
            )
        ],
        "hovertemplate": TEXT_ONLY,
        "marker": {"color": color},
    }


def _from(time: str) -> str:
    return f"{time[:10]} {time[11:19]}"


def _named(period: int) -> str:
    for size, name in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute"), (_SECOND, "second")):
        if period % size == 0:
            number = period // size
            return name if number == 1 else f"{number:,} {name}s"
    return f"{period / _SECOND:g} seconds"
