"""Log of `serve`: lines on a terminal, otherwise JSON; it never blocks."""

from __future__ import annotations

import atexit
import io
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, TextIO

from nftsync.text import visible
from nftsync.threads import start_thread

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_log = logging.getLogger("nftsync.log")

_MAX_LINES_A_SECOND = 10
#: Texts that may wait for stderr; further lines are dropped.
_MOST_WAITING = 1_000
#: Longest wait for these texts at the end of the process, in seconds.
_LAST_SECONDS = 1.0


def unblock_stderr() -> None:
    """Make `sys.stderr` nonblocking until the process ends."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, io.UnsupportedOperation):  # stderr is closed, or in memory
        return
    pipe = _Unblocked(descriptor)
    encoding, errors = sys.stderr.encoding, sys.stderr.errors
    sys.stderr = io.TextIOWrapper(pipe, encoding, errors, write_through=True)
    atexit.register(pipe.finish)


def log_lines(level: int = logging.INFO, stream: TextIO | None = None) -> logging.Handler:
    """Log lines on a terminal, otherwise JSON; return the handler, for removal."""
    from pythonjsonlogger.json import JsonFormatter

    handler = logging.StreamHandler(stream or sys.stderr)
    formatter = JsonFormatter(
        "%(levelname)s %(name)s %(message)s",
        timestamp="time",
        rename_fields={"levelname": "level", "name": "logger"},
    )
    on_terminal = handler.stream is not None and handler.stream.isatty()  # it may be closed
    handler.setFormatter(_PlainFormatter() if on_terminal else formatter)
    # Any sender can cause refused webhooks (with `remote`) and waitress's reports of invalid
    # requests, so both are limited.
    handler.addFilter(_Bounded(lambda record: hasattr(record, "remote")))
    handler.addFilter(_Bounded(lambda record: record.name.startswith("waitress")))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    # httpx would log each follow-up read with its URL.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # The warning that all threads are busy is normal while the disk is slow.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    return handler


class _PlainFormatter(logging.Formatter):
    """Plain lines, such as `12:00:05Z WARNING refused a webhook: reason wrong`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%SZ")
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        from pythonjsonlogger.core import RESERVED_ATTRS

        extra = {name: value for name, value in vars(record).items() if name not in RESERVED_ATTRS}
        more = ", ".join(
            f"{key.replace('_', ' ')} {value}" for key, value in extra.items() if value
        )
        text = super().formatMessage(record) + (f": {more}" if more else "")
        return visible(" ".join(text.splitlines()))


class _Bounded(logging.Filter):
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
            if self._lines > _MAX_LINES_A_SECOND:
                self._suppressed += 1
                return False
            if self._suppressed:
                vars(record)["suppressed"], self._suppressed = self._suppressed, 0
            return True


class _Unblocked(io.RawIOBase):
    """Standard error, written by a thread without the locks that Python takes at exit."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._texts: SimpleQueue[bytes | None] = SimpleQueue()
        self._dropping = threading.Lock()
        self._dropped = 0
        self._thread = start_thread("stderr", self._run, self._fail)

    def write(self, data: ReadableBuffer, /) -> int:
        text = bytes(data)
        if self._texts.qsize() < _MOST_WAITING or threading.current_thread() is self._thread:
            self._texts.put(text)
        else:
            with self._dropping:
                self._dropped += text.count(b"\n")
        return len(text)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def finish(self) -> None:
        """Wait briefly until all texts are written."""
        self._texts.put(None)
        self._thread.join(_LAST_SECONDS)

    def _fail(self, error: Exception) -> None:
        with suppress(OSError):
            os.write(self._descriptor, f"nftsync: the log ended: {error!r}\n".encode())

    def _run(self) -> None:
        lost = reported = 0
        while (text := self._texts.get()) is not None:
            try:
                while text:
                    text = text[os.write(self._descriptor, text) :]
            except OSError:  # the reader closed it, or the disk is full
                lost += text.count(b"\n")
                continue
            if (dropped := self._dropped + lost) > reported:
                _log.warning("log lines were dropped", extra={"dropped": dropped - reported})
                reported = dropped
