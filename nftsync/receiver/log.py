"""What the receiver logs: never a secret, a signature, a body or a header.

Nobody can stop the receiver by its log: stderr is written by a thread of its own, for which nobody
waits, and what anybody can bring about takes a bounded part of it.
"""

from __future__ import annotations

import atexit
import io
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from nftsync.receiver.committer import Outcome
from nftsync.webhook_body import Unusable, Webhook

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["ReceiverLog", "log_json_lines", "unblock_stderr"]

_log = logging.getLogger("nftsync.receiver")

_LINES_A_SECOND = 10
#: Bytes that wait to be written to stderr; what comes after them is dropped.
_WAITING = 256 * 1024
#: How long the end of the process waits until they are written.
_LAST_SECONDS = 1.0


class ReceiverLog:
    """The receiver's log; refused webhooks, which anybody can send, take a bounded part of it.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._room = _Room(clock)

    def refused(self, reason: str, remote: str | None, size: int) -> None:
        """A webhook was refused.

        Args:
            reason: why.
            remote: the sender's address.
            size: bytes of its body, of those that were read.
        """
        suppressed = self._room.take()
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


def unblock_stderr() -> None:
    """Let no write to `sys.stderr` wait, from here to the end of the process."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, io.UnsupportedOperation):  # it is closed, or in memory
        return
    pipe = _Unblocked(descriptor)
    encoding, errors = sys.stderr.encoding, sys.stderr.errors
    sys.stderr = io.TextIOWrapper(pipe, encoding, errors, write_through=True)
    atexit.register(pipe.finish)


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
    handler.addFilter(_Bounded("waitress"))  # what it makes of bytes that anybody can send
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    # Each request of the follow-up reads would be a line, with its URL.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Every worker busy is what a wait for the disk looks like, and no news.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    return handler


class _Room:
    """Room for so many lines a second."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._second = 0
        self._lines = 0
        self._suppressed = 0

    def take(self) -> int | None:
        """The lines left out since the last one, or None if this one is left out too."""
        with self._lock:
            second = int(self._clock())
            if second != self._second:
                self._second, self._lines = second, 0
            self._lines += 1
            if self._lines > _LINES_A_SECOND:
                self._suppressed += 1
                return None
            suppressed, self._suppressed = self._suppressed, 0
            return suppressed


class _Bounded(logging.Filter):
    """Lets so many lines a second of one logger pass, and all of the others."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._room = _Room(time.monotonic)

    def filter(self, record: logging.LogRecord) -> bool:
        if not super().filter(record):
            return True
        suppressed = self._room.take()
        if suppressed:
            vars(record)["suppressed"] = suppressed
        return suppressed is not None


class _Unblocked(io.RawIOBase):
    """What a thread writes on to a descriptor, so that nobody waits for whoever reads it.

    The thread takes no lock of a stream's: Python could not end while one is held.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self._texts: list[bytes] = []
        self._waiting = 0
        self._dropped = 0
        self._finished = False
        self._thread = threading.Thread(target=self._run, name="nftsync-stderr", daemon=True)
        self._thread.start()

    def write(self, data: ReadableBuffer, /) -> int:
        text = bytes(data)
        with self._changed:
            if self._waiting < _WAITING or threading.current_thread() is self._thread:
                self._texts.append(text)
                self._waiting += len(text)
                self._changed.notify()
            else:
                self._dropped += text.count(b"\n")
        return len(text)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def finish(self) -> None:
        """Wait until all is written, but not for long."""
        with self._changed:
            self._finished = True
            self._changed.notify()
        self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        lost = 0
        while True:
            texts, dropped = self._take()
            if not texts:
                return
            lost += dropped
            for text in texts:
                written = self._put(text)
                lost += 0 if written else text.count(b"\n")
            if lost and written:  # it is worth while to say so
                _log.warning("log lines were dropped", extra={"dropped": lost})
                lost = 0

    def _take(self) -> tuple[list[bytes], int]:
        """What waits, and how many lines after it were dropped; nothing waits at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._texts or self._finished)
            taken = self._texts, self._dropped
            self._texts, self._waiting, self._dropped = [], 0, 0
            return taken

    def _put(self, text: bytes) -> bool:
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
        except OSError:  # its reader has gone, or the disk is full
            return False
        return True
