"""Reads made by threads of this process, and the shape that all makers of reads have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nftsync.client import ClientConfig
from nftsync.fetchers import Fetchers
from nftsync.reads import Read, Task, read
from nftsync.store.tickets import TicketClock

__all__ = ["FetchThreads", "Reader"]


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


class FetchThreads:
    """Reads made by threads of this process."""

    def __init__(self, config: ClientConfig, tickets: TicketClock, threads: int) -> None:
        """Start the threads.

        Raises:
            SettingsError: the client cannot be made so.
        """
        self._client, self._health = config.connect()
        client = self._client
        self._fetchers: Fetchers[Task] = Fetchers(lambda task: read(client, tickets, task), threads)
        self.submit = self._fetchers.submit
        self.take = self._fetchers.take

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
