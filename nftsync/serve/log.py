"""The log of `serve`: lines for a terminal, JSON elsewhere; logging never blocks."""

from __future__ import annotations

import atexit
import io
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from nftsync.text import visible
from nftsync.threads import start_thread

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_log = logging.getLogger("nftsync.log")

_LINES_A_SECOND = 10
#: Bytes that wait to be written to stderr; what comes after them is dropped.
_WAITING = 256 * 1024
#: How long the end of the process waits until they are written.
_LAST_SECONDS = 1.0


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


def log_lines(level: int = logging.INFO, stream: TextIO | None = None) -> logging.Handler:
    """Write the log of the whole process: short lines to a terminal, JSON lines elsewhere.

    Args:
        level: what is logged at least.
        stream: where to; standard error if None.

    Returns:
        The handler, for whoever wants to take it off again.
    """
    from pythonjsonlogger.json import JsonFormatter

    handler = logging.StreamHandler(stream or sys.stderr)
    names = {"levelname": "level", "name": "logger"}
    if handler.stream is not None and handler.stream.isatty():  # it may be closed
        handler.setFormatter(_ForPeople())
    else:
        handler.setFormatter(
            JsonFormatter(
                "%(levelname)s %(name)s %(message)s", timestamp="time", rename_fields=names
            )
        )
    # What anybody can cause: refused webhooks, which have a sender, and what waitress makes of a
    # request's bytes.
    handler.addFilter(_Bounded(lambda record: hasattr(record, "remote")))
    handler.addFilter(_Bounded(lambda record: record.name.startswith("waitress")))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    # Each request of the follow-up reads would be a line, with its URL.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Every worker busy is what a wait for the disk looks like, and no news.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    return handler


class _ForPeople(logging.Formatter):
    """`12:00:05Z WARNING refused a webhook: reason wrong, bytes 312`; what is 0 is left out."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        moment = datetime.fromtimestamp(record.created, UTC)
        return moment.strftime(datefmt or "%H:%M:%SZ")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        from pythonjsonlogger.core import RESERVED_ATTRS

        told = {name: value for name, value in vars(record).items() if name not in RESERVED_ATTRS}
        more = ", ".join(f"{name.replace('_', ' ')} {told[name]}" for name in told if told[name])
        text = super().formatMessage(record) + (f": {more}" if more else "")
        return visible(" ".join(text.splitlines()))


class _Bounded(logging.Filter):
    """Lets so many records a second of one kind pass, and all of the others."""

    def __init__(self, is_one: Callable[[logging.LogRecord], bool]) -> None:
        super().__init__()
        self._is_one = is_one
        self._lock = threading.Lock()
        self._second = self._lines = self._suppressed = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if not self._is_one(record):
            return True
        with self._lock:
            second = int(record.created)
            self._lines = 1 if second != self._second else self._lines + 1
            self._second = second
            if self._lines > _LINES_A_SECOND:
                self._suppressed += 1
                return False
            if self._suppressed:
                vars(record)["suppressed"], self._suppressed = self._suppressed, 0
            return True


class _Unblocked(io.RawIOBase):
    """What a thread writes on to a descriptor, so that nobody waits for whoever reads it.

    The thread takes no lock of a stream's: Python could not end while one is held.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self._texts: list[bytes] = []
        self._waiting = self._dropped = 0
        self._finished = False
        self._thread = start_thread("stderr", self._run, self._fail)

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

    def _fail(self, error: Exception) -> None:
        """Say that no more will be written; lines that come are dropped, and nobody waits."""
        with suppress(OSError):
            os.write(self._descriptor, f"nftsync: the log ended: {error!r}\n".encode())

    def _run(self) -> None:
        dropped = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._texts or self._finished)
                texts, self._texts, self._waiting = self._texts, [], 0
                dropped, self._dropped = dropped + self._dropped, 0
            if not texts:
                return
            text = b"".join(texts)
            try:
                while text:
                    text = text[os.write(self._descriptor, text) :]
            except OSError:  # its reader has gone, or the disk is full
                dropped += text.count(b"\n")
                continue
            if dropped:
                _log.warning("log lines were dropped", extra={"dropped": dropped})
                dropped = 0
