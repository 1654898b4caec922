"""Full syncs that webhooks request."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

from nftsync.errors import NftsyncError, SyncRunning
from nftsync.pull.plan import NoWallets
from nftsync.pull.result import SyncResult
from nftsync.replay.config import RunSync, Timing
from nftsync.replay.jobs import Job

#: Limit of the jobs in memory that wait for a sync; a sync may take an hour.
_MAX_WAITING = 10_000


class TriggeredSync:
    """Full syncs requested by webhooks, one at a time, in parallel with the replay."""

    def __init__(self, run_sync: RunSync, timing: Timing) -> None:
        self._run_sync = run_sync
        self._timing = timing
        self._stopped = threading.Event()
        self._thread = ThreadPoolExecutor(1, "nftsync-triggered-sync")
        self._sync: Future[SyncResult] | None = None
        self._waiting: list[Job] = []
        self._running: list[Job] = []

    @property
    def is_busy(self) -> bool:
        """Whether a sync is running or requested."""
        return self._sync is not None or bool(self._waiting)

    def ask(self, job: Job) -> bool:
        """Make a job wait for the next sync, unless too many wait."""
        if len(self._waiting) >= _MAX_WAITING:
            return False
        self._waiting.append(job)
        return True

    def update(self) -> tuple[list[Job], str | None, float | None] | None:
        """Start a requested sync, or return the outcome of a finished one.

        Returns:
            The jobs that requested it, and after a failure the error and the seconds until a retry.
        """
        if self._sync is None and self._waiting:
            self._running, self._waiting = self._waiting, []
            self._sync = self._thread.submit(self._run_sync, self._stopped)
        if self._sync is None or not self._sync.done():
            return None
        sync, self._sync = self._sync, None
        error, wait = None, self._timing.failed_sync
        try:
            result = sync.result()
        except SyncRunning as running:
            error, wait = str(running), self._timing.busy_sync
        except NoWallets:  # nothing is left to read
            pass
        except NftsyncError as trouble:
            error = str(trouble)
        else:
            if result.status not in {"ok", "partial"}:
                error = result.error or f"the sync ended as {result.status}"
        return self._running, error, None if error is None else wait

    def forget_jobs(self) -> None:
        """Forget the waiting jobs; a running sync continues."""
        self._waiting, self._running = [], []

    def stop(self) -> None:
        """Interrupt a running sync; it keeps finished reads."""
        self._stopped.set()
        self._thread.shutdown()
