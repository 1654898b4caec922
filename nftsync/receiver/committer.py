"""Store webhooks: one thread commits all waiting ones, and each request waits for its own.

A commit that survives a power cut waits for the disk. Requests that each made one would queue for
SQLite's write lock and for the disk; in one transaction they wait for both once.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from nftsync.errors import DamagedDatabase, StoreError
from nftsync.store.database import Checkpoints, FilesInUse, create_private_file, explained, kind_of
from nftsync.store.inbox import Delivery, Stored, store
from nftsync.store.schema import open_store
from nftsync.threads import start_thread
from nftsync.times import now

_log = logging.getLogger("nftsync.receiver")

#: What became of a webhook; `not stored`: there was no room, no lock or no time.
Outcome: TypeAlias = Stored | Literal["not stored"]

#: How long a request waits; the provider's document gives the whole reply 3 s (section Events).
_TIMEOUT = 2.0
#: How long it waits where the writer has been held up for longer than that: those that come one
#: after another then do not each wait 2 s in the few threads there are.
_LEAST_TIMEOUT = 0.1
_MOST_AT_ONCE = 1_000
#: Between two tries for a lock that another process holds. SQLite's own waiting sleeps up to
#: 0.1 s between tries, in which a busy writer comes first again and again.
_RETRY = 0.003
#: Webhooks between two checkpoints: they bring 40 MB where the inbox is large. A log that begins
#: anew is written over; one that is made longer costs the system twice as much.
_ROWS_BEFORE_CHECKPOINT = 4_000
#: How often it looks whether the files are still there while nothing comes.
_LOOK = 1.0
#: How long the last write tells whether the database takes writes.
_KNOWN = 1.0

# What one webhook's content can cause, and therefore not the others' fault.
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
    """A request that waits: for a webhook to be stored, or (None) for any write to succeed."""

    delivery: Delivery | None
    deadline: float
    outcome: Outcome = "not stored"
    #: Free once it is; an Event costs a quarter of the whole commit.
    answered: threading.Lock = field(default_factory=lambda: threading.Lock())


class Committer:
    """The only writer of new webhooks in a process.

    Args:
        database: the database; created and migrated where that is due.
        on_stored: called after each commit that brought something for replay; must be quick and
            not fail.
        observe_commit: given the seconds that each commit took.
        on_broken: called once, from the thread that commits, with the unexpected exception that
            ends it; from then on nothing is stored. If None, it is only logged.
        rows: how many it changes between two checkpoints.

    Raises:
        StoreError: the database cannot be opened, or is not nftsync's.
    """

    def __init__(
        self,
        database: Path,
        *,
        on_stored: Callable[[], None] | None = None,
        observe_commit: Callable[[float], None] | None = None,
        on_broken: Callable[[Exception], None] | None = None,
        rows: int = _ROWS_BEFORE_CHECKPOINT,
    ) -> None:
        self._database = database
        self._rows = rows
        with explained(database):
            create_private_file(database)
        self._files = FilesInUse(database)
        self._damage: str | None = None
        self._was_full = False
        self._on_stored = on_stored
        self._observe_commit = observe_commit
        self._trouble: str | None = None
        self._trouble_since = 0.0
        # What requests put in, and what the thread has taken out of it.
        self._incoming: deque[_Waiting] = deque()
        self._bell = threading.Event()
        self._queue: deque[_Waiting] = deque()
        self._closing = False
        self._trying_since: float | None = None  # when it began what it has not got done
        self._last_write = (0.0, False)
        self._connection: sqlite3.Connection | None = None
        self._checkpoints: Checkpoints | None = None
        self._connected()
        self._thread = start_thread("inbox", self._run, on_broken)

    @property
    def alive(self) -> bool:
        """Whether it takes webhooks."""
        return self._thread.is_alive() and not self._closing

    def takes_writes(self) -> bool:
        """Whether the database takes writes: what the last one showed, or a new one does."""
        moment, good = self._last_write
        if time.monotonic() - moment < _KNOWN:
            return good and self.alive
        return self.submit(None) == "stored"

    def refuse_from_now_on(self, reason: str) -> None:
        """Store nothing any more, until another process begins: it might be lost."""
        self._damage = self._damage or reason

    def close(self) -> None:
        """Store what waits, then end the thread and close the database."""
        self._closing = True
        self._bell.set()
        self._thread.join()

    def submit(self, delivery: Delivery | None) -> Outcome:
        """Store a webhook, and return once it is on disk or cannot get there in time.

        Args:
            delivery: the webhook; None: any write will do.
        """
        if not self.alive:
            return "not stored"
        moment = time.monotonic()
        since = self._trying_since or moment
        waiting = _Waiting(delivery, max(since + _TIMEOUT, moment + _LEAST_TIMEOUT))
        waiting.answered.acquire()
        self._incoming.append(waiting)
        self._bell.set()
        # Nothing tells the writer that the request gave up: it sees the same clock.
        waiting.answered.acquire(timeout=waiting.deadline - moment)
        return waiting.outcome

    def _run(self) -> None:
        try:
            while batch := self._next_batch():
                self._commit(batch)
        finally:
            self._disconnect()

    def _next_batch(self) -> list[_Waiting]:
        """Wait for requests; none once all is done and the end was asked for."""
        while True:
            self._bell.clear()
            closing = self._closing
            self._gather()
            if self._queue:
                break
            if closing:
                return []
            if not self._bell.wait(_LOOK):
                self._trying_since = None  # whatever kept it from writing may be over
                if self._connection is not None:
                    self._look()
        if self._trying_since is None:
            self._trying_since = time.monotonic()
        return [self._queue.popleft() for _ in range(min(len(self._queue), _MOST_AT_ONCE))]

    def _gather(self) -> None:
        """Take in what has come, and forget who no longer waits."""
        while self._incoming:
            self._queue.append(self._incoming.popleft())
        moment = time.monotonic()
        if late := [x for x in self._queue if x.deadline <= moment]:
            self._queue = deque(x for x in self._queue if x.deadline > moment)
            self._refuse(late, "the database stayed locked by another program")

    def _look(self) -> None:
        """Close the database if its files were moved: what their log holds is saved then."""
        try:
            self._files.check(self._connection)
        except (sqlite3.Error, StoreError) as error:
            if kind_of(error) not in _LOCKED:
                self._give_up(error)
                self._tell(str(error))

    def _give_up(self, error: Exception) -> None:
        """Close the database after an error that more of the same would follow."""
        kind = kind_of(error)
        if isinstance(error, DamagedDatabase) or kind in _DAMAGED:
            self.refuse_from_now_on(str(error))
        self._was_full = kind == sqlite3.SQLITE_FULL
        self._disconnect()

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
                self._queue.extendleft(reversed(batch))
                time.sleep(_RETRY)
                return
            self._give_up(error)
            self._refuse(batch, str(error))
        else:
            self._tell(None)
            self._answer(batch, outcomes)
            if self._on_stored is not None and any(
                x.delivery is not None and x.outcome == "stored" for x in batch
            ):
                self._on_stored()
            if self._checkpoints is not None:
                self._checkpoints.after_commit()
        self._trying_since = None

    def _write(self, batch: list[_Waiting]) -> list[Outcome]:
        if self._damage is not None:
            raise DamagedDatabase(self._damage)
        deliveries = [x.delivery for x in batch if x.delivery is not None]
        with self._connected() as connection:  # a transaction
            connection.execute("BEGIN IMMEDIATE")
            began, at = time.perf_counter(), now()
            self._files.check(connection)
            stored = iter(store(connection, deliveries, at) if deliveries else [])
            if len(deliveries) < len(batch):
                connection.execute("INSERT OR REPLACE INTO inbox_checks VALUES (1, ?)", (at,))
        self._files.check()  # or what was written is where nobody finds it
        if self._observe_commit is not None and deliveries:
            self._observe_commit(time.perf_counter() - began)
        return ["stored" if x.delivery is None else next(stored) for x in batch]

    def _refuse(self, batch: list[_Waiting], reason: str) -> None:
        self._tell(reason)
        self._answer(batch, ["not stored"] * len(batch))

    def _answer(self, batch: list[_Waiting], outcomes: list[Outcome]) -> None:
        self._last_write = (time.monotonic(), "not stored" not in outcomes)
        for waiting, outcome in zip(batch, outcomes, strict=True):
            waiting.outcome = outcome
            waiting.answered.release()

    def _tell(self, trouble: str | None) -> None:
        """Log that webhooks cannot be stored, and that they are again; once each."""
        if trouble == self._trouble:
            return
        moment = time.monotonic()
        if self._trouble is None:
            self._trouble_since = moment
        if trouble is not None:
            _log.warning("cannot store webhooks", extra={"error": trouble})
        else:
            seconds = round(moment - self._trouble_since, 3)
            fields = {"error": self._trouble, "seconds": seconds}
            _log.warning("webhooks are stored again", extra=fields)
        self._trouble = trouble

    def _connected(self) -> sqlite3.Connection:
        """The connection; commits on it survive a power cut, and nothing waits for a lock.

        Raises:
            StoreError: what `FilesInUse` raises, or it is not nftsync's, or cannot be written.
        """
        if self._connection is None:
            self._files.check()
            self._connection = open_store(self._database)
            self._files.opened()
            self._files.check()
            self._connection.executescript("PRAGMA synchronous = FULL; PRAGMA busy_timeout = 0")
            self._checkpoints = Checkpoints(self._database, self._connection, rows=self._rows)
            if self._was_full:
                self._checkpoints.empty_log()  # first, or the log takes whatever room was made
        return self._connection

    def _disconnect(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close(empty_log=not self._files.in_place)
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._files.closed()
        self._checkpoints = self._connection = None
