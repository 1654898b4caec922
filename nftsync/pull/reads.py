"""Reads of the provider: one from request to outcome, and many in threads."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

import msgspec

from nftsync.errors import ReadError, Stopped
from nftsync.provider.client import Client
from nftsync.provider.config import ClientConfig
from nftsync.provider.limits import GiveUpRule
from nftsync.provider.wire import WalletList
from nftsync.records import (
    NumberedEffort,
    ObjectRead,
    Outcome,
    SequenceNumbers,
    TokenRead,
    WalletRead,
)
from nftsync.threads import start_thread

if TYPE_CHECKING:
    from nftsync.provider.access import Access

#: The most finished reads that wait for the writer, in list entries: some tens of megabytes.
_MOST_ENTRIES = 10_000
#: Tasks that are taken ahead, so that there is work while the caller writes.
_MOST_TASKS = 2_500


class WalletTask(msgspec.Struct, frozen=True, tag="wallet", array_like=True):
    """A wallet to read, and what the mirror knows of its last response."""

    wallet_id: str
    etag: str | None = None
    digest: str | None = None


class TokenTask(msgspec.Struct, frozen=True, tag="token", array_like=True):
    """A token to read by its id."""

    token_id: str


class ObjectTask(msgspec.Struct, frozen=True, tag="object", array_like=True):
    """Another object to read, as webhooks name it, at a path and query below the base address."""

    resource_type: str
    resource_id: str
    path: str


#: What a sync reads, and what comes of it.
Task: TypeAlias = WalletTask | TokenTask
Read: TypeAlias = WalletRead | TokenRead
#: What webhooks ask for, and what comes of it.
AnyTask: TypeAlias = Task | ObjectTask
AnyRead: TypeAlias = Read | ObjectRead
#: What a task or a read is of: its kind, and the ids that name the object.
Subject: TypeAlias = tuple[str, ...]


def subject_of(of: AnyTask | AnyRead) -> Subject:
    """What a task asks for, or a read answers."""
    if isinstance(of, WalletTask | WalletRead):
        return ("wallet", of.wallet_id)
    if isinstance(of, TokenTask | TokenRead):
        return ("token", of.token_id)
    return ("object", of.resource_type, of.resource_id)


def afresh(read: Read) -> Task:
    """The task to make a read once more, unconditionally."""
    return WalletTask(read.wallet_id) if isinstance(read, WalletRead) else TokenTask(read.token_id)


def read(
    client: Client, numbers: SequenceNumbers, task: AnyTask
) -> Generator[float, None, AnyRead]:
    """Make a read; that it failed is an outcome, not an exception.

    Its number and time are those of the request that the outcome comes from.

    Yields the seconds to wait before each repeat. `Stopped` thrown in there makes it a failed read.

    Raises:
        InputError: the path of an object cannot be sent.
        SettingsError: the token command failed.
        Stopped: the client was stopped.
    """
    effort = NumberedEffort(numbers=numbers)
    found: dict[str, Any]
    try:
        if isinstance(task, WalletTask):
            answer = yield from client.balances(
                task.wallet_id, effort, etag=task.etag, known_digest=task.digest
            )
            found = _found_in(answer)
        elif isinstance(task, TokenTask):
            content = yield from client.token(task.token_id, effort)
            found = {"outcome": "ok", "content": content}
        else:
            body = yield from client.object(task.path, effort)
            found = {"outcome": "ok", "body": body.decode()}
    except ReadError as error:
        found = {"outcome": "failed", "error": str(error), "status": error.status}
        found |= {"provider_down": error.provider_down, "passing": error.passing}
    found |= {"sequence": effort.sequence, "started_at": effort.started_at}
    found["effort"] = effort.counts()
    if isinstance(task, WalletTask):
        return WalletRead(wallet_id=task.wallet_id, **found)
    if isinstance(task, TokenTask):
        return TokenRead(token_id=task.token_id, **found)
    return ObjectRead(resource_type=task.resource_type, resource_id=task.resource_id, **found)


def _found_in(answer: WalletList) -> dict[str, Any]:
    """What a read of a wallet found in the response."""
    outcome: Outcome = "unchanged" if answer.unchanged else "ok"
    error = None
    if answer.doubt is not None:
        outcome = "incomplete"
        error = (
            f"the answer has {answer.doubt} and may be one page of several: nothing was taken as "
            "removed; list it in ignore_fields, or set [paging]"
        )
    shown = {"entries": answer.entries, "digest": answer.digest, "etag": answer.etag}
    return {"outcome": outcome, "error": error, **shown}


_Task = TypeVar("_Task", bound=AnyTask)
_Read = TypeVar("_Read", bound=AnyRead)


class Reader(ABC, Generic[_Task, _Read]):
    """Turns tasks into reads, many at once. One thread submits and takes.

    What has been read waits, up to a bound in list entries, to be taken.
    """

    def __init__(self) -> None:
        # A condition for each side, so that a read wakes nobody it does not concern.
        self._lock = threading.Lock()
        self._may_read = threading.Condition(self._lock)
        self._may_take = threading.Condition(self._lock)
        self._unread: dict[Subject, _Task] = {}
        self._reads: deque[_Read] = deque()
        self._waiting_entries = 0
        self._wanted_entries = 0
        self._ended = False
        self._error: Exception | None = None

    @property
    @abstractmethod
    def reason(self) -> str | None:
        """Why going on has no point, or None."""

    @property
    def room(self) -> int:
        """How many more tasks it takes before it has caught up."""
        return max(0, _MOST_TASKS - len(self._unread))

    @property
    def idle(self) -> bool:
        """Nothing waits, is being read, or has still to be taken."""
        with self._lock:
            return not (self._unread or self._reads)

    def submit(self, tasks: Sequence[_Task]) -> None:
        """Queue tasks, each of an object that is not being read."""
        with self._lock:
            self._unread |= {subject_of(task): task for task in tasks}

    def take(self, entries: int, *, timeout: float) -> list[_Read]:
        """Take finished reads.

        Args:
            entries: about how many list entries to take at most; a read with none counts as one.
            timeout: how long to wait for that many, in seconds.

        Raises:
            Exception: what ended the reading, once; it was no failed read.
        """
        with self._lock:
            self._wanted_entries = entries
            self._may_take.wait_for(self._is_enough, timeout)
            if self._error is not None and not self._reads:
                error, self._error = self._error, None
                raise error
            was_full = self._is_full()
            taken: list[_Read] = []
            while self._reads and entries > 0:
                taken.append(self._reads.popleft())
                entries -= weight(taken[-1])
                self._waiting_entries -= weight(taken[-1])
            if was_full:
                self._may_read.notify_all()
            return taken

    @abstractmethod
    def stop(self) -> None:
        """Begin no more reads, and abandon those under way; what has been read can be taken."""

    def close(self) -> None:
        """Stop, and give up everything that is held."""
        self.stop()

    def _is_enough(self) -> bool:
        """There is no more to wait for: enough has been read, or all, or nothing more will be."""
        return self._ended or self._waiting_entries >= self._wanted_entries or not self._unread

    def _is_full(self) -> bool:
        return self._waiting_entries >= _MOST_ENTRIES

    def _put(self, reads: Sequence[_Read]) -> None:
        with self._lock:
            for each in reads:
                self._unread.pop(subject_of(each), None)
                self._waiting_entries += weight(each)
            self._reads.extend(reads)
            if self._is_enough():
                self._may_take.notify()

    def end(self, error: Exception | None = None) -> None:
        """Read nothing more, perhaps because of an error, which `take` then raises."""
        with self._lock:
            self._ended = True
            self._error = self._error or error
            self._may_read.notify_all()
            self._may_take.notify()


def weight(read: AnyRead) -> int:
    """How much work a read is to apply, in list entries; one with none counts as one."""
    return 1 + len(read.entries) if isinstance(read, WalletRead) else 1


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
