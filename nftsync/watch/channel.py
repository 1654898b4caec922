"""Connections to destinations, and the results of their attempts."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Literal, NamedTuple, TypeAlias

from nftsync.alerts import Destination
from nftsync.provider.config import ClientConfig
from nftsync.watch.texts import Outgoing

#: `refused`: uses up an attempt. `down`: uses up none. `gone`: stops the destination.
AttemptResult: TypeAlias = Literal["sent", "refused", "down", "gone"]


class SendResult(NamedTuple):
    """The result of an attempt, and a safe line about its error."""

    result: AttemptResult
    error: str | None = None
    retry_after: float | None = None


SENT = SendResult("sent")


class Channel(ABC):
    """Connection to a destination, for any number of threads."""

    def __init__(self, destination: Destination, config: ClientConfig) -> None:
        """Prepare to connect; InputError if the settings are unusable."""
        self.destination = destination
        self.timeout = config.timeout
        self.stopped = threading.Event()

    @abstractmethod
    def send(self, outgoing: Outgoing) -> SendResult:
        """Attempt a delivery."""

    def abort(self) -> None:
        """End current attempts, and refuse new ones."""
        self.stopped.set()

    def close(self) -> None:
        self.abort()
