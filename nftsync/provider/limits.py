"""Limits on requests: the rate limiter and the give-up rule."""

from __future__ import annotations

import random
import threading
import time
from collections import deque

from nftsync.errors import Stopped

#: The longest delay before a waiting request notices a stop, in seconds.
_SLICE = 0.25
#: The longest interval between two requests, in seconds; clock functions fail on far longer ones.
_LONGEST_INTERVAL = 86_400.0
#: The run gives up after this many refusals at its start, or requests in a row without connection.
_REFUSALS = 20
_UNANSWERED = 50


class RateLimiter:
    """A rate limiter that spaces requests, bounds the number in flight, and can pause all of them.

    Requests reserve no time ahead, so urgent ones overtake ordinary ones that are waiting.
    """

    def __init__(self, rate_limit: float | None = None, *, at_once: int | None = None) -> None:
        """Set the requests per second, and the most in flight, over all clients; None: no limit."""
        self._bounded = at_once is not None
        self._slots = at_once or 0
        self._lock = threading.Lock()
        self.set_rate(rate_limit)
        self._next_at = 0.0
        self._resume_at = 0.0
        # One event per waiting request, so that only the first in line is woken.
        self._urgent: deque[threading.Event] = deque()
        self._ordinary: deque[threading.Event] = deque()

    def set_rate(self, rate_limit: float | None) -> None:
        """Set the requests per second, or None for no limit."""
        self._interval = min(1.0 / rate_limit, _LONGEST_INTERVAL) if rate_limit else 0.0
        self._free = not self._interval and not self._bounded

    @property
    def waiting(self) -> int:
        """Number of requests waiting in line."""
        return len(self._urgent) + len(self._ordinary)

    def pause(self, seconds: float) -> None:
        """Delay all requests for this long."""
        with self._lock:
            self._resume_at = max(self._resume_at, time.monotonic() + seconds)

    def take_slot(self, stopped: threading.Event, *, urgent: bool) -> bool:
        """Wait for a slot; return False if a pause or a stop came first."""
        pause = self._resume_at - time.monotonic()
        if pause > 0.0:
            # Jitter keeps threads from returning at the same instant.
            stopped.wait(pause + random.uniform(0.0, 0.1 + pause / 4))  # noqa: S311 - not for security
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
        """Return the shortest wait until this request may leave."""
        first = (self._urgent or self._ordinary)[0]
        if mine is not first or (self._bounded and self._slots <= 0):
            return _SLICE
        return self._next_at - at

    def give_back(self) -> None:
        """Return a slot."""
        if self._bounded:
            with self._lock:
                self._slots += 1
                self._wake_first()

    def _wake_first(self) -> None:
        line = self._urgent or self._ordinary
        if line:
            line[0].set()


class Slots:
    """One client's access to a shared limiter: a context manager around each attempt.

    Any number of threads may be inside; a thread inside must not enter again.

    Attributes:
        stopped: if set, every waiting or later request raises `Stopped`.
    """

    def __init__(self, limiter: RateLimiter, *, urgent: bool = False) -> None:
        """Join a limiter; urgent requests go before ordinary ones."""
        self.stopped = threading.Event()
        self._limiter = limiter
        self._urgent = urgent

    def __enter__(self) -> None:
        """Wait until the request may go out."""
        while True:
            if self.stopped.is_set():
                raise Stopped("stopped")
            if self._limiter.take_slot(self.stopped, urgent=self._urgent):
                return

    def __exit__(self, *_: object) -> None:
        self._limiter.give_back()

    def sleep(self, seconds: float) -> None:
        """Wait, unless stopped."""
        if self.stopped.wait(seconds):
            raise Stopped("stopped")


class GiveUpRule:
    """Rule that stops a run's clients once further requests are pointless; thread-safe.

    Attributes:
        reason: why the run gave up, or None.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._lock = threading.Lock()
        self._to_stop: list[threading.Event] = []
        self._responses = 0
        self._all_refused = True
        self._unanswered = 0

    def register(self, stopped: threading.Event) -> None:
        """Set `stopped` once the run gives up, so that its client stops."""
        with self._lock:
            self._to_stop.append(stopped)
            if self.reason is not None:
                stopped.set()

    def count_response(self, status: int) -> None:
        """Count a response."""
        if self._responses >= _REFUSALS and not self._unanswered:
            return
        with self._lock:
            self._unanswered = 0
            self._responses += 1
            self._all_refused &= status in {401, 403}
            if self._responses == _REFUSALS and self._all_refused:
                self._give_up(
                    f"the first {_REFUSALS} responses were all 401 or 403: the provider does not "
                    "accept these credentials; check api_token, token_command or headers"
                )

    def count_failure(self, error: str, *, final: bool = False) -> None:
        """Count a request without a connection; `final` means that a retry cannot succeed."""
        with self._lock:
            self._unanswered += 1
            if final and not self._responses:
                self._give_up(error)
            elif self._unanswered == _UNANSWERED:
                self._give_up(
                    f"{_UNANSWERED} requests in a row got no connection ({error}); check that the "
                    "provider is up and base_url is right"
                )

    def _give_up(self, reason: str) -> None:
        self.reason = self.reason or reason
        for stopped in self._to_stop:
            stopped.set()
