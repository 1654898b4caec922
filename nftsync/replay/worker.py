"""The replay worker's loop: claim due webhooks, plan and apply reads, acknowledge."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Self

import msgspec

from nftsync.errors import DamagedDatabase, NftsyncError, SettingsError
from nftsync.pull.loop import Policy, ReadLoop
from nftsync.pull.reads import Pool, Subject, subject_of
from nftsync.pull.waiting_reads import WaitingReads
from nftsync.records import Applied, ObjectRead, OnRemovals, Read, WalletRead
from nftsync.replay.breaker import CircuitBreaker
from nftsync.replay.config import COUNTS, ReplayConfig, ReplayResult
from nftsync.replay.jobs import Job, Jobs, answer_of
from nftsync.replay.lease import LeasedRun, in_seconds
from nftsync.replay.plan import plan_named, plan_reads
from nftsync.replay.requested_sync import RequestedSync
from nftsync.store import inbox, runs
from nftsync.store.database import explained
from nftsync.store.history import begin_span, end_span
from nftsync.store.inbox import count_due
from nftsync.store.mirror import Mirror, Transaction
from nftsync.store.wallets import wallets_by_id
from nftsync.store.writer import keep_running
from nftsync.terminal import progress_bar
from nftsync.times import now

_log = logging.getLogger("nftsync.replay")


class Worker(Policy[Transaction]):
    """Policy of a replay: processes webhooks until the database fails, in one thread.

    Attributes:
        counts: webhooks by end state, and reads.
        interrupted: the run ends before all its work is done.
        reads_held: reads whose removals are held for review.
    """

    def __init__(self, mirror: Mirror, config: ReplayConfig, *, rechecks: bool = False) -> None:
        """Start without work; `rechecks` repeats reads that showed no change."""
        self.interrupted = False
        self.reads_held = 0
        self._mirror = mirror
        self._config = config
        self.timing = config.timing
        self._rechecks = rechecks
        self._lease = LeasedRun(mirror, config, self._forget)
        self.counts = self._lease.counts
        self._waiting = WaitingReads(config.limits)
        self._loop = ReadLoop(
            _open_pool(mirror, config), self, self._waiting, mirror, fills_batches=False
        )
        self._jobs = Jobs(self._loop)
        self.breaker = CircuitBreaker(config.timing)
        self._refused: list[Read] = []
        self._sync = RequestedSync(config.run_sync, self._lease, config.timing)
        self._check_at = 0.0
        self._renew_at = 0.0
        self._reported: Counter[str] = Counter()
        self._before_run: Counter[str] = Counter()

    @property
    def awaits_reads(self) -> bool:
        return not self._loop.idle

    @property
    def busy(self) -> bool:
        return bool(
            len(self._jobs) or self._lease.settlements or self._sync.is_busy or self.awaits_reads
        )

    @property
    def reason(self) -> str | None:
        """Why due webhooks are still pending, or None."""
        return self.breaker.reason or self._sync.error

    def check_now(self) -> None:
        self._check_at = 0.0

    def new_counts(self) -> Counter[str]:
        counts, self._reported = self.counts - self._reported, self.counts.copy()
        return counts

    # A step, and the end ---------------------------------------------------------------------

    def step(self, due: str | None = None) -> bool:
        """Claim webhooks due by `due` (default: now), and apply reads; return whether any came."""
        if time.monotonic() >= self._renew_at:
            self._renew_at = time.monotonic() + self.timing.renew
            self._lease.renew()
        claimed = self._claim(due)
        self._sync.update()
        self._lease.acknowledge_all()
        applied = self._read()
        if self._waiting and (self._loop.idle or self._waiting.waited >= self.timing.decide):
            self._loop.release()
        return claimed or bool(applied)

    def _read(self) -> list[Applied]:
        self._refused = []
        try:
            applied = self._loop.step(self.timing.read_timeout)
        except SettingsError as error:  # without a token, every read fails
            self._loop.replace_reader(_open_pool(self._mirror, self._config))
            self.breaker.open(str(error))
            self._release_idle()
            return []
        self.counts["fetches"] += len(applied)
        reads = [one.read for one in applied]
        change = self.breaker.update(reads, self._refused, others=bool(len(self._jobs)))
        if change == "opened":
            self._loop.withdraw()
            self._release_idle()
        elif change == "closed" and self.breaker.deferred:
            with self._mirror.transaction() as transaction:
                inbox.make_due(transaction.connection, list(self.breaker.deferred), now())
        return applied

    def end_run(self) -> None:
        if not self._lease.is_held:
            return
        self._mirror.index_tokens()
        counts, self._before_run = self.counts - self._before_run, self.counts.copy()
        status: runs.RunStatus = "ok"
        if self.interrupted:
            status = "interrupted"
        elif self.reason or counts["failed"] or counts["dead"]:
            status = "partial" if counts["done"] else "failed"
        self._lease.end(status, self.reason)
        _log.info("replayed", extra={name: counts[name] for name in COUNTS})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Finish; after an error, leave the work to expire with the lease."""
        try:
            if kind is None:
                self._close()
        finally:
            self._loop.close()
            self._sync.stop()
            self._waiting.close()

    def _close(self) -> None:
        """Apply finished reads, release the other webhooks, and end the run."""
        self._sync.stop()
        with suppress(SettingsError):  # no token is available
            self._loop.stop()
        self._release_idle()
        self._forget()
        self.end_run()

    def _forget(self) -> None:
        """Forget the work; its webhooks are pending again, or another worker has them."""
        self._jobs.clear()
        self._loop.drop_waiting()
        self._sync.forget_jobs()

    # Claiming --------------------------------------------------------------------------------

    def _claim(self, due: str | None) -> bool:
        """Claim objects and plan their reads; return whether any webhook was due."""
        if time.monotonic() < self._check_at or self.breaker.is_paused:
            return False
        in_work = len(self._jobs)
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
                self._jobs.add(job, tasks)
            elif job.recheck or (route is not None and route.kind != "sync"):
                self._lease.settle(job, "done")  # untracked, or a recheck without a read
            elif route is None:
                error = f"no route for the type {job.key.resource_type[:80]!r}"
                self._lease.settle(job, "unrouted", error)
            else:
                self._sync.request(connection, job, route)

    # Reading ---------------------------------------------------------------------------------

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open a transaction under the lease; if the lease is lost, so is all work in progress."""
        return self._lease.transaction()

    def apply(
        self, transaction: Transaction, reads: Sequence[Read], removals: OnRemovals
    ) -> list[Applied]:
        """Apply reads, except failed ones of unknown wallets or while the provider is down."""
        unknown = _unknown_wallets(transaction.connection, reads)
        left_out, caused = [], []
        for read in reads:
            if read.provider_down or subject_of(read) in unknown:
                left_out.append(Applied(read, "left out"))
            else:
                webhook = self._jobs.webhook_behind(read)
                caused.append(msgspec.structs.replace(read, webhook_id=webhook))
        run_id = self._lease.run.run_id
        return [*left_out, *transaction.apply(caused, run_id=run_id, removals=removals)]

    def in_transaction(self, transaction: Transaction, applied: Sequence[Applied]) -> None:
        connection, run = transaction.connection, self._lease.run
        run.counts = run.counts.with_applied(applied)
        runs.save_counts(connection, run.run_id, run.counts)
        if self._loop.releasing:
            if not self._waiting:
                end_span(connection, run.run_id)
        elif self._waiting:
            changed = not all(one.changed_nothing for one in applied)
            begin_span(connection, run.run_id, transaction.observed_at, changed=changed)
        for one in applied:
            if one.is_finished:
                self._complete(connection, one)
        self._lease.acknowledge(connection)

    def after_commit(self, applied: Sequence[Applied]) -> None:
        if number := sum(one.result == "held" for one in applied):
            self.reads_held += number
            _log.warning("removals held for review", extra={"reads": number})

    def _complete(self, connection: sqlite3.Connection, applied: Applied) -> None:
        """Record a read for its jobs, and whether the provider newly refuses it."""
        read = applied.read
        jobs = self._jobs.served_by(read)
        refused = read.provider_down and not jobs
        for job in jobs:
            answer = answer_of(applied, is_named=subject_of(read) in job.named)
            job.error = answer.error or job.error
            job.down |= answer.is_down
            job.changed |= answer.changed
            refused |= answer.is_down and job.key not in self.breaker.deferred
            if isinstance(read, ObjectRead) and read.body is not None:
                routes, most = self._config.routes, self._config.max_unknown
                self._jobs.add(job, plan_named(connection, routes, job, read.body, most))
            if job.down or not job.waits_for:
                self._finish(job)
        if refused:
            self._refused.append(read)

    # Acknowledging ---------------------------------------------------------------------------

    def _finish(self, job: Job) -> None:
        self._jobs.drop(job)
        if job.down:
            self._lease.release(job, job.error, self.breaker.defer(job.key, job.error))
            return
        self.breaker.answered(job.key)
        if job.error is not None:
            details = {"webhook_id": job.webhook_id, "error": job.error}
            _log.warning("a webhook's read failed", extra=job.key._asdict() | details)
            self._lease.settle(job, "failed", job.error)
        elif self._rechecks and not (job.changed or job.recheck):
            self._lease.settle(job, "done", recheck_at=in_seconds(self.timing.recheck))
        else:
            self._lease.settle(job, "done")

    def _release_idle(self) -> None:
        for job in self._jobs.idle():
            self._jobs.drop(job)
            self._lease.release(job)
        self._lease.acknowledge_all()


def _open_pool(mirror: Mirror, config: ReplayConfig) -> Pool:
    return Pool(config.client, mirror.numbers, config.concurrency, config.access, urgent=True)


def _unknown_wallets(connection: sqlite3.Connection, reads: Sequence[Read]) -> set[Subject]:
    failed = [x.wallet_id for x in reads if isinstance(x, WalletRead) and x.outcome == "failed"]
    stored = wallets_by_id(connection, failed) if failed else {}
    return {("wallet", wallet_id) for wallet_id in failed if wallet_id not in stored}


def replay_once(
    database: Path, config: ReplayConfig, stopped: threading.Event, *, progress: bool | None = None
) -> ReplayResult:
    """Process the due webhooks; once `stopped` is set, release the remaining ones."""
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
    seconds = round(time.monotonic() - began, 3)
    outcome = {"seconds": seconds, "held": worker.reads_held, "error": worker.reason}
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

    def work() -> None:
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

    def on_error(error: NftsyncError) -> None:
        # Work in progress is pending again when the lease expires.
        _log.error("database trouble: %s", error)
        if isinstance(error, DamagedDatabase):
            on_damaged(str(error))

    keep_running(
        database, stopped, work, on_error, due=lambda failures: timing.restart if failures else 0.0
    )
