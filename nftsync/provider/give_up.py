"""The give-up rule: when a run stops, as further requests have no point."""

from __future__ import annotations

import threading

#: Responses from the beginning that are all refusals, and requests in a row without a connection.
_REFUSALS = 20
_UNANSWERED = 50


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
