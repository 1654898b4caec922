"""Threads that read: each takes a due repeat or the next task; a wait for a repeat needs none."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from nftsync.errors import Stopped
from nftsync.provider.client import Client
from nftsync.provider.config import ClientConfig
from nftsync.provider.limits import GiveUpRule
from nftsync.pull.reads import AnyRead, AnyTask, Reader, read, subject_of
from nftsync.records import SequenceNumbers
from nftsync.threads import start_thread

if TYPE_CHECKING:
    from nftsync.provider.access import Access

_Task = TypeVar("_Task", bound=AnyTask)
_Read = TypeVar("_Read", bound=AnyRead)
#: A read that has been begun; see `read`.
_Reading: TypeAlias = Generator[float, None, AnyRead]


class Pool(Reader[_Task, _Read]):
    """A fixed number of threads of this process: `[Task, Read]`, or with objects `[AnyTask, …]`.

    The threads are daemons: nobody who stops them waits for a provider that does not answer.
    """

    def __init__(
        self,
        config: ClientConfig,
        numbers: SequenceNumbers,
        threads: int,
        access: Access | None = None,
        *,
        urgent: bool = False,
        rule: GiveUpRule | None = None,
    ) -> None:
        """Start the threads.

        Args:
            config: how to read the provider.
            numbers: where each read takes its number.
            threads: how many.
            access: rate limit and credentials shared with others; None for its own.
            urgent: these reads go before those of others that share the access and are not.
            rule: when to read no more; None: never.

        Raises:
            SettingsError: the client cannot be made so.
        """
        super().__init__()
        self._rule = rule
        self._client = Client(config, access, urgent=urgent, rule=rule)
        self._numbers = numbers
        self._tasks: deque[_Task] = deque()
        # With a number: what is due at the same time goes in the order in which it was postponed.
        self._postponed: list[tuple[float, int, _Reading]] = []
        self._places = count()
        for number in range(threads):
            start_thread(f"fetch-{number}", self._work, self.end)

    @property
    def reason(self) -> str | None:
        """Why going on has no point, or None."""
        return None if self._rule is None else self._rule.reason

    def submit(self, tasks: Sequence[_Task]) -> None:
        """Queue tasks, each of an object that is not being read."""
        super().submit(tasks)
        with self._lock:
            self._tasks.extend(tasks)
            self._may_read.notify(len(tasks))

    def withdraw(self) -> list[_Task]:
        """Take back the tasks that no thread has begun."""
        with self._lock:
            tasks = list(self._tasks)
            self._tasks.clear()
            for task in tasks:
                del self._unread[subject_of(task)]
            return tasks

    def stop(self) -> None:
        """Begin no more reads, and abandon those under way; what has been read can be taken.

        A read that waits for its repeat has been answered: it comes out as failed with that.
        """
        self._client.stop()
        self.end()
        with self._lock:
            waiting = [reading for _, _, reading in self._postponed]
            self._postponed.clear()
            self._unread.clear()
        for reading in waiting:
            try:
                reading.throw(Stopped("stopped"))
            except StopIteration as done:
                self._put([done.value])

    def close(self) -> None:
        """Stop, and close the connections."""
        self.stop()
        self._client.close()

    def _work(self) -> None:
        while (reading := self._take_turn()) is not None:
            try:
                wait = next(reading)
            except StopIteration as done:
                self._put([cast(_Read, done.value)])
                with self._lock:  # what it holds is let go only when there is room for more
                    self._may_read.wait_for(lambda: self._ended or not self._is_full())
            except Stopped:
                self.end()
            else:
                with self._lock:
                    due = time.monotonic() + wait
                    heappush(self._postponed, (due, next(self._places), reading))
            self._client.release()

    def _take_turn(self) -> _Reading | None:
        """Wait for a read to begin or repeat, a due repeat first; None: nothing more will be."""
        with self._lock:
            while not self._ended:
                wait = None
                if not self._is_full():
                    now = time.monotonic()
                    reading = None
                    if self._postponed and self._postponed[0][0] <= now:
                        reading = heappop(self._postponed)[2]
                    elif self._tasks:
                        reading = read(self._client, self._numbers, self._tasks.popleft())
                    if reading is not None:
                        if self._postponed:  # while this is read, another sees to the next
                            self._may_read.notify()
                        return reading
                    wait = self._postponed[0][0] - now if self._postponed else None
                self._may_read.wait(wait)
            return None
