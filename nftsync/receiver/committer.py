"""Webhooks onto the disk: one thread commits all that wait, and each request waits for its own.

A request waits in its thread, or, where the server can reply later, in no thread.

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
from pathlib import Path
from typing import Literal, TypeAlias

from nftsync.errors import StoreError
from nftsync.receiver.checkpoints import Checkpoints
from nftsync.store.database import create_private_file, explained, file_at
from nftsync.store.inbox import Delivery, Stored, store, store_new
from nftsync.store.schema import open_store
from nftsync.times import now
from nftsync.wsgi import Later, Pending, Reply

__all__ = ["Committer", "DatabaseFile", "Outcome", "Trouble"]


class DatabaseFile:
    """The file at the database's path when the receiver began; created where it is missing.

    SQLite goes on writing to a file that was moved or removed, where nobody finds what it writes.
    Nor may another file be opened instead while this process has the first one open: the files
    beside a database (log, shared memory) go by its name, so the two would share them
    (https://sqlite.org/howtocorrupt.html, section 2.5). So nothing is written until the first file
    is back at its path, or a new process begins with what is there.

    Attributes:
        path: where it was, and is to be.

    Raises:
        StoreError: it cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with explained(path):
            create_private_file(path)
        self._identity = file_at(path)

    def check(self) -> None:
        """Make sure that it is where it was; only looks at the path and opens nothing.

        Raises:
            StoreError: there is no file at its path now, or another one.
        """
        if self._identity is None or file_at(self.path) != self._identity:
            raise StoreError(
                f"{self.path} was moved, removed or replaced while it was in use; put it back, or "
                "start again with what is there"
            )

    def open(self) -> sqlite3.Connection:
        """Open it to write it.

        Raises:
            StoreError: what `check` raises, or it is not nftsync's, or cannot be written.
        """
        self.check()
        connection = open_store(self.path)
        try:
            self.check()
        except StoreError:
            connection.close()
            raise
        return connection


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


#: What became of a webhook; `not stored`: there was no room, no lock or no time.
Outcome: TypeAlias = Stored | Literal["not stored"]

#: How long a request waits from when it is here; the provider's document gives the whole reply
#: 3 s (section Events).
_PATIENCE = 2.0
_MOST_AT_ONCE = 1_000
#: Between two tries for a lock that another process holds. SQLite's own waiting sleeps up to
#: 0.1 s between tries, in which a busy writer comes first again and again.
_RETRY = 0.003
#: How long a commit waits for those on their way, where they come in numbers from threads. Many
#: small commits cost more than the wait.
_GATHERING = 0.0005


# What one webhook's content can cause, and therefore not the others' fault.
_OWN_FAULT = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    UnicodeError,
    OverflowError,
)
# After these the connection is as good as before.
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_PASSING = {*_LOCKED, sqlite3.SQLITE_FULL}


class _Waiting:
    """A request that waits: for a webhook to be stored, or (None) for any write to succeed."""

    __slots__ = ("answered", "deadline", "delivery", "outcome", "pending")

    def __init__(self, delivery: Delivery | None, deadline: float) -> None:
        self.delivery = delivery
        self.deadline = deadline
        self.outcome: Outcome = "not stored"
        # One of them is set: the thread that waits, or the reply. A bare lock: an Event costs a
        # quarter of the whole commit.
        self.answered: threading.Lock | None = None
        self.pending: Pending | None = None

    def answer(self, outcome: Outcome) -> None:
        self.outcome = outcome
        if self.answered is not None:
            self.answered.release()
        elif self.pending is not None:
            self.pending.done()


