"""When a whole run has no point: nobody answers, or nobody lets us in."""

from __future__ import annotations

import threading

__all__ = ["Health"]

_REFUSALS = 20
_UNANSWERED = 50


class Health:
    """Counts answers over all threads and says when to give up.

    Attributes:
        verdict: why the run should stop, or None while it should go on.
    """

    def __init__(self) -> None:
        self.verdict: str | None = None
        self._lock = threading.Lock()
        self._answers = 0
        self._all_refused = True
        self._unanswered = 0

    def answered(self, status: int) -> None:
        """Count an answer."""
        if self._answers >= _REFUSALS and not self._unanswered:
            return
        with self._lock:
            self._unanswered = 0
            self._answers += 1
            self._all_refused &= status in {401, 403}
            if self._answers == _REFUSALS and self._all_refused:
                self.verdict = (
                    f"the first {_REFUSALS} answers were all 401 or 403: the provider does not "
                    "accept these credentials; check api_token, token_command or headers"
                )

    def unanswered(self, why: str) -> None:
        """Count a request that got no connection."""
        with self._lock:
            self._unanswered += 1
            if self._unanswered == _UNANSWERED:
                self.verdict = (
                    f"{_UNANSWERED} requests in a row got no connection ({why}); is the provider "
                    "up, and base_url right?"
                )
