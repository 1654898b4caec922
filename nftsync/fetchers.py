"""Threads that read the provider, with a bounded amount of work before and behind them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from nftsync.errors import Stopped
from nftsync.models import TokenRead, WalletRead

__all__ = ["Fetchers"]

Task = TypeVar("Task")
Read = WalletRead | TokenRead

#: What may wait to be written, in list entries: some tens of megabytes, however large wallets are.
_MOST_ENTRIES = 20_000


class Fetchers(Generic[Task]):
    """A fixed number of threads that turn tasks into reads.

    The threads are daemons: a process that ends does not wait for a provider that doesn't answer.
    """

    def __init__(self, read: Callable[[Task], Read], threads: int) -> None:
        """Start the threads.

        Args:
            read: makes a task's read; called by all threads.
            threads: how many.
        """
        self._read = read
        self._condition = threading.Condition()
        self._tasks: deque[Task] = deque()
        self._reads: deque[Read] = deque()
        self._waiting_entries = 0
        self._in_hand = 0
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
        with self._condition:
            self._closed = True
            self._tasks.clear()
            self._condition.notify_all()

    def join(self, seconds: float) -> None:
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
        with self._condition:
            return not (self._tasks or self._in_hand or self._reads)

    def submit(self, tasks: list[Task]) -> None:
        """Queue tasks."""
        with self._condition:
            self._tasks.extend(tasks)
            self._condition.notify_all()

    def take(self, entries: int, *, patience: float) -> list[Read]:
        """Take finished reads.

        Args:
            entries: about how many list entries to take at most; a read with none counts as one.
            patience: how long to wait for that many, in seconds.

        Raises:
            Exception: what a thread met that was not a failed read; all threads have stopped then.
        """
        with self._condition:
            self._condition.wait_for(
                lambda: (
                    self._fatal is not None
                    or self._waiting_entries >= entries
                    or not (self._tasks or self._in_hand)
                ),
                timeout=patience,
            )
            if self._fatal is not None:
                raise self._fatal
            taken: list[Read] = []
            while self._reads and entries > 0:
                read = self._reads.popleft()
                taken.append(read)
                entries -= _weight(read)
                self._waiting_entries -= _weight(read)
            self._condition.notify_all()
            return taken

    def _work(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(
                    lambda: self._closed or (self._tasks and self._waiting_entries < _MOST_ENTRIES)
                )
                if self._closed:
                    return
                task = self._tasks.popleft()
                self._in_hand += 1
            read: Read | None = None
            try:
                read = self._read(task)
            except Stopped:
                self.close()
            except Exception as error:  # noqa: BLE001 - raised again by take()
                self._fatal = error
                self.close()
            with self._condition:
                self._in_hand -= 1
                if read is not None:
                    self._reads.append(read)
                    self._waiting_entries += _weight(read)
                self._condition.notify_all()


def _weight(read: Read) -> int:
    return 1 + len(read.entries) if isinstance(read, WalletRead) else 1
