"""The replay worker's loop: claim due webhooks, plan and apply reads, acknowledge."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Self

import msgspec

from nftsync.errors import DamagedDatabase, SettingsError, StoreError
from nftsync.provider.webhooks import Route
from nftsync.pull.reads import AnyRead, AnyTask, Pool, subject_of, weight
from nftsync.records import Applied, ObjectRead
from nftsync.replay.breaker import CircuitBreaker
from nftsync.replay.config import COUNTS, ReplayConfig, ReplayResult
from nftsync.replay.jobs import Job, Work
from nftsync.replay.lease import LeasedRun
from nftsync.replay.plan import plan_named, plan_reads
from nftsync.replay.requested_sync import TriggeredSync
from nftsync.store import WebhookState, inbox, runs
from nftsync.store.database import FilesInUse, explained
from nftsync.store.inbox import Settlement, count_due
from nftsync.store.mirror import BatchSize, Mirror, store_object
from nftsync.terminal import progress_bar
from nftsync.times import now, shifted

_log = logging.getLogger("nftsync.replay")


class Worker:
    """Worker that processes webhooks until the database fails, in one thread.

    Attributes:
        counts: webhooks by end state, and reads.
        interrupted: the run ends before all its work is done.
        held: reads whose removals are held for review.
    """

    def __init__(self, mirror: Mirror, config: ReplayConfig, *, rechecks: bool = False) -> None:
        """Start without work; `rechecks` repeats reads that showed no change.

        Raises:
            SettingsError: a setting for the provider is invalid.
        """
        self.interrupted = False
        self.held = 0
        self._mirror = mirror
        self._config = config
        self.timing = config.timing
        self._rechecks = rechecks
        self._lease = LeasedRun(mirror, config, self._forget)
        self.counts = self._lease.counts
        self._work = Work()
        self._pool = self._new_pool()
        self.breaker = CircuitBreaker(config.timing)
        self._sync = TriggeredSync(config.run_sync, config.timing)
        self._batch = BatchSize()
        self._check_at = 0.0
        self._renew_at = 0.0
        self._reported: Counter[str] = Counter()
        self._before_run: Counter[str] = Counter()

    def _new_pool(self) -> Pool[AnyTask, AnyRead]:
        config = self._config
        return Pool(
            config.client, self._mirror.numbers, config.concurrency, config.access, urgent=True
        )

    @property
    def awaits_reads(self) -> bool:
        """Whether reads are in flight."""
        return not self._pool.idle

    @property
    def busy(self) -> bool:
        """Whether any work is left."""
        return bool(
            len(self._work) or self._lease.settlements or self._sync.is_busy or self.awaits_reads
        )

    def check_now(self) -> None:
        """Check the inbox in the next step."""
        self._check_at = 0.0

    def new_counts(self) -> Counter[str]:
        """Return the increase of the counts since the last call."""
        counts, self._reported = self.counts - self._reported, self.counts.copy()
        return counts

    # A step, and the end ---------------------------------------------------------------------

    def step(self, due: str | None = None) -> bool:
        """Claim webhooks due by `due` (default: now), and apply reads; return whether any came."""
        if time.monotonic() >= self._renew_at:
            self._renew_at = time.monotonic() + self.timing.renew
            self._lease.renew()
        claimed = self._claim(due)
        self._update_sync()
        self._lease.acknowledge_all()
        self._pool.submit(self._work.submit())
        reads = self._take()
        if reads:
            refused = self._apply(reads)
            self._batch.learn(sum(map(weight, reads)), self._mirror.lock_seconds)
            self._update_breaker(reads, refused)
        guard = self._lease.guard
        if guard and (self._pool.idle or guard.waited >= self.timing.decide):
            self._release_staged()
        return claimed or bool(reads)

    def end_run(self) -> None:
        """End the run, and index new tokens for search."""
        if not self._lease.is_held:
            return
        self._mirror.index_tokens()
        counts, self._before_run = self.counts - self._before_run, self.counts.copy()
        status: runs.RunStatus = "ok"
        if self.interrupted:
            status = "interrupted"
        elif self.breaker.reason or counts["failed"] or counts["dead"]:
            status = "partial" if counts["done"] else "failed"
        self._lease.end(status, self.breaker.reason)
        _log.info("replayed", extra={name: counts[name] for name in COUNTS})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Finish; after an error, leave the work to expire with the lease."""
        try:
            if kind is None:
                self._close()
        finally:
            self._pool.close()
            self._sync.stop()
            self._lease.guard.close()

    def _close(self) -> None:
        """Apply finished reads, release the other webhooks, and end the run."""
        self._sync.stop()
        self._pool.stop()
        with suppress(SettingsError):  # no token is available
            while reads := self._pool.take(self._batch.entries, timeout=0.0):
                self._apply(reads)
        self._work.forget_reads()
        self._release_idle()
        self._forget()
        self._lease.forget()
        self.end_run()

    def _forget(self) -> None:
        """Forget the work; its webhooks are pending again, or another worker has them."""
        self._work.clear()
        self._work.forget_reads(self._lease.guard.subjects)
        self._sync.forget_jobs()

    # Claiming --------------------------------------------------------------------------------

    def _claim(self, due: str | None) -> bool:
        """Claim objects and plan their reads; return whether any webhook was due."""
        if time.monotonic() < self._check_at or self.breaker.is_paused:
            return False
        in_work = len(self._work)
        # While the provider is down, one object tests it.
        limit = 1 if self.breaker.is_open else self._config.max_objects
        room = limit - in_work
        if room < (self._config.max_objects // 8 if in_work else 1):
            return False
        was_due, jobs = self._lease.claim(room, due)
        if self._rechecks:
            jobs += self._lease.claim_rechecks(room - len(jobs))
        self._plan(jobs)
        was_due |= bool(jobs)
        self._check_at = 0.0 if was_due else time.monotonic() + self.timing.poll
        return was_due

    def _plan(self, jobs: Sequence[Job]) -> None:
        """Plan the reads of jobs; settle jobs without any."""
        connection, routes = self._mirror.connection, self._config.routes
        plans = plan_reads(connection, routes, [job.key for job in jobs])
        for job in jobs:
            route, tasks = plans[job.key]
            if tasks:
                self._work.add(job, tasks)
            elif job.recheck or (route is not None and route.kind != "sync"):
                self._settle(job, "done")  # untracked, or a recheck without a read
            elif route is None:
                error = f"no route for the type {job.key.resource_type[:80]!r}"
                self._settle(job, "unrouted", error)
            else:
                self._ask_for_sync(job, route)

    # Syncs of all wallets --------------------------------------------------------------------

    def _ask_for_sync(self, job: Job, route: Route) -> None:
        connection = self._mirror.connection
        if runs.all_read_since_webhook(connection, job.webhook_id):
            self._settle(job, "done")
            return
        if route.at_most_every is not None:
            at = now()
            last = runs.last_full_sync_began(connection, shifted(at, -route.at_most_every))
            if last is not None and last <= at:
                due_at = shifted(last, route.at_most_every)
                due_at = min(due_at, _in_seconds(self.timing.sync_check))
                self._settle(job, "pending", due_at=due_at)
                return
        if not self._sync.ask(job):
            self._release(job, wait=self.timing.first_deferral)

    def _update_sync(self) -> None:
        outcome = self._sync.update()
        if outcome is None:
            return
        jobs, self.breaker.sync_error, wait = outcome
        for job in jobs:
            if wait is None:
                self._settle(job, "done")
            else:
                self._release(job, self.breaker.sync_error, wait)

    # Reading ---------------------------------------------------------------------------------

    def _take(self) -> list[AnyRead]:
        if self._pool.idle:
            return []
        try:
            reads = self._pool.take(1, timeout=self.timing.read_timeout)
            if reads:
                reads += self._pool.take(self._batch.entries, timeout=0.0)
        except SettingsError as error:  # without a token, every read fails
            self._pool.close()
            self._pool = self._new_pool()
            self._work.forget_reads()
            self.breaker.open(str(error))
            self._release_idle()
            return []
        return reads

    def _apply(self, reads: Sequence[AnyRead]) -> list[AnyRead]:
        """Apply reads, and acknowledge webhooks.

        Returns:
            The reads that count as refusals by the provider, see `_complete`.
        """
        with self._lease.transaction() as transaction:
            connection, behind = transaction.connection, self._work.webhook_behind
            applied = self._lease.apply(transaction, reads, behind)
            refused = [read for read, result in applied if self._complete(connection, read, result)]
            self._lease.acknowledge(connection)
        self.counts["fetches"] += len(reads)
        return refused

    def _release_staged(self) -> None:
        guard = self._lease.guard
        guard.decide(self._mirror.connection)
        while guard:
            with self._lease.transaction() as transaction:  # a lost lease empties the guard
                for read, result in self._lease.release(transaction, self._batch.entries):
                    self.held += result.result == "held"
                    self._complete(transaction.connection, read, result)
                self._lease.acknowledge(transaction.connection)

    def _complete(
        self, connection: sqlite3.Connection, read: AnyRead, applied: Applied | None
    ) -> bool:
        """Record a read for its jobs; return whether it is a new refusal by the provider."""
        stale = applied is not None and applied.result == "stale"
        jobs = self._work.complete(read, stale=stale)
        changed = applied is not None and not applied.changed_nothing
        if isinstance(read, ObjectRead) and read.outcome == "ok":
            changed = store_object(connection, read)
        refused = read.provider_down and not jobs
        for job in jobs:
            if read.outcome in {"failed", "incomplete"}:
                # A named id may belong to others: the provider then answers 404 or 403.
                if subject_of(read) not in job.named or (read.provider_down and read.status != 403):
                    job.error = read.error
                    job.down |= read.provider_down
                    refused |= read.provider_down and job.key not in self.breaker.deferred
            elif stale:
                job.error = "newer reads made this one stale each time"
            else:
                job.changed |= changed
            if isinstance(read, ObjectRead) and read.body is not None:
                self._read_named(connection, job, read.body)
            if job.down or not job.waits_for:
                self._finish(job)
        return refused

    def _read_named(self, connection: sqlite3.Connection, job: Job, body: str) -> None:
        route = self._config.routes.find(job.key.resource_type)
        if route is not None:
            tasks, others = plan_named(connection, route, body)
            if len(others) > self._config.max_unknown:
                job.error = (
                    f"the object names {len(others):,} unknown wallets and tokens, more than "
                    f"{self._config.max_unknown:,}: only the known ones were read; "
                    "`nftsync wallets add` makes wallets known"
                )
                others = []
            job.named.update(subject_of(task) for task in others)
            self._work.add(job, [*tasks, *others])

    def _update_breaker(self, reads: Sequence[AnyRead], refused: Sequence[AnyRead]) -> None:
        change = self.breaker.update(reads, refused, others=bool(len(self._work)))
        if change == "opened":
            self._work.withdraw(self._pool.withdraw())
            self._release_idle()
        elif change == "closed" and self.breaker.deferred:
            with self._mirror.transaction() as transaction:
                inbox.make_due(transaction.connection, list(self.breaker.deferred), now())

    # Acknowledging ---------------------------------------------------------------------------

    def _finish(self, job: Job) -> None:
        self._work.drop(job)
        if job.down:
            self._release(job, job.error, self.breaker.defer(job.key, job.error))
            return
        self.breaker.answered(job.key)
        if job.error is not None:
            details = {"webhook_id": job.webhook_id, "error": job.error}
            _log.warning("a webhook's read failed", extra=job.key._asdict() | details)
            self._settle(job, "failed", job.error)
        elif self._rechecks and not (job.changed or job.recheck):
            self._settle(job, "done", recheck_at=_in_seconds(self.timing.recheck))
        else:
            self._settle(job, "done")

    def _release(self, job: Job, error: str | None = None, wait: float | None = None) -> None:
        """Return a job's webhooks to pending, due in `wait` seconds or as before."""
        due_at = None if wait is None else _in_seconds(wait)
        recheck_at = _in_seconds(wait or 0.0) if job.recheck else None
        self._settle(job, "pending", error, due_at=due_at, recheck_at=recheck_at)

    def _settle(
        self,
        job: Job,
        state: WebhookState,
        error: str | None = None,
        *,
        due_at: str | None = None,
        recheck_at: str | None = None,
    ) -> None:
        self._lease.settlements.append(
            Settlement(job.key, state, error, due_at, job.recheck, job.webhook_id, recheck_at)
        )

    def _release_idle(self) -> None:
        """Release the webhooks of objects without a read in flight."""
        for job in self._work.idle_jobs():
            self._work.drop(job)
            self._release(job)
        self._lease.acknowledge_all()


def _in_seconds(seconds: float) -> str:
    return shifted(now(), timedelta(seconds=seconds))


def replay_once(
    database: Path,
    config: ReplayConfig,
    stopped: threading.Event,
    *,
    progress: bool | None = None,
) -> ReplayResult:
    """Process the due webhooks; once `stopped` is set, release the remaining ones.

    Raises:
        StoreError: the database cannot be written; unacknowledged webhooks are pending again.
        SettingsError: a setting for the provider is invalid.
    """
    began = time.monotonic()
    with explained(database), Mirror(database, busy_seconds=config.timing.busy) as mirror:
        due = now()
        total = count_due(mirror.connection, due)
        with (
            progress_bar("webhooks", total, unit="webhooks", done=0, shown=progress) as bar,
            Worker(mirror, config) as worker,
        ):
            while not (stopped.is_set() or worker.breaker.is_open):
                idle = not worker.step(due)
                new_counts = worker.new_counts()
                bar.update(new_counts.total() - new_counts["fetches"])
                if idle and not worker.busy:
                    break
                if idle and not worker.awaits_reads:
                    stopped.wait(config.timing.read_timeout)  # a requested sync is running
            worker.interrupted = stopped.is_set()
    outcome = {
        "seconds": round(time.monotonic() - began, 3),
        "held": worker.held,
        "error": worker.breaker.reason,
    }
    return msgspec.convert({**worker.counts, **outcome}, ReplayResult)


def replay_continuously(
    database: Path,
    config: ReplayConfig,
    stopped: threading.Event,
    wake: threading.Event,
    on_progress: Callable[[Counter[str]], None],
    on_damaged: Callable[[str], None] = lambda _: None,
) -> None:
    """Process webhooks as they arrive, until stopped.

    Creates or migrates the database. Set `stopped`, and then `wake`, to stop; unprocessed webhooks
    are released. Set `wake` when webhooks were stored in this process. Calls `on_progress` with the
    increase of the counts, and `on_damaged` with SQLite's report, perhaps repeatedly.
    """
    timing = config.timing
    files = FilesInUse(database)
    while not stopped.is_set():
        try:
            files.check()  # never open another file at this path
            with (
                explained(database),
                Mirror(database, busy_seconds=timing.busy) as mirror,
                ExitStack() as stack,
            ):
                worker = Worker(mirror, config, rechecks=True)
                stack.callback(lambda ended: on_progress(ended.new_counts()), worker)
                stack.enter_context(worker)
                quiet_since = time.monotonic()
                while not stopped.is_set():
                    if wake.is_set():
                        wake.clear()
                        worker.check_now()
                    if worker.step() or worker.busy:
                        quiet_since = time.monotonic()
                        on_progress(worker.new_counts())
                    elif time.monotonic() - quiet_since > timing.quiet:
                        worker.end_run()
                    if not worker.awaits_reads:
                        wake.wait(timing.read_timeout if worker.busy else timing.poll)
        except StoreError as error:
            # Work in progress is pending again when the lease expires.
            _log.error("database trouble: %s", error)
            if isinstance(error, DamagedDatabase):
                on_damaged(str(error))
            stopped.wait(timing.restart)
