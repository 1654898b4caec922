"""What can be wrong with a provider's answers on purpose: delay, failures, a rate limit."""

from __future__ import annotations

import threading
import time
from random import Random
from typing import NamedTuple

from nftsync.errors import InputError

__all__ = ["Faults", "Refusal"]


class Refusal(NamedTuple):
    """An answer that stands in for the one asked for.

    Attributes:
        status: its HTTP status.
        error: its text.
        retry_after: seconds to name in `Retry-After`, or None.
    """

    status: int
    error: str
    retry_after: int | None = None


class Faults:
    """Delays and refuses requests as it was told to.

    Args:
        latency: seconds before each answer.
        fail_rate: the share of requests that end in a 500 or 503, from 0 to 1.
        rate_limit: requests per second; what comes faster, past a second's worth saved up, is
            refused with 429. None is no limit.
        seed: which requests fail is drawn from it.

    Raises:
        InputError: a figure is out of its range.
    """

    def __init__(
        self,
        *,
        latency: float = 0.0,
        fail_rate: float = 0.0,
        rate_limit: float | None = None,
        seed: int = 0,
    ) -> None:
        if not 0 <= latency < float("inf"):
            raise InputError(f"the latency is {latency} s; it must be 0 or more")
        if not 0 <= fail_rate <= 1:
            raise InputError(f"the fail rate is {fail_rate}; it must be from 0 to 1")
        if rate_limit is not None and not 0 < rate_limit < float("inf"):
            raise InputError(f"the rate limit is {rate_limit} requests/s; it must be above 0")
        self._latency = latency
        self._fail_rate = fail_rate
        self._rate_limit = rate_limit
        self._saved = self._most = max(1.0, rate_limit or 0.0)
        self._counted_at = time.monotonic()
        self._random = Random(f"faults {seed}")  # noqa: S311 - a simulation, to be repeatable
        self._lock = threading.Lock()

    def meet(self) -> Refusal | None:
        """Let one request through, after its delay, or say how it is refused."""
        with self._lock:
            refusal = self._draw()
        if self._latency:
            time.sleep(self._latency)
        return refusal

    def _draw(self) -> Refusal | None:
        if self._rate_limit is not None:
            at = time.monotonic()
            earned = (at - self._counted_at) * self._rate_limit
            self._saved = min(self._most, self._saved + earned)
            self._counted_at = at
            if self._saved < 1:
                return Refusal(429, f"more than {self._rate_limit:g} requests per second", 1)
            self._saved -= 1
        if self._fail_rate and self._random.random() < self._fail_rate:
            return self._random.choice(
                (Refusal(503, "the sandbox is unavailable"), Refusal(500, "the sandbox failed"))
            )
        return None
