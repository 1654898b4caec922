"""Threads that report the exception that ended them to their owner.

A thread that ends unnoticed can leave others waiting forever, so a lint rule refuses
`threading.Thread` elsewhere.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from nftsync.errors import NftsyncError

_log = logging.getLogger("nftsync")


def start_thread(
    name: str, work: Callable[[], object], on_failure: Callable[[Exception], object] | None = None
) -> threading.Thread:
    """Start a daemon thread, which debuggers show after `nftsync-`.

    `on_failure` gets the exception that ends `work`, in that thread. It must release all waiting
    threads, and must not fail. If None, the failure is only logged.
    """

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - passed to the owner
            if on_failure is None:
                _log.error("a thread failed: %s", name, exc_info=error)
            else:
                on_failure(error)

    thread = threading.Thread(target=run, name=f"nftsync-{name}", daemon=True)
    thread.start()
    return thread


class Failures:
    """Failures of one owner's threads; each calls `give_up` in its thread."""

    def __init__(self, give_up: Callable[[], object] = lambda: None) -> None:
        self._give_up = give_up
        self._first: tuple[str, Exception] | None = None

    def __bool__(self) -> bool:
        return self._first is not None

    def of(self, part: str) -> Callable[[Exception], None]:
        def fail(error: Exception) -> None:
            self._first = self._first or (part, error)
            if not isinstance(error, NftsyncError):
                _log.critical("a part failed: %s", part, exc_info=error)
            self._give_up()

        return fail

    def raise_first(self) -> None:
        """Raise the first failure, if any, as an NftsyncError."""
        if self._first is None:
            return
        part, error = self._first
        if isinstance(error, NftsyncError):
            raise error
        raise NftsyncError(
            f"{part} failed unexpectedly ({type(error).__name__}: {error}); stored data is kept."
            " Start it again"
        ) from error
