"""Writer of webhooks: one thread commits all waiting webhooks in one transaction.

One durable commit per request would make all of them queue for the write lock and the disk.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from nftsync.errors import DamagedDatabase, StoreError
from nftsync.store.database import kind_of
from nftsync.store.inbox import Delivery, Stored, store, store_check
from nftsync.store.writer import Writer
from nftsync.threads import start_thread
from nftsync.times import now

_log = logging.getLogger("nftsync.receiver")

#: Outcome of a webhook; `not stored`: no space, no lock or no time.
Receipt: TypeAlias = Stored | Literal["not stored"]

#: Longest wait of a request in seconds; the provider allows 3 s for the whole reply (provider's
#: document, section Events).
_TIMEOUT = 2.0
#: Longest wait while the writer is blocked: else successive requests hold the few threads for long.
_LEAST_TIMEOUT = 0.1
#: Pause before another try for a lock.
_RETRY = 0.003
#: Webhooks between two checkpoints, up to 40 MB of log. Restarting the log is half as expensive as
#: extending it.
_CHECKPOINT_ROWS = 4_000
#: Interval between checks of the database's files while idle.
_CHECK_FILES_EVERY = 1.0
#: Time for which the last write proves that the database is writable.
_WRITE_PROVES = 1.0

# Errors that the content of a single webhook can cause.
_OWN_FAULT = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    UnicodeError,
    OverflowError,
)
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that waits until its webhook is stored; without one, until any write succeeds."""

    delivery: Delivery | None
    deadline: float
    outcome: Receipt = "not stored"
    #: Released with the outcome; an Event would cost a quarter of the commit.
    answered: threading.Lock = field(default_factory=lambda: threading.Lock())


