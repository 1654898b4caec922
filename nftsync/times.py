"""Times and durations in nftsync's formats: UTC, six digits, `Z`."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal, TypeAlias

from nftsync.errors import InputError

#: Edge of the day that a bare date means.
Edge: TypeAlias = Literal["start", "end"]

_DURATION = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_LONGEST = timedelta(days=36_525)  # a century; the calendar ends at year 9999
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_BARE_DATE = re.compile(r"[0-9]{4}(?:-[0-9]{2}-[0-9]{2}|[0-9]{4}|-?W[0-9]{2}-?[0-9])")
_BARE_WEEK = re.compile(r"[0-9]{4}-?W[0-9]{2}")
_DAYS_AGO = {"today": 0, "yesterday": 1}
_START_OF_DAY, _END_OF_DAY = "T00:00:00.000000Z", "T23:59:59.999999Z"
#: The difference between two successive stored times.
MOMENT = timedelta(microseconds=1)
_CLOCKS_DIFFER = timedelta(minutes=1)
_GREATEST_OFFSET = timedelta(hours=14)  # the largest offset from UTC on earth


def now() -> str:
    """Return the current time in the stored form."""
    return format_time(datetime.now(UTC))


def format_time(moment: datetime) -> str:
    """Return an aware time as `YYYY-MM-DDTHH:MM:SS.ffffffZ`; queries rely on its order."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def shifted(moment: str, by: timedelta) -> str:
    """Return a time in the stored form, moved by a duration."""
    return format_time(datetime.fromisoformat(moment) + by)


def growing_wait(first: float, longest: float, times: int) -> float:
    """Return `first` seconds, doubled `times` times, at most `longest`."""
    return min(longest, first * 2.0 ** min(times, 60))  # 60 avoids an overflow


def age_seconds(moment: str, at: str) -> float:
    """Return the seconds between two stored times, at least 0."""
    age = datetime.fromisoformat(at) - datetime.fromisoformat(moment)
    return max(0.0, age.total_seconds())


def parse_time(value: str | date | datetime, edge: Edge = "start") -> str:
    """Return the user's time in the stored form; a bare date means this edge of the day.

    The value is a date, a datetime, ISO 8601 (UTC without an offset), `today`, `yesterday`, or a
    duration such as `7d` (ago).
    """
    moment = _parse_text(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        moment = datetime.combine(moment, time.min if edge == "start" else time.max)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return format_time(moment)
    except (OverflowError, ValueError) as error:
        raise InputError(f"{value!s} is outside the years 1 to 9999 in UTC") from error


def _parse_text(value: str) -> date | datetime:
    text = value.strip()
    present = datetime.now(UTC)
    if text in _DAYS_AGO:
        return present.date() - timedelta(days=_DAYS_AGO[text])
    if _DURATION.fullmatch(text):
        return present - parse_duration(text)
    try:
        if _BARE_DATE.fullmatch(text):
            return date.fromisoformat(text)
        if _BARE_WEEK.fullmatch(text):
            raise ValueError("neither a time nor a day")  # noqa: TRY301
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(
            f"{value!r} is not a time; write 2026-01-31, 2026-01-31T12:00:00Z, today, yesterday or"
            " 7d (ago)"
        ) from error


def days_of_month(value: str) -> tuple[str, str]:
    """Return the first time of a month such as `2026-10`, and its last one until today."""
    try:
        first = date.fromisoformat(f"{value.strip()}-01")
    except ValueError as error:
        raise InputError(f"{value!r} is not a month; write 2026-10") from error
    last = first.replace(day=monthrange(first.year, first.month)[1])
    return parse_time(first), parse_time(min(last, datetime.now(UTC).date()), "end")


def up_to_now(moment: str, latest: Callable[[], str | None]) -> str:
    """Return a parsed time, or now if it is the end of today.

    `latest` returns the latest stored time, which may be ahead of this clock; called if needed.
    """
    clock = now()
    if moment <= shifted(clock, _CLOCKS_DIFFER):
        return moment
    present = max(clock, latest() or clock)
    if moment <= present:
        return moment
    begins = moment.replace(_END_OF_DAY, _START_OF_DAY)
    if begins <= present:
        return present
    shown = moment[: len("2026-01-31")] if begins.endswith(_START_OF_DAY) else moment
    raise InputError(f"{shown} is in the future: it is {clock[:19]}Z now{_hint(begins, clock)}")


def _hint(ahead: str, clock: str) -> str:
    if ahead <= shifted(clock, _GREATEST_OFFSET):
        return "; days and times without an offset are UTC"
    year_before = f"{int(ahead[:4]) - 1:04}{ahead[4:]}"
    if year_before <= clock and "-02-29T" not in year_before:
        return f"; did you mean {year_before.removesuffix(_START_OF_DAY)}?"
    return ""


def parse_duration(value: str) -> timedelta:
    """Return `90s`, `15m`, `6h` or `7d` as a timedelta."""
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise InputError(f"{value!r} is not a duration; write 90s, 15m, 6h or 7d")
    duration = timedelta(**{_UNITS[match[2]]: int(match[1])})
    if duration > _LONGEST:
        raise InputError(f"{value!r} is too long a duration; write at most {_LONGEST.days:,}d")
    return duration


def utc_times(text: str) -> str:
    """Show stored times in a text as `2026-01-31 12:00:00 UTC` or `the end of 2026-01-31 UTC`."""
    text = re.sub(r"(\d{4}-\d\d-\d\d)T23:59:59\.999999Z", r"the end of \1 UTC", text)
    return re.sub(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z", r"\1 \2 UTC", text)
