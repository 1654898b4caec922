"""What the receiver logs: never a secret, a signature, a body or a header."""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import TextIO

from nftsync.receiver.committer import Outcome
from nftsync.webhook_body import Unusable, Webhook

__all__ = ["ReceiverLog", "log_json_lines"]

_log = logging.getLogger("nftsync.receiver")

_LINES_A_SECOND = 10


class ReceiverLog:
    """The receiver's log; refused webhooks, which anybody can send, take a bounded part of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._second = 0
        self._lines = 0
        self._suppressed = 0

    def refused(self, reason: str, remote: str | None, size: int) -> None:
        """A webhook was refused.

        Args:
            reason: why.
            remote: the sender's address.
            size: bytes of its body, of those that were read.
        """
        suppressed = self._room()
        if suppressed is None:
            return
        fields: dict[str, object] = {"reason": reason, "remote": remote, "bytes": size}
        if suppressed:
            fields["suppressed"] = suppressed
        _log.warning("refused a webhook", extra=fields)

    def outcome(self, outcome: Outcome, content: Webhook | Unusable) -> None:
        """A webhook was stored, counted or put in quarantine."""
        if outcome == "quarantined":
            reason = content.reason if isinstance(content, Unusable) else "its id was seen before"
            _log.warning("a webhook was quarantined", extra={"reason": reason})
        elif _log.isEnabledFor(logging.DEBUG) and isinstance(content, Webhook):
            fields = {"outcome": outcome, "webhook_id": content.webhook_id}
            _log.debug("received a webhook", extra=fields)

    def _room(self) -> int | None:
        """The lines left out since the last one, or None if this one is left out too."""
        with self._lock:
            second = int(time.monotonic())
            if second != self._second:
                self._second, self._lines = second, 0
            self._lines += 1
            if self._lines > _LINES_A_SECOND:
                self._suppressed += 1
                return None
            suppressed, self._suppressed = self._suppressed, 0
            return suppressed


def log_json_lines(level: int = logging.INFO, stream: TextIO | None = None) -> logging.Handler:
    """Write the log of the whole process as JSON lines.

    Args:
        level: what is logged at least.
        stream: where to; standard error if None.

    Returns:
        The handler, for whoever wants to take it off again.
    """
    from pythonjsonlogger.json import JsonFormatter

    handler = logging.StreamHandler(stream or sys.stderr)
    names = {"levelname": "level", "name": "logger"}
    formatter = JsonFormatter(
        "%(levelname)s %(name)s %(message)s", timestamp="time", rename_fields=names
    )
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    # Each request of the follow-up reads would be a line, with its URL.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Every worker busy is what a wait for the disk looks like, and no news.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    return handler