class Committer:
    """The only writer of new webhooks in a process; creates or migrates the database.

    Calls `on_stored` after commits with webhooks for replay, `observe_commit` with each commit's
    duration in seconds, and `on_broken` with an unexpected exception.
    """

    def __init__(
        self,
        database: Path,
        *,
        on_stored: Callable[[], None] = lambda: None,
        observe_commit: Callable[[float], None] = lambda _: None,
        on_broken: Callable[[Exception], None] | None = None,
    ) -> None:
        # A locked database is tried again together with the requests that have arrived meanwhile.
        self._writer = Writer(
            database,
            wait=0.0,
            gap=0.0,
            synchronous="FULL",
            checkpoint_rows=_CHECKPOINT_ROWS,
            checks_size=True,
        )
        self._damage: str | None = None
        self._on_stored = on_stored
        self._observe_commit = observe_commit
        self._trouble: str | None = None
        self._trouble_since = 0.0
        # Filled by requests, and emptied by the thread into `_queue`.
        self._incoming: deque[_Waiting] = deque()
        self._wake = threading.Event()
        self._queue: list[_Waiting] = []
        self._closing = False
        self._busy_since: float | None = None  # start of unfinished work
        self._last_write = (0.0, False)
        self._thread = start_thread("inbox", self._run, on_broken)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._closing

    def is_writable(self) -> bool:
        """Return whether a recent write succeeded, or else whether a new one does."""
        moment, good = self._last_write
        if time.monotonic() - moment < _WRITE_PROVES:
            return good and self.alive
        return self.submit(None) == "stored"

    def refuse_all(self, reason: str) -> None:
        """Store nothing more in this process, as the damaged database could lose it."""
        self._damage = self._damage or reason

    def close(self) -> None:
        """Store the waiting webhooks, end the thread, and close the database."""
        self._closing = True
        self._wake.set()
        self._thread.join()

    def submit(self, delivery: Delivery | None) -> Receipt:
        """Store a webhook and return the outcome in time; None: only test whether writing works."""
        if not self.alive:
            return "not stored"
        moment = time.monotonic()
        since = self._busy_since or moment
        waiting = _Waiting(delivery, max(since + _TIMEOUT, moment + _LEAST_TIMEOUT))
        waiting.answered.acquire()
        self._incoming.append(waiting)
        self._wake.set()
        # The writer drops late requests by the same clock.
        waiting.answered.acquire(timeout=waiting.deadline - moment)
        return waiting.outcome

    def _run(self) -> None:
        try:
            while batch := self._next_batch():
                self._commit(batch)
        finally:
            self._writer.close()

    def _next_batch(self) -> list[_Waiting]:
        """Refuse late requests, and wait for others; return none after `close`."""
        while True:
            self._wake.clear()
            closing = self._closing
            while self._incoming:
                self._queue.append(self._incoming.popleft())
            moment = time.monotonic()
            if late := [x for x in self._queue if x.deadline <= moment]:
                self._queue = [x for x in self._queue if x.deadline > moment]
                self._refuse(late, "another program kept the database locked")
            if self._queue or closing:
                break
            if not self._wake.wait(_CHECK_FILES_EVERY):
                self._busy_since = None  # the obstacle may be gone
                self._check_files()
        self._busy_since = self._busy_since or time.monotonic()
        batch, self._queue = self._queue, []
        return batch

    def _check_files(self) -> None:
        """Close the database if its files were moved, so that its log is kept."""
        try:
            self._writer.check_files()
        except (sqlite3.Error, StoreError) as error:
            if kind_of(error) not in _LOCKED:
                self._abandon([], error)

    def _abandon(self, batch: list[_Waiting], error: Exception) -> None:
        """Close the database after an error that would repeat."""
        if isinstance(error, DamagedDatabase) or kind_of(error) in _DAMAGED:
            self.refuse_all(str(error))
        self._writer.close()
        self._refuse(batch, str(error))

    def _commit(self, batch: list[_Waiting]) -> None:
        try:
            outcomes = self._write(batch)
        except _OWN_FAULT as error:
            if len(batch) > 1:
                for waiting in batch:
                    self._commit([waiting])
                return
            self._refuse(batch, str(error))
        except (sqlite3.Error, StoreError) as error:
            if kind_of(error) in _LOCKED:
                self._queue += batch
                time.sleep(_RETRY)
                return
            self._abandon(batch, error)
        else:
            self._log_trouble(None)
            self._answer(batch, outcomes, good=True)
            if any(x.delivery is not None and x.outcome == "stored" for x in batch):
                self._on_stored()
            self._writer.checkpoint()
        self._busy_since = None

    def _write(self, batch: list[_Waiting]) -> list[Receipt]:
        if self._damage is not None:
            raise DamagedDatabase(self._damage)
        deliveries = [x.delivery for x in batch if x.delivery is not None]
        with self._writer.transaction() as connection:
            at = now()
            stored = iter(store(connection, deliveries, at))
            if len(deliveries) < len(batch):
                store_check(connection, at)
        if deliveries:
            self._observe_commit(self._writer.lock_seconds)
        return ["stored" if x.delivery is None else next(stored) for x in batch]

    def _refuse(self, batch: list[_Waiting], reason: str) -> None:
        self._log_trouble(reason)
        self._answer(batch, ["not stored"] * len(batch))

    def _answer(
        self, batch: list[_Waiting], outcomes: list[Receipt], *, good: bool = False
    ) -> None:
        self._last_write = (time.monotonic(), good)
        for waiting, outcome in zip(batch, outcomes, strict=True):
            waiting.outcome = outcome
            waiting.answered.release()

    def _log_trouble(self, trouble: str | None) -> None:
        """Log once when storing fails, and once when it works again."""
        if trouble == self._trouble:
            return
        moment = time.monotonic()
        if self._trouble is None:
            self._trouble_since = moment
        if trouble is not None:
            _log.warning("cannot store webhooks", extra={"error": trouble})
        else:
            fields = {"error": self._trouble, "seconds": round(moment - self._trouble_since, 3)}
            _log.warning("webhooks are stored again", extra=fields)
        self._trouble = trouble
