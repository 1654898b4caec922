"""A loop that is stopped: finished reads count, and no other read starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from nftsync.pull.loop import Policy, ReadLoop
from nftsync.pull.reads import Reader, Task, WalletTask, subject_of
from nftsync.records import Applied, OnRemovals, Read, WalletRead
from tests.kit.provider import wallet


class Waiting(Reader):
    """A reader whose reads finish when the test says so."""

    reason = None

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[Task] = []

    def submit(self, tasks: Sequence[Task]) -> None:
        super().submit(tasks)
        self.submitted += tasks

    def withdraw(self) -> list[Task]:
        tasks, self.submitted = self.submitted, []
        self._pending.clear()
        return tasks

    def finish(self, number: int, sequence: int = 1) -> None:
        origin = {"sequence": sequence, "started_at": "", "outcome": "ok"}
        self._put([WalletRead(wallet_id=wallet(number), **origin)])

    def stop(self) -> None:
        self._pending.clear()


class Listing(Policy[None]):
    """Lists the reads, and does more in their transaction."""

    def __init__(self, more: Callable[[], None]) -> None:
        self.reads: list[Read] = []
        self._more = more

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def apply(
        self,
        transaction: None,  # noqa: ARG002
        reads: Sequence[Read],
        removals: OnRemovals,  # noqa: ARG002
    ) -> list[Applied]:
        self.reads += reads
        return [Applied(read, "ok") for read in reads]

    def in_transaction(self, *_: object) -> None:
        self._more()


FIRST, SECOND = WalletTask(wallet(1)), WalletTask(wallet(2))


@pytest.mark.parametrize("change", ["request", "cancel"])
def test_a_finished_read_of_a_stopped_loop_may_request_or_cancel_others(change: str) -> None:
    def more() -> None:
        if change == "request":
            loop.request(SECOND, after=0)
        else:
            loop.cancel(subject_of(SECOND))

    reader = Waiting()
    policy = Listing(more)
    loop = ReadLoop(reader, policy)
    loop.request(FIRST, after=0)
    loop.step(0.0)
    reader.finish(1)
    if change == "cancel":
        loop.request(SECOND, after=0)
        loop.withdraw()
    submitted = list(reader.submitted)
    loop.stop()
    assert [subject_of(read) for read in policy.reads] == [subject_of(FIRST)]
    assert reader.submitted == submitted
    assert loop.idle


def test_a_read_that_began_before_its_request_is_repeated_without_counting_as_stale() -> None:
    reader = Waiting()
    policy = Listing(lambda: None)
    loop = ReadLoop(reader, policy)
    loop.request(FIRST, after=5)
    for sequence in (*range(1, 6), 6):
        loop.step(0.0)
        assert not loop.idle
        reader.finish(1, sequence)
        loop.step(0.0)
    assert loop.idle
    assert [read.sequence for read in policy.reads] == [1, 2, 3, 4, 5, 6]
