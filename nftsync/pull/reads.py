"""Reads of the provider."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count, islice
from typing import Any, TypeAlias

import msgspec

from nftsync.errors import ReadError, Stopped
from nftsync.provider.client import Access, Client
from nftsync.provider.config import ClientConfig
from nftsync.provider.new_fields import of_content
from nftsync.provider.rate_limit import GiveUpRule
from nftsync.provider.wire import WalletList
from nftsync.records import (
    NumberedEffort,
    ObjectRead,
    Outcome,
    Read,
    SequenceNumbers,
    TokenRead,
    WalletRead,
)
from nftsync.threads import start_thread

#: Limit of finished reads that wait for the writer, in entries: some tens of megabytes.
_MOST_ENTRIES = 10_000
#: Tasks queued ahead, so that the threads have work while the caller writes.
_MOST_TASKS = 2_500


class WalletTask(msgspec.Struct, frozen=True, tag="wallet", array_like=True):
    """A wallet to read, with the ETag and digest of its last response."""

    wallet_id: str
    etag: str | None = None
    digest: str | None = None


class TokenTask(msgspec.Struct, frozen=True, tag="token", array_like=True):
    """A token to read."""

    token_id: str


class ObjectTask(msgspec.Struct, frozen=True, tag="object", array_like=True):
    """An object to read at a path and query below the base URL."""

    resource_type: str
    resource_id: str
    path: str


Task: TypeAlias = WalletTask | TokenTask | ObjectTask
#: The object of a task or read: its kind and ids.
Subject: TypeAlias = tuple[str, ...]


def subject_of(item: Task | Read) -> Subject:
    """Return the kind and ids of the object that a task or read concerns."""
    if isinstance(item, WalletTask | WalletRead):
        return ("wallet", item.wallet_id)
    if isinstance(item, TokenTask | TokenRead):
        return ("token", item.token_id)
    return ("object", item.resource_type, item.resource_id)


def read(client: Client, numbers: SequenceNumbers, task: Task) -> Generator[float, None, Read]:
    """Read an object; a failed read is an outcome, not an exception.

    Yields the seconds to wait before each retry; if the caller throws `Stopped` there, the result
    is a failed read. The sequence number and start time belong to the last request.
    """
    effort = NumberedEffort(numbers=numbers)
    fields: dict[str, Any] = {"outcome": "ok"}
    try:
        if isinstance(task, WalletTask):
            response = yield from client.balances(
                task.wallet_id, effort, etag=task.etag, known_digest=task.digest
            )
            fields = _wallet_fields(response)
        elif isinstance(task, TokenTask):
            fields["content"] = yield from client.token(task.token_id, effort)
            fields["new_fields"] = [*of_content(fields["content"], task.token_id).values()]
        else:
            fields["body"] = (yield from client.object(task.path, effort)).decode()
    except ReadError as error:
        fields = {name: getattr(error, name) for name in ("status", "provider_down", "passing")}
        fields |= {"outcome": "failed", "error": str(error)}
    fields |= {"sequence": effort.sequence, "started_at": effort.started_at}
    fields |= {"effort": effort.counts(), "volatile": client.volatile_fields}
    if isinstance(task, WalletTask):
        return WalletRead(wallet_id=task.wallet_id, **fields)
    if isinstance(task, TokenTask):
        return TokenRead(token_id=task.token_id, **fields)
    return ObjectRead(resource_type=task.resource_type, resource_id=task.resource_id, **fields)


def _wallet_fields(response: WalletList) -> dict[str, Any]:
    outcome: Outcome = "unchanged" if response.unchanged else "ok"
    error = None
    if response.doubt is not None:
        outcome = "incomplete"
        error = (
            f"the response has {response.doubt} and may be one page of several, so nothing was "
            "removed. List it in ignore_fields, or set [paging]"
        )
    content = {"entries": response.entries, "digest": response.digest, "etag": response.etag}
    news = [*response.new_fields.values()]
    return {"outcome": outcome, "error": error, "new_fields": news, **content}


class Reader(ABC):
    """Parallel reads, for one thread that submits tasks and takes reads."""

    def __init__(self) -> None:
        # Two conditions, so that a finished read wakes only the thread that takes.
        self._lock = threading.Lock()
        self._may_read = threading.Condition(self._lock)
        self._may_take = threading.Condition(self._lock)
        self._pending: dict[Subject, Task] = {}
        self._reads: deque[Read] = deque()
        self._waiting_entries = 0
        self._wanted_entries = 0
        self._ended = False
        self._error: Exception | None = None

    @property
    @abstractmethod
    def reason(self) -> str | None:
        """The reason to stop reading altogether, or None."""

    @property
    def idle(self) -> bool:
        with self._lock:
            return not (self._pending or self._reads)

    def submit(self, tasks: Sequence[Task]) -> None:
        with self._lock:
            self._pending |= {subject_of(task): task for task in tasks}

    def submit_some(self, tasks: Iterator[Task]) -> bool:
        """Submit tasks while there is room; return whether more may be left."""
        room = max(0, _MOST_TASKS - len(self._pending))
        some = list(islice(tasks, room))
        self.submit(some)
        return len(some) == room

    def take(self, entries: int, *, timeout: float) -> list[Read]:
        """Take finished reads.

        Args:
            entries: approximate limit, by `weight`.
            timeout: seconds to wait for that many.
        """
        with self._lock:
            self._wanted_entries = entries
            self._may_take.wait_for(self._is_enough, timeout)
            if self._error is not None and not self._reads:
                error, self._error = self._error, None
                raise error
            was_full = self._is_full()
            taken: list[Read] = []
            while self._reads and entries > 0:
                taken.append(self._reads.popleft())
                entries -= weight(taken[-1])
                self._waiting_entries -= weight(taken[-1])
            if was_full:
                self._may_read.notify_all()
            return taken

    def withdraw(self) -> list[Task]:
        """Take back the tasks that no thread has started, if the reader knows which."""
        return []

    @abstractmethod
    def stop(self) -> None:
        """Abandon unfinished reads; finished reads can still be taken."""

    def close(self) -> None:
        self.stop()

    def _is_enough(self) -> bool:
        return self._ended or self._waiting_entries >= self._wanted_entries or not self._pending

    def _is_full(self) -> bool:
        return self._waiting_entries >= _MOST_ENTRIES

    def _put(self, reads: Sequence[Read]) -> None:
        with self._lock:
            for read in reads:
                self._pending.pop(subject_of(read), None)
                self._waiting_entries += weight(read)
            self._reads.extend(reads)
            if self._is_enough():
                self._may_take.notify()

    def end(self, error: Exception | None = None) -> None:
        """Start no more reads; `take` raises the error, if any."""
        with self._lock:
            self._ended = True
            self._error = self._error or error
            self._may_read.notify_all()
            self._may_take.notify()


def weight(read: Read) -> int:
    """Return the work to apply a read: 1, plus its entries."""
    return 1 + len(read.entries) if isinstance(read, WalletRead) else 1


#: A read in progress; see `read`.
_Reading: TypeAlias = Generator[float, None, Read]


class Pool(Reader):
    """Reader with threads in this process.

    The threads are daemons, so a provider that does not respond cannot delay an exit.
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

        With `access`, the pool shares rate limit and credentials with other readers; `urgent` reads
        go before the others. Without a `rule`, the pool never gives up.
        """
        super().__init__()
        self._rule = rule
        self._client = Client(config, access, urgent=urgent, rule=rule)
        self._numbers = numbers
        self._tasks: deque[Task] = deque()
        # The number keeps the order of retries that are due at the same time.
        self._retries: list[tuple[float, int, _Reading]] = []
        self._retry_numbers = count()
        for number in range(threads):
            start_thread(f"fetch-{number}", self._work, self.end)

    @property
    def reason(self) -> str | None:
        return None if self._rule is None else self._rule.reason

    def submit(self, tasks: Sequence[Task]) -> None:
        super().submit(tasks)
        with self._lock:
            self._tasks.extend(tasks)
            self._may_read.notify(len(tasks))

    def withdraw(self) -> list[Task]:
        with self._lock:
            tasks = list(self._tasks)
            self._tasks.clear()
            for task in tasks:
                del self._pending[subject_of(task)]
            return tasks

    def stop(self) -> None:
        """See `Reader`. A read that waits for a retry fails with its last error."""
        self._client.stop()
        self.end()
        with self._lock:
            interrupted = [reading for _, _, reading in self._retries]
            self._retries.clear()
            self._pending.clear()
        for reading in interrupted:
            try:
                reading.throw(Stopped("stopped"))
            except StopIteration as done:
                self._put([done.value])

    def close(self) -> None:
        self.stop()
        self._client.close()

    def _work(self) -> None:
        while (reading := self._next_reading()) is not None:
            try:
                wait = next(reading)
            except StopIteration as done:
                self._put([done.value])
                with self._lock:  # keep the response's memory until there is room for more
                    self._may_read.wait_for(lambda: self._ended or not self._is_full())
            except Stopped:
                self.end()
            else:
                with self._lock:
                    due = time.monotonic() + wait
                    heappush(self._retries, (due, next(self._retry_numbers), reading))
            self._client.release()

    def _next_reading(self) -> _Reading | None:
        """Wait for a due retry or a task; return None when the pool has ended."""
        with self._lock:
            while not self._ended:
                wait = None
                if not self._is_full():
                    now = time.monotonic()
                    reading = None
                    if self._retries and self._retries[0][0] <= now:
                        reading = heappop(self._retries)[2]
                    elif self._tasks:
                        reading = read(self._client, self._numbers, self._tasks.popleft())
                    if reading is not None:
                        if self._retries:  # another thread handles the next retry meanwhile
                            self._may_read.notify()
                        return reading
                    wait = self._retries[0][0] - now if self._retries else None
                self._may_read.wait(wait)
            return None