class Committer:
    """The only writer of new webhooks in a process.

    Args:
        database: the database; created and migrated where that is due.
        on_stored: called after each commit that brought something for replay; must be quick and
            not fail.
        observe_commit: given the seconds that each commit took.
        on_broken: called once, from the thread that commits, with what it met that nobody foresaw;
            that thread has ended then, and nothing is stored any more. If None, it is raised there.
        patience: the seconds a request waits at most.

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
        patience: float = _PATIENCE,
    ) -> None:
        self._file = DatabaseFile(database)
        self._on_stored = on_stored
        self._observe_commit = observe_commit
        self._on_broken = on_broken
        self._patience = patience
        self._trouble = Trouble()
        # What requests put in, and what the thread has taken out of it.
        self._incoming: deque[_Waiting] = deque()
        self._bell = threading.Event()
        self._queue: deque[_Waiting] = deque()
        self._last_batch = 0
        self._closing = False
        self._connection: sqlite3.Connection | None = _prepared(self._file.open())
        self._checkpoints = Checkpoints(self._file)
        self._thread = threading.Thread(target=self._run, name="nftsync-inbox", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it takes webhooks."""
        return self._thread.is_alive() and not self._closing

    def submit(self, delivery: Delivery, received_at: float | None = None) -> Outcome:
        """Store a webhook and return once it is on disk, or cannot get there in time.

        Args:
            delivery: the webhook.
            received_at: when it was here (monotonic seconds); the time counts from then, or from
                now if None.
        """
        return self._wait(delivery, received_at)

    def submit_later(
        self,
        delivery: Delivery,
        received_at: float,
        later: Later,
        reply: Callable[[Outcome], Reply],
    ) -> Reply | None:
        """As `submit`, without waiting; `hand_over` is to follow.

        Args:
            delivery: the webhook.
            received_at: as for `submit`.
            later: the server's.
            reply: makes the reply.

        Returns:
            The reply, or None if it comes later.
        """
        waiting = self._waiting(delivery, received_at)
        if waiting is None:
            return reply("not stored")
        waiting.pending = later(waiting.deadline, lambda: reply(waiting.outcome))
        self._incoming.append(waiting)
        return None

    def hand_over(self) -> None:
        """Have the thread begin with all that `submit_later` was given.

        Were it woken for each of them, it would ask for the interpreter's lock while the server
        works on the others. The server then pays for a wake-up whenever it gives the lock away for
        a moment, and takes it back before the thread is there.
        """
        if self._incoming:
            self._bell.set()

    def probe(self, received_at: float | None = None) -> bool:
        """Tell whether the database takes writes, by a write in the same thread.

        Args:
            received_at: as for `submit`.
        """
        return self._wait(None, received_at) == "stored"

    def close(self) -> None:
        """Store what waits, then end the threads and close the database."""
        self._closing = True
        self._bell.set()
        self._thread.join()
        self._checkpoints.close()

    def _wait(self, delivery: Delivery | None, received_at: float | None) -> Outcome:
        waiting = self._waiting(delivery, received_at)
        if waiting is None:
            return "not stored"
        waiting.answered = threading.Lock()
        waiting.answered.acquire()
        self._incoming.append(waiting)
        self._bell.set()
        # Nothing tells the writer that the request gave up: it sees the same clock.
        waiting.answered.acquire(timeout=max(0.0, waiting.deadline - time.monotonic()))
        return waiting.outcome

    def _waiting(self, delivery: Delivery | None, received_at: float | None) -> _Waiting | None:
        """A request that is to wait, or None where that is in vain."""
        moment = time.monotonic()
        deadline = (moment if received_at is None else received_at) + self._patience
        return _Waiting(delivery, deadline) if deadline > moment and self.alive else None

    def _run(self) -> None:
        try:
            self._commit_until_the_end()
        except Exception as error:
            if self._on_broken is None:
                raise
            self._on_broken(error)

    def _commit_until_the_end(self) -> None:
        try:
            while self._wait_for_work():
                self._commit_all()
        finally:
            if self._connection is not None:
                self._connection.close()

    def _wait_for_work(self) -> bool:
        """Wait until somebody waits; False once all is done and the end was asked for."""
        while True:
            self._bell.clear()
            closing = self._closing
            self._gather()
            if self._queue or closing:
                break
            self._bell.wait()
        if self._last_batch > 1 and not closing and self._queue[0].pending is None:
            # Others are on their way: one commit for all costs less than several.
            time.sleep(_GATHERING)
        return bool(self._queue)

    def _gather(self) -> None:
        while self._incoming:
            self._queue.append(self._incoming.popleft())

    def _commit_all(self) -> None:
        if self._commit_new():
            return
        try:
            connection = self._begin()
        except (sqlite3.Error, StoreError) as error:
            self._fail(error, self._take())
            return
        if connection is None:
            return
        batch = self._take()
        try:
            outcomes = self._write(connection, batch)
        except _OWN_FAULT:
            self._roll_back(None)
            for waiting in batch:
                self._commit_one(waiting)
        except (sqlite3.Error, StoreError) as error:
            self._fail(error, batch)
        else:
            self._committed(connection, batch, outcomes)

    def _commit_new(self) -> bool:
        """Store all that wait in one step, unless there is more to it: then nothing is done."""
        self._gather()
        batch = list(self._queue)
        deliveries = [x.delivery for x in batch if x.delivery is not None]
        connection, moment = self._connection, time.monotonic()
        late = any(waiting.deadline <= moment for waiting in batch)
        if connection is None or late or len(deliveries) < len(batch):
            return False
        began = time.perf_counter()
        try:
            self._file.check()
            if not store_new(connection, deliveries, now()):
                return False
            self._file.check()  # or what was written is where nobody finds it
        except _OWN_FAULT:
            return False
        except (sqlite3.Error, StoreError) as error:
            self._roll_back(error)
            return False
        if self._observe_commit is not None:
            self._observe_commit(time.perf_counter() - began)
        self._queue.clear()
        self._last_batch = len(batch)
        self._committed(connection, batch, ["stored"] * len(batch))
        return True

    def _committed(
        self, connection: sqlite3.Connection, batch: list[_Waiting], outcomes: list[Outcome]
    ) -> None:
        self._trouble.over()
        self._answer(batch, outcomes)
        self._checkpoints.after_commit(connection, len(batch))

    def _commit_one(self, waiting: _Waiting) -> None:
        """Store one of a batch that failed as a whole."""
        try:
            connection = self._begin(waiting)
            outcomes = None if connection is None else self._write(connection, [waiting])
        except (*_OWN_FAULT, sqlite3.Error, StoreError) as error:
            self._fail(error, [waiting])
        else:
            self._answer([waiting], outcomes or ["not stored"])

    def _fail(self, error: Exception, batch: list[_Waiting]) -> None:
        self._trouble.met(str(error))
        self._roll_back(error)
        self._answer(batch, ["not stored"] * len(batch))

    def _answer(self, batch: list[_Waiting], outcomes: list[Outcome]) -> None:
        for waiting, outcome in zip(batch, outcomes, strict=True):
            waiting.answer(outcome)
        _wake(batch)
        if self._on_stored is not None and any(
            waiting.delivery is not None and waiting.outcome == "stored" for waiting in batch
        ):
            self._on_stored()

    def _begin(self, alone: _Waiting | None = None) -> sqlite3.Connection | None:
        """Begin a transaction, trying for the lock as long as anybody (or `alone`) waits for it."""
        while True:
            try:
                if self._connection is None:
                    self._connection = _prepared(self._file.open())
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if _code(error) not in _LOCKED:
                    raise
            else:
                return self._connection
            if alone is not None:
                if alone.deadline <= time.monotonic():
                    return None
            elif not self._drop_late():
                return None
            time.sleep(_RETRY)

    def _drop_late(self) -> bool:
        """Forget who no longer waits, and tell whether anybody still does."""
        self._gather()
        moment = time.monotonic()
        late = [waiting for waiting in self._queue if waiting.deadline <= moment]
        if late:
            self._queue = deque(waiting for waiting in self._queue if waiting.deadline > moment)
            for waiting in late:
                waiting.answer("not stored")
            _wake(late)
            self._trouble.met("the database stayed locked by another program")
        return bool(self._queue)

    def _take(self) -> list[_Waiting]:
        self._drop_late()
        count = min(len(self._queue), _MOST_AT_ONCE)
        self._last_batch = count
        return [self._queue.popleft() for _ in range(count)]

    def _write(self, connection: sqlite3.Connection, batch: list[_Waiting]) -> list[Outcome]:
        began = time.perf_counter()
        at = now()
        self._file.check()
        deliveries = [x.delivery for x in batch if x.delivery is not None]
        stored = iter(store(connection, deliveries, at) if deliveries else [])
        if len(deliveries) < len(batch):
            connection.execute("INSERT OR REPLACE INTO inbox_checks VALUES (1, ?)", (at,))
        connection.execute("COMMIT")
        self._file.check()  # or what was written is where nobody finds it
        if self._observe_commit is not None and deliveries:
            self._observe_commit(time.perf_counter() - began)
        return ["stored" if x.delivery is None else next(stored) for x in batch]

    def _roll_back(self, error: Exception | None) -> None:
        """Leave no transaction open, nor a connection that may be broken."""
        connection = self._connection
        if connection is None:
            return
        keep = error is None or _code(error) in _PASSING
        if connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except sqlite3.Error:
                keep = False
        if not keep:
            self._connection = None
            with suppress(sqlite3.Error):
                connection.close()


def _wake(batch: list[_Waiting]) -> None:
    """Have the servers of those that wait in no thread reply to all of them at once."""
    for wake in {waiting.pending.wake for waiting in batch if waiting.pending is not None}:
        wake()


def _prepared(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Make commits survive a power cut, waits short, and checkpoints someone else's work."""
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def _code(error: Exception) -> int:
    """The kind of an error of SQLite's, without its details."""
    return int(getattr(error, "sqlite_errorcode", -1)) & 0xFF
