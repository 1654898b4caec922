"""Periods in UTC."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset

from nftsync.columnar.filters import shown
from nftsync.columnar.source import Numbers
from nftsync.errors import InputError
from nftsync.text import counted
from nftsync.times import parse_duration

#: A length in microseconds, or a pandas offset to the last day of a calendar period.
Period: TypeAlias = "int | Any"
#: A period as callers may write it.
Every: TypeAlias = "str | timedelta | None"

#: Microseconds of a day.
DAY = 86_400_000_000
#: 1970 began on a Thursday; weeks begin on Mondays.
_MONDAY = 4 * DAY
_SHORTEST, _LONGEST = timedelta(seconds=1), timedelta(days=36_525)
_UNITS = {"day": DAY, "hour": DAY // 24, "minute": 60_000_000, "second": 1_000_000}

_ALIAS = re.compile(r"\d{0,3}(D|W|ME|QE|YE)(?:-[A-Z]{3})?")
_CALENDAR = {"W": "week", "ME": "month", "QE": "quarter", "YE": "year"}
#: Periods to choose from, with their shortest lengths. A sync stores its changes over minutes.
_CHOICES = {
    "1h": DAY // 24,
    "6h": DAY // 4,
    "D": DAY,
    "W": 7 * DAY,
    "ME": 28 * DAY,
    "QE": 90 * DAY,
    "YE": 365 * DAY,
}


def period_of(every: Every, freq: Every = None) -> Period | None:
    """Return a caller's period, from one of two names of the option."""
    name, value = ("every", every) if freq is None else ("freq", freq)
    if every is not None and freq is not None:
        raise InputError("every= and freq= are aliases; give only one")
    if value is None:
        return None
    if isinstance(value, str) and (alias := _ALIAS.fullmatch(value)):
        with suppress(ValueError):  # such as an unknown month
            offset = to_offset(value)
            if offset.n > 0:
                return offset.n * DAY if alias[1] == "D" else offset
    else:
        with suppress(InputError):
            length = value if isinstance(value, timedelta) else parse_duration(str(value))
            if _SHORTEST <= length <= _LONGEST:
                return length // timedelta(microseconds=1)
    raise InputError(
        f"{name}={shown(value)} is not a period; use a duration from 1s to a century, such as 6h"
        " or 7d, or a calendar period: D, W (or W-WED), ME, QE (or QE-MAR), YE"
    )


def fitting_period(first: int, last: int, most: int) -> Period:
    """Return the shortest chosen period, at least an hour, of at most `most` in a span."""
    fitting = (name for name, size in _CHOICES.items() if (last - first) // size + 2 <= most)
    return period_of(next(fitting, "YE"))


def period_edges(period: Period, first: int, last: int, most: int) -> Numbers:
    """Return the starts of periods, and the end of the last; weeks start on Monday."""
    if isinstance(period, int):
        zero = _MONDAY if period % (7 * DAY) == 0 else 0
        start = (first - zero) // period * period + zero
        count = (last - start) // period + 1
        edges = start + np.arange(min(count, most) + 1) * period
    else:
        begin, end = (pd.Timestamp(tick, unit="us").normalize() for tick in (first, last))
        days = pd.date_range(begin - period.base, end + period, freq=period) + pd.Timedelta("1D")
        edges = days.to_numpy("M8[us]").view(np.int64)
        edges = edges[: np.searchsorted(edges, last, side="right") + 1]
        count = len(edges) - 1
    if count > most:
        raise InputError(
            f"{count:,} periods are more than {most:,}; choose a longer period, or a later start"
        )
    return edges


def period_name(period: Period) -> str:
    """Return the name of a period, such as `day` or `2 quarters`."""
    if isinstance(period, int):
        for name, size in _UNITS.items():
            if period % size == 0:
                return _counted(period // size, name)
        return f"{period / size:g} seconds"
    return _counted(period.n, _CALENDAR[period.base.freqstr.partition("-")[0]])


def _counted(number: int, name: str) -> str:
    return name if number == 1 else counted(number, name)
