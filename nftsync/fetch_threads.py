"""Reads made by threads of this process, and the shape that all makers of reads have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar, cast

from nftsync.client import Access, ClientConfig
from nftsync.fetchers import Fetchers
from nftsync.reads import AnyRead, AnyTask, Read, Task, read
from nftsync.store.tickets import TicketClock

__all__ = ["FetchThreads", "Reader"]

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
