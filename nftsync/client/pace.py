"""How fast we ask: one pace for all threads, and a stop that wakes whoever waits."""

from __future__ import annotations

import random
import threading
import time

from nftsync.errors import Stopped

__all__ = ["Pace"]


class Pace:
    """Spaces requests evenly and lets one provider's "not now" hold all threads back.

    Attributes:
        stopped: set it, and every waiting or coming request ends in `Stopped`.
    """

    def __init__(self, rate_limit: float | None = None) -> None:
        """Set the pace.

        Args:
            rate_limit: requests per second over all threads, or None for no limit.
        """
        self.stopped = threading.Event()
        self._interval = min(1.0 / rate_limit, 86_400.0) if rate_limit else 0.0
        self._lock = threading.Lock()
        self._next_slot = 0.0
        self._resume_at = 0.0

    def wait_turn(self) -> None:
        """Wait until the next request may go out.

        Raises:
            Stopped: the pace was stopped first.
        """
        while True:
            if self.stopped.is_set():
                raise Stopped("stopped")
            now = time.monotonic()
            if now < self._resume_at:
                # Jitter, or every thread would come back at the same instant.
                pause = self._resume_at - now
                self.sleep(pause + random.uniform(0.0, 0.1 + pause / 4))  # noqa: S311
                continue
            if not self._interval:
                return
            with self._lock:
                slot = max(now, self._next_slot)
                self._next_slot = slot + self._interval
            if slot > now:
                self.sleep(slot - now)
            if time.monotonic() >= self._resume_at:
                return

    def pause(self, seconds: float) -> None:
        """Let nobody ask for that long."""
        with self._lock:
            self._resume_at = max(self._resume_at, time.monotonic() + seconds)

    def sleep(self, seconds: float) -> None:
        """Wait, unless stopped.

        Raises:
            Stopped: the pace was stopped first.
        """
        if self.stopped.wait(seconds):
            raise Stopped("stopped")
