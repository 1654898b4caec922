"""The threads that deliver webhooks."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from nftsync.errors import StoreError
from nftsync.sandbox.posting import Poster

if TYPE_CHECKING:
    from nftsync.sandbox.outbox import Outbox

__all__ = ["Sender"]

#: So many attempts at once: a receiver that lets some of them wait does not hold up the others.
_THREADS = 16

_log = logging.getLogger(__name__)


class Sender:
    """Delivers what is due in an outbox until it is closed; it is not started yet."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads."""
        if self._threads or self._stopped.is_set():
            return
        self._threads = [
            threading.Thread(target=self._work, name=f"nftsync-sender-{number}", daemon=True)
            for number in range(_THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Cut off the attempts under way, which are made again later, and end the threads."""
        self._stopped.set()
        self._outbox.close()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        poster = Poster(self._stopped)
        try:
            while self._one(poster):
                pass
        finally:
            poster.close()

    def _one(self, poster: Poster) -> bool:
        task = self._outbox.claim()
        if task is None:
            return False
        attempt = poster.post(task.url, task.delivery.body, task.signature)
        if attempt is None:
            self._outbox.put_back(task)
            return False
        try:
            self._outbox.settle(task, attempt)
        except StoreError as error:
            # Deliveries go on; what the file lacks is tried again after a restart.
            _log.error("%s", error)
        return True
