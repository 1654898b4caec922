"""Waits that a response asks for, in the spellings that servers send.

Source: RFC 9110, sections 5.6.7 and 10.2.3; drafts of the IETF for `RateLimit`; and headers that no
standard defines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from nftsync.errors import may_pass

_NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))\s*(?:s|sec|secs|seconds?)?", re.I)
_FIELD = re.compile(r"\b(remaining|reset|r|t)\s*=\s*([0-9.]+)", re.I)


def asked_wait(status: int, headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a refused request should wait, or None if the server names none.

    The longest wait of `Retry-After` counts; without it, a limit's reset, if no request remains.
    Times are relative to the response's own `Date`.
    """
    if status != 403 and not may_pass(status):
        return None
    at = parse_date(headers.get("date", "")) or datetime.now(UTC)
    waits = _waits(headers.get("retry-after", ""), at)
    for remaining, reset in [] if waits else _limits(headers):
        # These two statuses are about a limit, whether or not the response counts requests.
        if 0.0 in _waits(remaining, at) or (not remaining and status in {429, 503}):
            waits += _waits(reset, at)
    return max(waits, default=None)


def parse_date(text: str) -> datetime | None:
    """Return the time of an HTTP date in any form, or of ISO 8601, or None."""
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        with suppress(ValueError, OverflowError):
            moment = parse(text)
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return None


def _waits(text: str, at: datetime) -> list[float]:
    # Also splits dates at their weekday, which is not needed.
    waits = (_seconds(part.strip('" \t'), at) for part in text.split(","))
    return [max(0.0, seconds) for seconds in waits if seconds is not None]


def _seconds(text: str, at: datetime) -> float | None:
    if match := _NUMBER.fullmatch(text):
        number = float(match[1][:15])
        number = number / 1_000 if number >= 1e11 else number  # milliseconds since 1970
        return number - at.timestamp() if number >= 1e9 else number  # no wait lasts for decades
    moment = parse_date(text)
    return None if moment is None else (moment - at).total_seconds()


def _limits(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the remaining requests and the reset of each limit, blank if not given."""
    for name in ("ratelimit", "x-ratelimit", "x-rate-limit"):
        yield headers.get(f"{name}-remaining", ""), headers.get(f"{name}-reset", "")
    # `limit=9, remaining=0, reset=5` is one limit; `"minute";r=0;t=5, "day";r=7;t=900` are two.
    text = re.sub('"[^"]*"', "", headers.get("ratelimit", ""))
    for limit in text.split(",") if ";" in text else [text]:
        fields: dict[str, str] = dict(_FIELD.findall(limit.lower()))
        reset = fields.get("t", fields.get("reset", ""))
        yield fields.get("r", fields.get("remaining", "")), reset
