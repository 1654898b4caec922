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
        self._until = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether a pause lasts."""
        return time.monotonic() < self._until

    def pause(self, at_least: float = 0.0) -> float:
        """Pause, and return the seconds; failures during a pause count once."""
        seconds = growing_wait(self._first, self._longest, self.pauses)
        seconds *= random.uniform(1 - self._spread, 1 + self._spread)  # noqa: S311 - spreads load
        seconds = max(seconds, at_least)
        self.pauses += not self.is_paused
        self._until = max(self._until, time.monotonic() + seconds)
        return seconds

    def reset(self) -> None:
        """End the pause, as the peer answers."""
        self.pauses, self._until = 0, 0.0
