"""The loop of every sync, replay and verification: task → read → apply → result.

The loop keeps tasks in flight, repeats stale reads, applies the finished reads of a step in one
transaction, and lets reads with removals wait for a joint decision. A `Policy` has the differences.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from nftsync.pull.reads import Reader, Subject, Task, WalletTask, subject_of, weight
from nftsync.pull.waiting_reads import WaitingReads
from nftsync.records import Applied, OnRemovals, Read
from nftsync.store.mirror import BatchSize, Mirror

#: The error of a read that stays stale.
STALE = "newer reads kept making this read stale"
#: Limit of repeats of a stale read.
_MOST_STALE = 3

_Open = TypeVar("_Open")


class Policy(ABC, Generic[_Open]):
    """Differences between a sync, a replay and a verification.

    The loop opens `transaction`, calls `apply` and `in_transaction` in it, and then `after_commit`.
    A kill between the last two loses nothing that the database needs.
    """

    @abstractmethod
    def transaction(self) -> AbstractContextManager[_Open]:
        """Open the transaction of a step; the work that it is for may be lost meanwhile."""

    @abstractmethod
    def apply(
        self, transaction: _Open, reads: Sequence[Read], removals: OnRemovals
    ) -> list[Applied]:
        """Apply reads, or some of them; return all, as each also counts."""

    def in_transaction(self, transaction: _Open, applied: Sequence[Applied]) -> None:
        """Store everything that must be committed together with the reads."""

    def after_commit(self, applied: Sequence[Applied]) -> None:
        """Note failures."""


class _Request:
    """A read that was requested, and has no result yet.

    Only a read with a sequence number above `after` will do; None: no read is needed any more.
    """

    __slots__ = ("after", "in_flight", "stale", "task")

    def __init__(self, task: Task, after: int, *, in_flight: bool = False) -> None:
        self.task = task
        self.after: int | None = after
        self.in_flight = in_flight
        self.stale = 0


class ReadLoop(Generic[_Open]):
    """Reads that a reader makes and a policy applies; for one thread.

    Without `fills_batches`, a step waits only for its first read. `waited` is how long the last
    step waited, in seconds. While `releasing`, transactions apply reads that waited for a decision.
    """

    def __init__(
        self,
        reader: Reader,
        policy: Policy[_Open],
        waiting: WaitingReads | None = None,
        mirror: Mirror | None = None,
        *,
        fills_batches: bool = True,
    ) -> None:
        self.waiting = WaitingReads(None) if waiting is None else waiting
        self.waited = 0.0
        self.releasing = False
        self._reader = reader
        self._policy = policy
        self._mirror = mirror
        self._fills_batches = fills_batches
        self._requests: dict[Subject, _Request] = {}
        self._unsubmitted: dict[Subject, Task] = {}
        self._batch = BatchSize()
        self._stopped = False

    @property
    def idle(self) -> bool:
        return self._reader.idle and not self._unsubmitted

    @property
    def unfinished(self) -> int:
        """The number of requested reads without a result, except those that wait."""
        return len(self._requests.keys() - set(self.waiting.subjects))

    def is_in_flight(self, subject: Subject) -> bool:
        """Return whether an object's read is in flight, or waits for a decision."""
        request = self._requests.get(subject)
        return request is not None and request.in_flight

    # Requests --------------------------------------------------------------------------------

    def request(self, task: Task, after: int) -> None:
        """Request a read with a sequence number greater than `after`.

        A read in flight serves the request if it turns out to be new enough.
        """
        subject = subject_of(task)
        request = self._requests.setdefault(subject, _Request(task, after))
        if not request.in_flight:
            request.task = self._unsubmitted[subject] = task
        request.after = max(request.after or 0, after)

    def request_some(self, tasks: Iterator[Task]) -> bool:
        """Request reads while the reader has room; return whether more may be left."""
        return self._reader.submit_some(self._in_flight(tasks))

    def _in_flight(self, tasks: Iterator[Task]) -> Iterator[Task]:
        for task in tasks:
            self._requests[subject_of(task)] = _Request(task, 0, in_flight=True)
            yield task

    def cancel(self, subject: Subject) -> None:
        """Withdraw a request; a read in flight is still applied, but not repeated."""
        request = self._requests.get(subject)
        if request is not None and request.in_flight:
            request.after, request.stale = None, 0
        elif request is not None:
            del self._requests[subject]
            self._unsubmitted.pop(subject, None)

    def withdraw(self) -> None:
        """Take back the reads that have not started, until the next step."""
        for task in self._reader.withdraw():
            subject = subject_of(task)
            request = self._requests[subject]
            request.in_flight = False
            if request.after is None:
                del self._requests[subject]
            else:
                self._unsubmitted[subject] = task

    def drop_waiting(self) -> None:
        for subject in self.waiting.subjects:
            self._requests.pop(subject, None)
        self.waiting.forget()

    def replace_reader(self, reader: Reader) -> None:
        """Continue with another reader, and forget all reads in flight."""
        self._reader.close()
        self._reader = reader
        requests = self._requests.items()
        self._requests = {subject: one for subject, one in requests if not one.in_flight}

    # Steps -----------------------------------------------------------------------------------

    def feed(
        self,
        tasks: Iterable[Task],
        is_over: Callable[[], bool],
        timeout: float,
        advance: Callable[[int], object] = lambda _: None,
    ) -> None:
        """Read everything, unless `is_over`; `advance` gets the number of further objects."""
        left, more = iter(tasks), True
        while not is_over() and (more or not self.idle):
            more = more and self.request_some(left)
            advance(sum(one.result != "stale" for one in self.step(timeout)))

    def step(self, timeout: float) -> list[Applied]:
        """Submit requested reads, and apply finished reads after at most `timeout` seconds."""
        if not self._stopped:
            self._submit()
        began = time.monotonic()
        reads = self._take(timeout)
        self.waited = time.monotonic() - began
        if not reads:
            return []
        removals: OnRemovals = "apply" if self.waiting.limits is None else "stage"
        return self._write(lambda transaction: self._policy.apply(transaction, reads, removals))

    def _submit(self) -> None:
        for subject in self._unsubmitted:
            self._requests[subject].in_flight = True
        self._reader.submit(list(self._unsubmitted.values()))
        self._unsubmitted.clear()

    def _take(self, timeout: float) -> list[Read]:
        if self._reader.idle:
            return []
        if self._fills_batches:
            return self._reader.take(self._batch.entries, timeout=timeout)
        reads = self._reader.take(1, timeout=timeout)
        return reads + self._reader.take(self._batch.entries, timeout=0.0) if reads else []

    def release(self) -> bool:
        """Decide on the waiting reads, and apply them; return whether there were any."""
        if not self.waiting or self._mirror is None:
            return False
        self.waiting.decide(self._mirror.connection)
        self.waited, self.releasing = 0.0, True
        while self.waiting:
            self._write(self._release_some)
        self.releasing = False
        return True

    def _release_some(self, transaction: _Open) -> list[Applied]:
        # Taken within the transaction: whoever lost the work while waiting for it has none left.
        reads = self.waiting.decision.by_effect(self.waiting.take(self._batch.entries))
        apply = self._policy.apply
        return [one for how, some in reads.items() for one in apply(transaction, some, how)]

    def stop(self) -> None:
        """Abandon unfinished reads, and apply the finished ones; nothing is repeated."""
        self._stopped = True
        self._reader.stop()
        while not self._reader.idle:
            self.step(0.0)
        self._requests.clear()
        self._unsubmitted.clear()

    def close(self) -> None:
        self._reader.close()

    def _write(self, apply: Callable[[_Open], list[Applied]]) -> list[Applied]:
        with self._policy.transaction() as transaction:
            applied = [self._settled(one) for one in apply(transaction)]
            self._policy.in_transaction(transaction, applied)
        if self._mirror is not None:
            self._batch.learn(sum(weight(one.read) for one in applied), self._mirror.lock_seconds)
        self._policy.after_commit(applied)
        return applied

    def _settled(self, applied: Applied) -> Applied:
        """Return a read's result, and request another read if this one does not suffice."""
        read, subject = applied.read, subject_of(applied.read)
        if applied.result == "staged" and applied.removals is not None:
            self.waiting.add(read, applied.removals)
            return applied
        request = self._requests.get(subject)
        if request is None or request.after is None or self._stopped:
            self._requests.pop(subject, None)
            return applied
        if applied.result == "stale":
            request.stale += 1
            if request.stale <= _MOST_STALE:
                self._repeat(subject, request)
                return applied
            applied = applied._replace(result="failed")
        if read.sequence <= request.after:
            request.stale = 0
            self._repeat(subject, request)
        else:
            del self._requests[subject]
        return applied

    def _repeat(self, subject: Subject, request: _Request) -> None:
        # Unconditionally, because the state to compare with may be gone.
        task = request.task
        request.task = WalletTask(task.wallet_id) if isinstance(task, WalletTask) else task
        request.in_flight = False
        self._unsubmitted[subject] = request.task
