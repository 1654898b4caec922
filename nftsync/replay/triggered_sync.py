"""A sync of all wallets that webhooks ask for, beside the replay that goes on."""

from __future__ import annotations

import threading
from typing import NamedTuple

from nftsync.errors import InputError, NftsyncError, SyncRunning
from nftsync.replay.config import RunSync, Timing
from nftsync.replay.work import Job

__all__ = ["SyncOutcome", "TriggeredSync"]

#: Objects whose webhooks wait for a sync in memory; a sync may take an hour.
_MOST_WAITING = 10_000


class SyncOutcome(NamedTuple):
    """What became of a sync that was asked for.

    Attributes:
        jobs: whose webhooks asked for it, before it began.
        error: why it was not made, or None.
        wait: seconds until it should be tried again; None: it was made.
    """

    jobs: list[Job]
    error: str | None
    wait: float | None


class TriggeredSync:
    """Runs one such sync at a time, in a thread."""

    def __init__(self, run_sync: RunSync, timing: Timing) -> None:
        """Begin with none."""
        self._run_sync = run_sync
        self._timing = timing
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._waiting: list[Job] = []
        self._running: list[Job] = []
        self._result: tuple[str | None, float | None] | None = None

    @property
    def is_busy(self) -> bool:
        """One is under way or asked for."""
        return self._thread is not None or bool(self._waiting)

    def ask(self, job: Job) -> bool:
        """Let a job wait for a sync that is yet to begin; False: too many do."""
        if len(self._waiting) >= _MOST_WAITING:
            return False
        self._waiting.append(job)
        return True

    def update(self) -> SyncOutcome | None:
        """Begin a sync that is asked for; what became of it, once it is over.

        Raises:
            RuntimeError: it ended in a way that nobody foresaw.
        """
        if self._thread is None and self._waiting:
            self._running, self._waiting = self._waiting, []
            name = "nftsync-triggered-sync"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread = None
        if self._result is None:
            raise RuntimeError("the sync that webhooks asked for broke off")
        (error, wait), self._result = self._result, None
        return SyncOutcome(self._running, error, wait)

    def forget_jobs(self) -> None:
        """No job waits any more; a sync under way goes on for nobody."""
        self._waiting, self._running = [], []

    def stop(self) -> None:
        """End a sync under way; what it has read is kept."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        failed = self._timing.failed_sync
        try:
            result = self._run_sync(self._stopped)
            is_made = result.status in {"ok", "partial"}
            error = result.error or f"the sync ended as {result.status}"
            self._result = (None, None) if is_made else (error, failed)
        except SyncRunning as running:
            self._result = str(running), self._timing.busy_sync
        except InputError:  # no wallet is tracked, so all of them have been read
            self._result = None, None
        except NftsyncError as trouble:
            self._result = str(trouble), failed
