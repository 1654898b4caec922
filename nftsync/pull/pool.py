"""Reads made by threads of this process, and the shape that all makers of reads have."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar, cast

from nftsync.errors import Stopped
from nftsync.provider import Access, ClientConfig
from nftsync.pull.reads import AnyRead, AnyTask, Read, Task, read
from nftsync.records import WalletRead
from nftsync.store.clock import TicketClock

__all__ = ["FetchThreads", "Fetchers", "Reader"]


_T = TypeVar("_T")
_R = TypeVar("_R")

#: What may wait to be written, in list entries: some tens of megabytes, however large wallets are.
_MOST_ENTRIES = 20_000

#: How often it is looked at how busy the threads keep the interpreter, in seconds, and the shares
#: of that time beyond which fewer, and below which more of them work.
_LOOK_SECONDS = 0.1
_TOO_BUSY = 0.65
_IDLE = 0.4


class Fetchers(Generic[_T, _R]):
    """A fixed number of threads that turn tasks into reads.

    The threads are daemons: a process that ends does not wait for a provider that doesn't answer.
    """

    def __init__(self, read: Callable[[_T], _R], threads: int) -> None:
        """Start the threads.

        Args:
            read: makes a task's read; called by all threads.
            threads: how many.
        """
        self._read = read
        # One lock, and a condition for each side, so that a read wakes nobody it does not concern.
        self._lock = threading.Lock()
        self._may_fetch = threading.Condition(self._lock)
        self._may_take = threading.Condition(self._lock)
        self._wanted = 0
        self._tasks: deque[_T] = deque()
        self._reads: deque[_R] = deque()
        self._waiting_entries = 0
        self._in_hand = 0
        self._at_once = threads
        self._busy_seconds = 0.0
        self._busy_since = time.monotonic()
        self._most_tasks = 4 * threads + 256
        self._fatal: Exception | None = None
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"nftsync-fetch-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the threads end after the read each has in hand."""
        with self._lock:
            self._closed = True
            self._tasks.clear()
            self._may_fetch.notify_all()
            self._may_take.notify_all()

    def join(self, seconds: float = 2.0) -> None:
        """Wait for the threads to end, for about that long."""
        for thread in self._threads:
            thread.join(seconds / len(self._threads))

    @property
    def room(self) -> int:
        """How many more tasks are taken before the threads have caught up."""
        return max(0, self._most_tasks - len(self._tasks))

    @property
    def idle(self) -> bool:
        """Nothing waits, is being read, or has still to be taken."""
        with self._lock:
            return not (self._tasks or self._in_hand or self._reads)

    def submit(self, tasks: Sequence[_T]) -> None:
        """Queue tasks."""
        with self._lock:
            self._tasks.extend(tasks)
            self._may_fetch.notify(len(tasks))

    def withdraw(self) -> list[_T]:
        """Take back the tasks that no thread has begun."""
        with self._lock:
            tasks = list(self._tasks)
            self._tasks.clear()
            self._may_take.notify()
            return tasks

    def take(self, entries: int, *, patience: float) -> list[_R]:
        """Take finished reads.

        Args:
            entries: about how many list entries to take at most; a read with none counts as one.
            patience: how long to wait for that many, in seconds.

        Raises:
            Exception: what a thread met that was not a failed read; all threads have stopped then.
        """
        with self._lock:
            self._wanted = entries
            self._may_take.wait_for(self._enough, timeout=patience)
            if self._fatal is not None:
                raise self._fatal
            self._pace_threads(0.0)  # also while no read ends, as when the provider stalls
            was_full = self._waiting_entries >= _MOST_ENTRIES
            taken: list[_R] = []
            while self._reads and entries > 0:
                read = self._reads.popleft()
                taken.append(read)
                entries -= _weight(read)
                self._waiting_entries -= _weight(read)
            if was_full:
                self._may_fetch.notify_all()
            return taken

    def _enough(self) -> bool:
        """There is no more to wait for: enough has been read, or all, or nothing more will be."""
        return (
            self._fatal is not None
            or self._waiting_entries >= self._wanted
            or not (self._tasks or self._in_hand)
        )

    def _may_go_on(self) -> bool:
        return self._closed or (
            bool(self._tasks)
            and self._in_hand < self._at_once
            and self._waiting_entries < _MOST_ENTRIES
        )

    def _pace_threads(self, busy_seconds: float) -> None:
        """Let fewer threads work while they keep the interpreter busy, and more while they wait.

        A provider that answers at once keeps one thread busy; more would only take the
        interpreter's lock from each other, which halves what they get done.
        """
        self._busy_seconds += busy_seconds
        passed = time.monotonic() - self._busy_since
        if passed < _LOOK_SECONDS:
            return
        busy = self._busy_seconds / passed
        if busy > _TOO_BUSY:
            self._at_once = max(1, self._at_once // 2)
        elif busy < _IDLE and self._at_once < len(self._threads):
            self._at_once = min(len(self._threads), self._at_once * 3 // 2 + 1)
            self._may_fetch.notify_all()
        self._busy_seconds, self._busy_since = 0.0, time.monotonic()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._may_fetch.wait_for(self._may_go_on)
                if self._closed:
                    return
                task = self._tasks.popleft()
                self._in_hand += 1
            read: _R | None = None
            began = time.thread_time()
            try:
                read = self._read(task)
            except Stopped:
                self.close()
            except Exception as error:  # noqa: BLE001 - raised again by take()
                self._fatal = error
                self.close()
            with self._lock:
                self._in_hand -= 1
                self._pace_threads(time.thread_time() - began)
                if read is not None:
                    self._reads.append(read)
                    self._waiting_entries += _weight(read)
                if self._enough():
                    self._may_take.notify()


def _weight(read: object) -> int:
    return 1 + len(read.entries) if isinstance(read, WalletRead) else 1


_Task = TypeVar("_Task", bound=AnyTask)
_Read = TypeVar("_Read", bound=AnyRead)


class Reader(Protocol):
    """Turns tasks into reads, many at once."""

    @property
    def verdict(self) -> str | None:
        """Why going on has no point, or None."""

    @property
    def room(self) -> int:
        """How many more tasks it takes before it has caught up."""

    @property
    def idle(self) -> bool:
        """Nothing waits, is being read, or has still to be taken."""

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue tasks."""

    def take(self, entries: int, *, patience: float) -> list[Read]:
        """Take finished reads, of about so many list entries; wait so many seconds for them."""

    def stop(self) -> None:
        """Begin no more reads, and end those under way; what has been read can still be taken."""

    def close(self) -> None:
        """Stop, and give up everything that is held."""


class FetchThreads(Generic[_Task, _Read]):
    """Reads made by threads of this process: `[Task, Read]`, or with objects `[AnyTask, AnyRead]`.

    Attributes:
        submit: queues tasks.
        take: takes finished reads, of about so many list entries; waits so many seconds for them.
        withdraw: takes back the tasks that no thread has begun.
    """

    def __init__(
        self,
        config: ClientConfig,
        tickets: TicketClock,
        threads: int,
        access: Access | None = None,
        urgent: bool = False,
    ) -> None:
        """Start the threads.

        Args:
            config: how to read the provider.
            tickets: where each read takes its number.
            threads: how many.
            access: pace and credentials that are shared with others; None for some of its own.
            urgent: these reads go before those of others that share the access and are not.

        Raises:
            SettingsError: the client cannot be made so.
        """
        self._client, self._health = config.connect(access, urgent=urgent)
        client = self._client

        def make(task: _Task) -> _Read:
            return cast(_Read, read(client, tickets, task))

        self._fetchers: Fetchers[_Task, _Read] = Fetchers(make, threads)
        self.submit = self._fetchers.submit
        self.take = self._fetchers.take
        self.withdraw = self._fetchers.withdraw

    @property
    def verdict(self) -> str | None:
        """Why going on has no point, or None."""
        return self._health.verdict

    @property
    def room(self) -> int:
        """How many more tasks it takes before it has caught up."""
        return self._fetchers.room

    @property
    def idle(self) -> bool:
        """Nothing waits, is being read, or has still to be taken."""
        return self._fetchers.idle

    def stop(self) -> None:
        """Begin no more reads, and end those under way; what has been read can still be taken."""
        self._client.pace.stopped.set()
        self._fetchers.close()
        self._fetchers.join()

    def close(self) -> None:
        """Stop, and close the connections."""
        self.stop()
        self._client.close()
