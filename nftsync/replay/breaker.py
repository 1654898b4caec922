"""Circuit breaker: a pause while the provider is down."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

from nftsync.backoff import Backoff
from nftsync.records import Read
from nftsync.replay.config import Timing
from nftsync.store.inbox import ObjectKey
from nftsync.times import growing_wait

_log = logging.getLogger("nftsync.replay")


#: Refused objects in a row after which the provider counts as down; it may refuse a single object.
_REFUSALS = 3


class CircuitBreaker:
    """Breaker that pauses reads while the provider is down, and defers objects that it refuses.

    After a pause, one object tests the provider. An outage uses up no attempts.

    Attributes:
        deferred: refused objects, and their number of further refusals.
        outage: why the provider counts as down, or None.
    """

    def __init__(self, timing: Timing) -> None:
        self.deferred: dict[ObjectKey, int] = {}
        self.outage: str | None = None
        self._timing = timing
        self._answered = 0
        self._refusals: list[int] = []
        self._backoff = Backoff(timing.first_pause, timing.longest_pause, spread=0.2)
        self._refused: str | None = None

    @property
    def is_open(self) -> bool:
        return self._backoff.pauses > 0

    @property
    def is_paused(self) -> bool:
        return self._backoff.is_paused

    @property
    def reason(self) -> str | None:
        """Why reads are paused or deferred, or None."""
        return self.outage or (self._refused if self.deferred else None)

    def defer(self, key: ObjectKey, error: str | None) -> float:
        """Record a refused object; return its delay in seconds."""
        times = self.deferred[key] = self.deferred.get(key, -1) + 1
        self._refused = f"{key.resource_type} {key.resource_id}: {error}"
        timing = self._timing
        return growing_wait(timing.first_deferral, timing.longest_deferral, times)

    def answered(self, key: ObjectKey) -> None:
        self.deferred.pop(key, None)

    def update(
        self, reads: Sequence[Read], refused: Sequence[Read], *, others: bool
    ) -> Literal["opened", "closed"] | None:
        """Update the breaker from finished reads, and return the change, if any.

        Some reads count as refused. `others`: other objects are in work and may still succeed.
        """
        answered = [read.sequence for read in reads if not read.provider_down]
        self._answered = max([self._answered, *answered])
        # A refusal counts only if no later read was answered.
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
            self._backoff.reset()
            self.outage = None
            _log.info("the provider answers again; replay resumes")
            return "closed"
        return None

    def open(self, reason: str) -> None:
        """Pause reads, longer each time."""
        self._refusals.clear()
        pause = self._backoff.pause()
        self.outage = f"the provider is down or refuses: {reason}"
        details = {"pause_s": round(pause, 1), "pauses": self._backoff.pauses}
        _log.warning("replay paused: %s", reason, extra=details)
