"""How fast we ask: one pace for all who read a provider, in lanes of which urgent ones go first."""

from __future__ import annotations

import random
import threading
import time
from collections import deque

from nftsync.errors import Stopped

__all__ = ["Lane", "Pace", "Turn"]

#: How long a request that waits may overlook that its lane was stopped, in seconds.
_SLICE = 0.25
#: Seconds between two requests; what is longer is more than the clock's functions take.
_LONGEST_INTERVAL = 86_400.0


class Pace:
    """Spaces requests evenly, bounds those in flight, and lets a "not now" hold all of them back.

    Nobody reserves a slot ahead: a request takes its slot when it leaves, so an urgent one that
    comes later still goes first. Ordinary requests get what urgent ones leave over.
    """

    def __init__(self, rate_limit: float | None = None, *, at_once: int | None = None) -> None:
        """Set the pace.

        Args:
            rate_limit: requests per second over all lanes, or None for no limit.
            at_once: requests in flight over all lanes, or None for no bound.
        """
        self._interval = min(1.0 / rate_limit, _LONGEST_INTERVAL) if rate_limit else 0.0
        self._bounded = at_once is not None
        self._free = not self._interval and not self._bounded
        self._seats = at_once or 0
        self._lock = threading.Lock()
        self._next_slot = 0.0
        self._resume_at = 0.0
        # An event for each who waits: whoever leaves or gives back a seat wakes the first alone.
        self._urgent: deque[threading.Event] = deque()
        self._ordinary: deque[threading.Event] = deque()

    def lane(self, *, urgent: bool = False) -> Lane:
        """A lane for one client.

        Args:
            urgent: its requests go before those of lanes that are not.
        """
        return Lane(self, urgent=urgent)

    def pause(self, seconds: float) -> None:
        """Let nobody ask for that long."""
        with self._lock:
            self._resume_at = max(self._resume_at, time.monotonic() + seconds)

    def _leave(self, *, urgent: bool, stopped: threading.Event) -> bool:
        """Wait in line for a slot and a seat; False when a pause or a stop came first."""
        line = self._urgent if urgent else self._ordinary
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
                        self._next_slot = at + self._interval
                        self._seats -= self._bounded
                        return True
                mine.wait(min(wait, _SLICE))
            return False
        finally:
            with self._lock:
                line.remove(mine)
                self._wake_first()

    def _wait_of(self, mine: threading.Event, at: float) -> float:
        """Seconds until it can be this one's turn, at the earliest; the lock is held."""
        first = (self._urgent or self._ordinary)[0]
        if mine is not first or (self._bounded and self._seats <= 0):
            return _SLICE
        return self._next_slot - at

    def _give_back(self) -> None:
        if self._bounded:
            with self._lock:
                self._seats += 1
                self._wake_first()

    def _wake_first(self) -> None:
        line = self._urgent or self._ordinary
        if line:
            line[0].set()


class Lane:
    """One client's way through a shared pace.

    Attributes:
        stopped: set it, and every waiting or coming request of this lane ends in `Stopped`.
        urgent: its requests go before those of lanes that are not.
    """

    def __init__(self, pace: Pace, *, urgent: bool = False) -> None:
        self.stopped = threading.Event()
        self.urgent = urgent
        self._pace = pace
        self._turn = Turn(self)

    def turn(self) -> Turn:
        """A context for one attempt of a request: entered when it may go out, left when it ended.

        While it is entered it holds one of the seats, so whoever holds a turn must not wait for
        another one.
        """
        return self._turn

    def pause(self, seconds: float) -> None:
        """Let nobody ask for that long, whatever the lane."""
        self._pace.pause(seconds)

    def sleep(self, seconds: float) -> None:
        """Wait, unless stopped.

        Raises:
            Stopped: the lane was stopped first.
        """
        if self.stopped.wait(seconds):
            raise Stopped("stopped")

    def _take_turn(self) -> None:
        pace = self._pace
        while True:
            if self.stopped.is_set():
                raise Stopped("stopped")
            pause = pace._resume_at - time.monotonic()
            if pause > 0.0:
                # Jitter, or every thread would come back at the same instant.
                self.sleep(pause + random.uniform(0.0, 0.1 + pause / 4))  # noqa: S311
            elif pace._free or pace._leave(urgent=self.urgent, stopped=self.stopped):
                return


class Turn:
    """The turns of a lane; any number of threads may be in it at once."""

    __slots__ = ("_lane",)

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def __enter__(self) -> None:
        """Wait until the request may go out.

        Raises:
            Stopped: the lane was stopped first.
        """
        self._lane._take_turn()

    def __exit__(self, *_: object) -> None:
        self._lane._pace._give_back()
