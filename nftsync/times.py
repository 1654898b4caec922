"""Times and durations in nftsync's formats: UTC, six digits, `Z`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal, TypeAlias

from nftsync.errors import InputError

#: What a day is where a time is asked for: its start, or its end.
Edge: TypeAlias = Literal["start", "end"]

_DURATION = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_LONGEST = timedelta(days=36_525)  # a century; more would lead out of the calendar
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_BARE_DATE = re.compile(r"[0-9]{4}(?:-[0-9]{2}-[0-9]{2}|[0-9]{4}|-?W[0-9]{2}-?[0-9])")
_BARE_WEEK = re.compile(r"[0-9]{4}-?W[0-9]{2}")
_DAYS_AGO = {"today": 0, "yesterday": 1}
_START_OF_DAY, _END_OF_DAY = "T00:00:00.000000Z", "T23:59:59.999999Z"
_CLOCKS_DIFFER = timedelta(minutes=1)
_GREATEST_OFFSET = timedelta(hours=14)  # of a place on earth from UTC


def now() -> str:
    """The current time in the stored form."""
    return format_time(datetime.now(UTC))


def format_time(moment: datetime) -> str:
    """Write a timezone-aware time as `YYYY-MM-DDTHH:MM:SS.ffffffZ`.

    Such texts sort as the times they name, which the queries rely on.
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def shifted(moment: str, by: timedelta) -> str:
    """A time in the stored form, moved by a duration."""
    return format_time(datetime.fromisoformat(moment) + by)


def age_seconds(moment: str, at: str) -> float:
    """Seconds from one stored time to another; 0 where the clock went back."""
    age = datetime.fromisoformat(at) - datetime.fromisoformat(moment)
    return max(0.0, age.total_seconds())


def parse_time(value: str | date | datetime, edge: Edge = "start") -> str:
    """Turn a time that a person gave into the stored form.

    Args:
        value: ISO 8601 text, without an offset UTC; `today`, `yesterday`; a duration such as `7d`,
            which is that long ago; a datetime or a date.
        edge: what a day is: its start where something begins, its end where something ends.

    Raises:
        InputError: the text names no time.
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


def begun(moment: str, latest: Callable[[], str | None]) -> str:
    """Make sure that a time is not still to come.

    Args:
        moment: the time, as `parse_time` returns it.
        latest: gives the latest time that is known of by another clock, which may be ahead of ours;
            asked only where that matters.

    Returns:
        The time; of a day that has begun but not ended, the present in place of its end.

    Raises:
        InputError: it is still to come, by more than clocks may differ.
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
    raise InputError(f"{shown} is in the future: it is {clock[:19]}Z now{_meant(begins, clock)}")


def _meant(ahead: str, clock: str) -> str:
    """What may have been meant by a time that is ahead of the clock."""
    if ahead <= shifted(clock, _GREATEST_OFFSET):
        return "; days and times without an offset are UTC"
    year_before = f"{int(ahead[:4]) - 1:04}{ahead[4:]}"
    if year_before <= clock and "-02-29T" not in year_before:
        return f"; did you mean {year_before.removesuffix(_START_OF_DAY)}?"
    return ""


def parse_duration(value: str) -> timedelta:
    """Turn `90s`, `15m`, `6h` or `7d` into a timedelta.

    Raises:
        InputError: the text is no such duration.
    """
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise InputError(f"{value!r} is not a duration; write 90s, 15m, 6h or 7d")
    duration = timedelta(**{_UNITS[match[2]]: int(match[1])})
    if duration > _LONGEST:
        raise InputError(f"{value!r} is too long a duration")
    return duration
