"""Times and durations as nftsync stores and reads them: UTC, six digits, `Z`."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta

from nftsync.errors import InputError

__all__ = ["format_time", "now", "parse_duration", "parse_time", "shifted"]

_DURATION = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_LONGEST = timedelta(days=36_525)  # a century; more would lead out of the calendar
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_BARE_DATE = re.compile(r"[0-9]{4}(?:-[0-9]{2}-[0-9]{2}|[0-9]{4}|-?W[0-9]{2}-?[0-9])")
_BARE_WEEK = re.compile(r"[0-9]{4}-?W[0-9]{2}")


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


def parse_time(value: str | date | datetime) -> str:
    """Turn a time that a person gave into the stored form.

    Args:
        value: ISO 8601 text, a datetime or a date. Without an offset it is UTC; a bare date is
            the end of that day.

    Raises:
        InputError: the text names no time.
    """
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, date):
        moment = datetime.combine(value, time.max)
    else:
        moment = _parse_text(value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return format_time(moment)
    except (OverflowError, ValueError) as error:
        raise InputError(f"{value!s} is outside the years 1 to 9999 in UTC") from error


def _parse_text(value: str) -> datetime:
    text = value.strip()
    try:
        if _BARE_DATE.fullmatch(text):
            return datetime.combine(date.fromisoformat(text), time.max)
        if _BARE_WEEK.fullmatch(text):
            raise ValueError("neither a time nor a day")  # noqa: TRY301
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(
            f"{value!r} is not a time; write 2026-01-31 (the end of that day) "
            "or 2026-01-31T12:00:00Z"
        ) from error


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
