"""Full syncs that webhooks request."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from nftsync.errors import NftsyncError, SyncRunning
from nftsync.provider.webhooks import Route
from nftsync.pull.plan import NoWallets
from nftsync.pull.result import SyncResult
from nftsync.replay.config import RunSync, Timing
from nftsync.replay.jobs import Job
from nftsync.replay.lease import LeasedRun, in_seconds
from nftsync.store import runs
from nftsync.times import now, shifted

#: Limit of the jobs in memory that wait for a sync; a sync may take an hour.
_MAX_WAITING = 10_000


class RequestedSync:
    """Full syncs requested by webhooks, one at a time, in parallel with the replay.

    Attributes:
        error: why the last sync failed, or None.
    """

    def __init__(self, run_sync: RunSync, lease: LeasedRun, timing: Timing) -> None:
        self.error: str | None = None
        self._run_sync = run_sync
        self._lease = lease
        self._timing = timing
        self._stopped = threading.Event()
        self._thread = ThreadPoolExecutor(1, "nftsync-requested-sync")
        self._sync: Future[SyncResult] | None = None
        self._waiting: list[Job] = []
        self._running: list[Job] = []

    @property
    def is_busy(self) -> bool:
        return self._sync is not None or bool(self._waiting)

    def request(self, connection: sqlite3.Connection, job: Job, route: Route) -> None:
        """Make a job wait for the next sync, unless there was one or none may start yet."""
        if runs.all_read_since_webhook(connection, job.webhook_id):
            self._lease.settle(job, "done")
            return
        if route.at_most_every is not None:
            at = now()
            last = runs.last_full_sync_began(connection, shifted(at, -route.at_most_every))
            if last is not None and last <= at:
                due_at = min(
                    shifted(last, route.at_most_every), in_seconds(self._timing.sync_check)
                )
                self._lease.settle(job, "pending", due_at=due_at)
                return
        if len(self._waiting) < _MAX_WAITING:
            self._waiting.append(job)
        else:
            self._lease.release(job, wait=self._timing.first_deferral)

    def update(self) -> None:
        """Start a requested sync, or settle the jobs of a finished one."""
        if self._sync is None and self._waiting:
            self._running, self._waiting = self._waiting, []
            self._sync = self._thread.submit(self._run_sync, self._stopped)
        if self._sync is None or not self._sync.done():
            return
        sync, self._sync, self.error = self._sync, None, None
        wait = self._timing.failed_sync
        try:
            result = sync.result()
        except SyncRunning as running:
            self.error, wait = str(running), self._timing.busy_sync
        except NoWallets:  # nothing is left to read
            pass
        except NftsyncError as trouble:
            self.error = str(trouble)
        else:
            if result.status not in {"ok", "partial"}:
                self.error = result.error or f"the sync ended as {result.status}"
        jobs, self._running = self._running, []
        for job in jobs:
            if self.error is None:
                self._lease.settle(job, "done")
            else:
                self._lease.release(job, self.error, wait)

    def forget_jobs(self) -> None:
        """Forget the waiting jobs; a running sync continues."""
        self._waiting, self._running = [], []

    def stop(self) -> None:
        """Interrupt a running sync; it keeps finished reads."""
        self._stopped.set()
        self._thread.shutdown()
