"""Backoff: pauses that grow while a peer is down."""

from __future__ import annotations

import random
import time

from nftsync.times import growing_wait


class Backoff:
    """Pauses of `first` to `longest` seconds, doubled each time; `spread` varies them randomly.

    `pauses` counts them since the peer last answered.
    """

    def __init__(self, first: float, longest: float, *, spread: float = 0.0) -> None:
        self.pauses = 0
        self._first, self._longest, self._spread = first, longest, spread
        self._until = self._asked_until = 0.0

    @property
    def is_paused(self) -> bool:
        return time.monotonic() < max(self._until, self._asked_until)

    def pause(self, asked: float = 0.0) -> float:
        """Pause, and return the seconds; failures during a pause count once."""
        seconds = growing_wait(self._first, self._longest, self.pauses)
        seconds *= random.uniform(1 - self._spread, 1 + self._spread)  # noqa: S311 - spreads load
        seconds, moment = max(seconds, asked), time.monotonic()
        self.pauses += moment >= self._until
        self._until = max(self._until, moment + seconds)
        self._asked_until = max(self._asked_until, moment + asked)
        return seconds

    def reset(self) -> None:
        """End the pause, unless the peer asked for it."""
        self.pauses, self._until = 0, 0.0
