"""What the receiver and the replay beside it count, for Prometheus."""

from __future__ import annotations

import atexit
import io
import logging
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from prometheus_client import CollectorRegistry, Counter, Histogram, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from nftsync.errors import NftsyncError
from nftsync.receiver.committer import Outcome
from nftsync.store import STATES
from nftsync.store.database import connect_reader
from nftsync.wsgi import HttpServer, Listener

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["Backlog", "Metrics", "log_json_lines", "serve_metrics", "unblock_stderr"]

_log = logging.getLogger("nftsync.receiver")

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


# `done` is left out: it grows for ever, and so would the time to count it.
_WAITING_STATES = tuple(state for state in STATES if state != "done")
_COUNTS = f"""
    SELECT state, count(*), 86400 * (julianday('now') - julianday(min(received_at)))
    FROM webhooks WHERE state IN {_WAITING_STATES} GROUP BY state"""  # noqa: S608


class Backlog(Collector):
    """Reads the inbox whenever the figures are asked for.

    Args:
        database: the database.
    """

    def __init__(self, database: Path) -> None:
        self._database = database

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Give the figures; none while the database cannot be read."""
        waiting = GaugeMetricFamily(
            "nftsync_inbox_webhooks", "Webhooks that are not done, by state.", labels=["state"]
        )
        age = GaugeMetricFamily(
            "nftsync_inbox_oldest_pending_seconds",
            "Time since the oldest pending webhook was received; 0 when there is none.",
        )
        with suppress(NftsyncError, sqlite3.Error):
            with closing(connect_reader(self._database)) as connection:
                connection.execute("PRAGMA busy_timeout = 1000")
                rows = connection.execute(_COUNTS).fetchall()
            found = {state: (count, seconds) for state, count, seconds in rows}
            for state in _WAITING_STATES:
                waiting.add_metric([state], found.get(state, (0, 0))[0])
            age.add_metric([], max(0.0, found.get("pending", (0, 0.0))[1]))
        yield waiting
        yield age


_OUTCOMES: dict[Outcome, str] = {
    "stored": "New webhooks stored.",
    "duplicate": "Webhooks that came again.",
    "quarantined": "Webhooks put in quarantine.",
    "not stored": "Webhooks answered 503, as they could not be stored in time.",
}
_REASONS = ("missing", "malformed", "wrong", "too large")
_SECRETS = ("current", "previous")
_REPLAY_STATES = tuple(state for state in STATES if state not in {"pending", "running"})
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


class Metrics:
    """Counters in a registry of their own, so that several apps in a process do not mix.

    Attributes:
        registry: what Prometheus reads.
        received: requests to the webhooks' path.
        outcomes: what became of the webhooks whose signature was right.
        refused: the others, by reason.
        accepted: right signatures, by secret: `current` or `previous`.
        commits: the seconds that each commit took.
        replayed: webhooks by the state that replay brought them to.
        replay_reads: reads of the provider made by replay.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.received = self._counter("webhooks_received", "Requests to the webhooks' path.")
        self.outcomes = {
            outcome: self._counter(f"webhooks_{outcome.replace(' ', '_')}", text)
            for outcome, text in _OUTCOMES.items()
        }
        self.refused = self._counter(
            "webhooks_refused", "Webhooks refused, by reason.", reason=_REASONS
        )
        self.accepted = self._counter(
            "webhooks_accepted", "Webhooks with a right signature, by secret.", secret=_SECRETS
        )
        self.commits = Histogram(
            "nftsync_commit_seconds",
            "Time of each commit to the inbox.",
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.replayed = self._counter(
            "replay_webhooks", "Webhooks replayed, by end state.", state=_REPLAY_STATES
        )
        self.replay_reads = self._counter("replay_reads", "Reads of the provider made by replay.")

    def _counter(self, name: str, text: str, **label: tuple[str, ...]) -> Counter:
        counter = Counter(f"nftsync_{name}", text, list(label), registry=self.registry)
        for values in label.values():
            for value in values:
                counter.labels(value)  # shown as 0 from the start
        return counter

    def count_replayed(self, counts: Mapping[str, int]) -> None:
        """Count what a replay came to: webhooks by state, and reads as `fetches`."""
        for name, count in counts.items():
            if name == "fetches":
                self.replay_reads.inc(count)
            else:
                self.replayed.labels(name).inc(count)


def serve_metrics(metrics: Metrics, port: int) -> Callable[[], None]:
    """Serve the figures on a port of 127.0.0.1.

    Returns:
        What ends it.

    Raises:
        InputError: the port is taken or may not be used.
    """
    listener = Listener(port=port, flag="--metrics-port")
    app = make_wsgi_app(metrics.registry)
    return HttpServer(app, listener, threads=2, connections=20).close
