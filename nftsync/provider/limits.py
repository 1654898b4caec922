"""Limits on requests: the rate limiter, and the rule that ends reading when the provider fails."""

from __future__ import annotations

import random
import threading
import time
from collections import deque

from nftsync.errors import Stopped

#: How long a request that waits may overlook that its client was stopped, in seconds.
_SLICE = 0.25
#: Seconds between two requests; what is longer is more than the clock's functions take.
_LONGEST_INTERVAL = 86_400.0
#: Responses from the beginning that are all refusals, and requests in a row without a connection.
_REFUSALS = 20
_UNANSWERED = 50


class RateLimiter:
    """Spaces requests evenly, bounds those in flight, and lets a "not now" hold all of them back.

    Nobody reserves a time ahead: a request takes its slot when it leaves, so an urgent one that
    comes later still goes first. Ordinary requests get what urgent ones leave over.
    """

    def __init__(self, rate_limit: float | None = None, *, at_once: int | None = None) -> None:
        """Set the rate.

        Args:
            rate_limit: requests per second over all clients, or None for no limit.
            at_once: requests in flight over all clients, or None for no bound.
        """
        self._bounded = at_once is not None
        self._slots = at_once or 0
        self._lock = threading.Lock()
        self.set_rate(rate_limit)
        self._next_at = 0.0
        self._resume_at = 0.0
        # An event for each who waits: whoever leaves or gives back a slot wakes the first alone.
        self._urgent: deque[threading.Event] = deque()
        self._ordinary: deque[threading.Event] = deque()

    def set_rate(self, rate_limit: float | None) -> None:
        """Set another rate, in requests per second over all clients; None: no limit."""
        self._interval = min(1.0 / rate_limit, _LONGEST_INTERVAL) if rate_limit else 0.0
        self._free = not self._interval and not self._bounded

    @property
    def waiting(self) -> int:
        """How many requests wait in line."""
        return len(self._urgent) + len(self._ordinary)

    def pause(self, seconds: float) -> None:
        """Let nobody ask for that long."""
        with self._lock:
            self._resume_at = max(self._resume_at, time.monotonic() + seconds)

    def take_slot(self, stopped: threading.Event, *, urgent: bool) -> bool:
        """Wait for a slot; False when a pause or a stop came first."""
        pause = self._resume_at - time.monotonic()
        if pause > 0.0:
            # Jitter, or every thread would come back at the same instant.
            stopped.wait(pause + random.uniform(0.0, 0.1 + pause / 4))  # noqa: S311 - only spreads waits
            return False
        return self._free or self._wait_in_line(stopped, self._urgent if urgent else self._ordinary)

    def _wait_in_line(self, stopped: threading.Event, line: deque[threading.Event]) -> bool:
        mine = threading.Event()
        with self._lock:
            line.append(mine)
        try:
            while not stopped.is_set():
                with self._lock:
                    mine.clear()
                    at = time.monotonic()
                    if at < self._resume_at:
                        return False
                    wait = self._wait_of(mine, at)
                    if wait <= 0.0:
                        self._next_at = at + self._interval
                        self._slots -= self._bounded
                        return True
                mine.wait(min(wait, _SLICE))
            return False
        finally:
            with self._lock:
                line.remove(mine)
                self._wake_first()

    def _wait_of(self, mine: threading.Event, at: float) -> float:
        """Seconds until this one may leave, at the earliest; the lock is held."""
        first = (self._urgent or self._ordinary)[0]
        if mine is not first or (self._bounded and self._slots <= 0):
            return _SLICE
        return self._next_at - at

    def give_back(self) -> None:
        """Give a slot back."""
        if self._bounded:
            with self._lock:
                self._slots += 1
                self._wake_first()

    def _wake_first(self) -> None:
        line = self._urgent or self._ordinary
        if line:
            line[0].set()


class Slots:
    """One client's way to the slots of a shared limiter: a context, entered for one attempt each.

    Any number of threads may be in it at once. Whoever is must not wait for another slot.

    Attributes:
        stopped: set it, and every waiting or coming request of this client ends in `Stopped`.
    """

    def __init__(self, limiter: RateLimiter, *, urgent: bool = False) -> None:
        """Join a limiter.

        Args:
            limiter: shared by all who read the provider.
            urgent: these requests go before those that are not.
        """
        self.stopped = threading.Event()
        self._limiter = limiter
        self._urgent = urgent

    def __enter__(self) -> None:
        """Wait until the request may go out.

        Raises:
            Stopped: the client was stopped first.
        """
        while True:
            if self.stopped.is_set():
                raise Stopped("stopped")
            if self._limiter.take_slot(self.stopped, urgent=self._urgent):
                return

    def __exit__(self, *_: object) -> None:
        self._limiter.give_back()

    def sleep(self, seconds: float) -> None:
        """Wait, unless stopped.

        Raises:
            Stopped: the client was stopped first.
        """
        if self.stopped.wait(seconds):
            raise Stopped("stopped")


class GiveUpRule:
    """Counts the responses of one run, and stops its clients once further requests have no point.

    Any number of clients and threads may share it.

    Attributes:
        reason: why the run gave up, or None.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._lock = threading.Lock()
        self._to_stop: list[threading.Event] = []
        self._answers = 0
        self._all_refused = True
        self._unanswered = 0

    def stops(self, stopped: threading.Event) -> None:
        """Set an event once the run gives up, so that waiting threads send no more requests."""
        with self._lock:
            self._to_stop.append(stopped)
            if self.reason is not None:
                stopped.set()

    def answered(self, status: int) -> None:
        """Count a response."""
        if self._answers >= _REFUSALS and not self._unanswered:
            return
        with self._lock:
            self._unanswered = 0
            self._answers += 1
            self._all_refused &= status in {401, 403}
            if self._answers == _REFUSALS and self._all_refused:
                self._give_up(
                    f"the first {_REFUSALS} answers were all 401 or 403: the provider does not "
                    "accept these credentials; check api_token, token_command or headers"
                )

    def unanswered(self, why: str, *, final: bool = False) -> None:
        """Count a request that got no connection.

        Args:
            why: the error.
            final: a repeat cannot succeed. Without any response before, another request cannot
                succeed either.
        """
        with self._lock:
            self._unanswered += 1
            if final and not self._answers:
                self._give_up(why)
            elif self._unanswered == _UNANSWERED:
                self._give_up(
                    f"{_UNANSWERED} requests in a row got no connection ({why}); is the provider "
                    "up, and base_url right?"
                )

    def _give_up(self, reason: str) -> None:
        self.reason = self.reason or reason
        for stopped in self._to_stop:
            stopped.set()
