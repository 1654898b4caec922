"""A circuit breaker: is the provider down, or does it refuse a few objects alone?

A provider that is down costs no attempts. It is left alone for a while, then one object tells
whether it answers again. An object that is refused while others are answered is deferred alone.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from typing import Literal

from nftsync.pull.reads import AnyRead
from nftsync.replay.config import Timing
from nftsync.store.queue import ObjectKey

_log = logging.getLogger("nftsync.replay")

#: Objects in a row that the provider refuses before it counts as down; one may be refused alone.
_REFUSALS = 3


class CircuitBreaker:
    """Knows who refuses whom, from what reads came to.

    Attributes:
        deferred: the objects that were deferred, and not answered for since; and how often again.
        outage: why the provider counts as down, or None while it does not.
        sync_error: why a sync that webhooks ask for was not made, or None.
    """

    def __init__(self, timing: Timing) -> None:
        """Begin with a provider that answers."""
        self.deferred: dict[ObjectKey, int] = {}
        self.outage: str | None = None
        self.sync_error: str | None = None
        self._timing = timing
        self._answered = 0
        self._refusals: list[int] = []
        self._pauses = 0
        self._paused_until = 0.0
        self._refused: str | None = None

    @property
    def is_open(self) -> bool:
        """The provider is down: one object at a time tells whether it answers again."""
        return self._pauses > 0

    @property
    def is_paused(self) -> bool:
        """Nothing may be asked for now."""
        return time.monotonic() < self._paused_until

    @property
    def reason(self) -> str | None:
        """Why webhooks wait that were due, or None."""
        return self.outage or (self._refused if self.deferred else None) or self.sync_error

    def defer(self, key: ObjectKey, error: str | None) -> float:
        """Note that the provider refuses an object; returns how long that is to wait."""
        times = self.deferred[key] = self.deferred.get(key, -1) + 1
        self._refused = f"{key.resource_type} {key.resource_id}: {error}"
        return min(self._timing.longest_deferral, self._timing.first_deferral * 2.0**times)

    def answered(self, key: ObjectKey) -> None:
        """Note that the provider answers for an object."""
        self.deferred.pop(key, None)

    def update(
        self, reads: Sequence[AnyRead], refused: Sequence[AnyRead], *, others: bool
    ) -> Literal["opened", "closed"] | None:
        """Judge the provider by some more reads.

        Args:
            reads: all that have come.
            refused: those of them that say something new of the provider.
            others: more objects are in hand, which may still be answered for.

        Returns:
            What has changed.
        """
        answered = [read.sequence for read in reads if not read.provider_down]
        self._answered = max([self._answered, *answered])
        # A read that failed, while one that began later was answered, failed alone.
        down = [read for read in refused if read.sequence > self._answered]
        self._refusals += [read.sequence for read in down]
        self._refusals = [sequence for sequence in self._refusals if sequence > self._answered]
        alone = len(self._refusals) < _REFUSALS and others and not self.is_open
        if down and not alone:
            if self.is_paused:
                return None
            self.open(down[0].error or "no answer")
            return "opened"
        if answered and self.is_open:
            self._pauses, self._paused_until, self.outage = 0, 0.0, None
            _log.info("the provider answers again; replay goes on")
            return "closed"
        return None

    def open(self, why: str) -> None:
        """Leave the provider alone, longer each time."""
        self._pauses += 1
        self._refusals.clear()
        timing = self._timing
        pause = min(timing.longest_pause, timing.first_pause * 2.0 ** (self._pauses - 1))
        pause *= random.uniform(0.8, 1.2)  # noqa: S311 - spreads load
        self._paused_until = time.monotonic() + pause
        self.outage = f"the provider is down or refuses: {why}"
        _log.warning(
            "replay paused: %s", why, extra={"pause_s": round(pause, 1), "pauses": self._pauses}
        )
