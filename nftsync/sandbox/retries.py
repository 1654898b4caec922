"""When a webhook is tried again."""

from __future__ import annotations

from random import Random

from nftsync.errors import InputError

__all__ = ["GREATEST_TIME_SCALE", "RETRY_SECONDS", "RetrySchedule"]

#: Seconds from an attempt's end to the next one. The provider's document says only that they grow
#: (section Events, 6); the figures are the sandbox's own.
RETRY_SECONDS = (5, 300, 1800, 7200, 18_000, 36_000, 36_000)

#: The longest wait is then over a year; no thread can wait some 200 times that.
GREATEST_TIME_SCALE = 1000

_SPREAD = 0.2


class RetrySchedule:
    """Growing waits, each drawn from within 20 % of its figure; the caller locks.

    Args:
        time_scale: what every wait is multiplied by; 0.001 makes 5 minutes 0.3 seconds.
        seed: what they are drawn from.

    Raises:
        InputError: the time scale is not above 0, or over 1000.
    """

    def __init__(self, *, time_scale: float = 1.0, seed: int = 0) -> None:
        if not 0 < time_scale <= GREATEST_TIME_SCALE:
            raise InputError(
                f"the time scale is {time_scale}; it must be above 0 and at most "
                f"{GREATEST_TIME_SCALE}"
            )
        self._time_scale = time_scale
        self._random = Random(f"retries {seed}")  # noqa: S311 - a simulation, to be repeatable

    def wait(self, failures: int) -> float | None:
        """Seconds to wait after so many failures, at least one; None: give up."""
        if failures > len(RETRY_SECONDS):
            return None
        spread = self._random.uniform(1 - _SPREAD, 1 + _SPREAD)
        return RETRY_SECONDS[failures - 1] * spread * self._time_scale
