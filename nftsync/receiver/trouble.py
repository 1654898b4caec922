"""Telling that storage fails, and that it works again: once for each change, not per request."""

from __future__ import annotations

import logging
import time

__all__ = ["Trouble"]

_log = logging.getLogger("nftsync.receiver")


class Trouble:
    """What the log knows about the state of storage; used by one thread."""

    def __init__(self) -> None:
        self._kind: str | None = None
        self._since = 0.0

    def met(self, kind: str) -> None:
        """A request was told that its webhook is not stored, and why."""
        if kind != self._kind:
            if self._kind is None:
                self._since = time.monotonic()
            self._kind = kind
            _log.warning("cannot store webhooks", extra={"error": kind})

    def over(self) -> None:
        """A write succeeded."""
        if self._kind is not None:
            seconds = round(time.monotonic() - self._since, 3)
            _log.warning(
                "webhooks are stored again", extra={"error": self._kind, "seconds": seconds}
            )
            self._kind = None
