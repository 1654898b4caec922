"""The replay worker: replays webhooks that are due, once or continuously.

The worker claims webhooks, plans reads, applies them, and acknowledges.
"""

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
from nftsync.replay.config import COUNTS, ReplayConfig, ReplayResult
from nftsync.replay.lease import LeasedRun
from nftsync.replay.work import CircuitBreaker, Job, TriggeredSync, Work, plan_named, plan_reads
from nftsync.store import WebhookState, inbox, runs
from nftsync.store.database import FilesInUse, explained
from nftsync.store.inbox import Settlement, count_due
from nftsync.store.mirror import BatchSize, Mirror, store_object
from nftsync.terminal import progress_bar
from nftsync.times import now, shifted

_log = logging.getLogger("nftsync.replay")


class Worker:
    """Works on webhooks, for as long as the database gives no trouble; used by one thread.

    Attributes:
        counts: webhooks by the state that they came to, and reads.
        timing: how long it waits for what.
        breaker: knows whether the provider is down, and why webhooks wait.
        interrupted: the run under way ends before its work does.
        held: reads that show more to be gone than was believed.
    """

    def __init__(self, mirror: Mirror, config: ReplayConfig, *, rechecks: bool = False) -> None:
        """Begin with nothing in hand.

        Args:
            mirror: where reads are applied.
            config: what to work with.
            rechecks: read an object that had not changed once more, a while later.

        Raises:
            SettingsError: the provider cannot be read with these settings.
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
        self._look_at = 0.0
        self._renew_at = 0.0
        self._told: Counter[str] = Counter()
        self._before_run: Counter[str] = Counter()

    def _new_pool(self) -> Pool[AnyTask, AnyRead]:
        config = self._config
        return Pool(
            config.client, self._mirror.numbers, config.concurrency, config.access, urgent=True
        )

    @property
    def awaits_reads(self) -> bool:
        """Reads are under way."""
        return not self._pool.idle

    @property
    def busy(self) -> bool:
        """Something is in hand."""
        return bool(
            len(self._work) or self._lease.settlements or self._sync.is_busy or self.awaits_reads
        )

    def look_now(self) -> None:
        """Look into the inbox with the next step."""
        self._look_at = 0.0

    def news(self) -> Counter[str]:
        """What was added to the counts since the last call."""
        news, self._told = self.counts - self._told, self.counts.copy()
        return news

    # A step, and the end ---------------------------------------------------------------------

    def step(self, due: str | None = None) -> bool:
        """Claim what there is room for, and apply what has been read.

        Args:
            due: only webhooks due by this time; None: by now.

        Returns:
            Whether anything was done.
        """
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
            self._judge(reads, refused)
        guard = self._lease.guard
        if guard and (self._pool.idle or guard.waited >= self.timing.judge):
            self._release_staged()
        return claimed or bool(reads)

    def end_run(self) -> None:
        """Close the run in the ledger, and make new tokens searchable."""
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
        """Close; after trouble what is in hand may not be stored as it seems, and is left.

        It waits again when the lease has run out.
        """
        try:
            if kind is None:
                self._close()
        finally:
            self._pool.close()
            self._sync.stop()
            self._lease.guard.close()

    def _close(self) -> None:
        """Apply what has been read, let the rest wait again, and end."""
        self._sync.stop()
        self._pool.stop()
        with suppress(SettingsError):  # no token is to be had
            while reads := self._pool.take(self._batch.entries, timeout=0.0):
                self._apply(reads)
        self._work.forget_reads()
        self._release_idle()
        self._forget()
        self._lease.forget()
        self.end_run()

    def _forget(self) -> None:
        """Forget what is in hand; it waits again, or others work on it."""
        self._work.clear()
        self._work.forget_reads(self._lease.guard.subjects)
        self._sync.forget_jobs()

    # Claiming --------------------------------------------------------------------------------

    def _claim(self, due: str | None) -> bool:
        """Take on objects, and plan their reads; whether there were any."""
        if time.monotonic() < self._look_at or self.breaker.is_paused:
            return False
        in_hand = len(self._work)
        # While the provider is down, one object tells whether it answers again.
        most = 1 if self.breaker.is_open else self._config.most_objects
        room = most - in_hand
        if room < (self._config.most_objects // 8 if in_hand else 1):
            return False
        found, jobs = self._lease.claim(room, due)
        if self._rechecks:
            jobs += self._lease.claim_rechecks(room - len(jobs))
        self._begin(jobs)
        found |= bool(jobs)
        self._look_at = 0.0 if found else time.monotonic() + self.timing.poll
        return found

    def _begin(self, jobs: Sequence[Job]) -> None:
        """Plan the reads of jobs; those that need none are over."""
        connection, routes = self._mirror.connection, self._config.routes
        plans = plan_reads(connection, routes, [job.key for job in jobs])
        for job in jobs:
            route, tasks = plans[job.key]
            if tasks:
                self._work.add(job, tasks)
            elif job.recheck or (route is not None and route.kind != "sync"):
                self._settle(job, "done")  # a wallet that the operator has untracked
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
        """Begin a sync that webhooks ask for, and acknowledge them when it is over."""
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
        except SettingsError as error:  # no token is to be had: the provider lets nobody in
            self._pool.close()
            self._pool = self._new_pool()
            self._work.forget_reads()
            self.breaker.open(str(error))
            self._release_idle()
            return []
        return reads

    def _apply(self, reads: Sequence[AnyRead]) -> list[AnyRead]:
        """Apply reads, and acknowledge the webhooks that have all theirs.

        Returns:
            The reads that say that the provider is down or refuses, less those of objects that it
            has refused before, and those of what may be none of ours.
        """
        with self._lease.transaction() as transaction:
            connection, behind = transaction.connection, self._work.webhook_behind
            applied = self._lease.apply(transaction, reads, behind)
            refused = [read for read, result in applied if self._fulfil(connection, read, result)]
            self._lease.acknowledge(connection)
        self.counts["fetches"] += len(reads)
        return refused

    def _release_staged(self) -> None:
        """Decide on the waiting reads that have removals, and apply them."""
        guard = self._lease.guard
        guard.decide(self._mirror.connection)
        while guard:
            with self._lease.transaction() as transaction:  # which forgets them with the lease
                for read, result in self._lease.release(transaction, self._batch.entries):
                    self.held += result.result == "held"
                    self._fulfil(transaction.connection, read, result)
                self._lease.acknowledge(transaction.connection)

    def _fulfil(
        self, connection: sqlite3.Connection, read: AnyRead, applied: Applied | None
    ) -> bool:
        """Let jobs have a read they wait for; whether it is news that the provider refuses."""
        stale = applied is not None and applied.result == "stale"
        jobs = self._work.fulfilled(read, stale=stale)
        changed = applied is not None and not applied.changed_nothing
        if isinstance(read, ObjectRead) and read.outcome == "ok":
            changed = store_object(connection, read)
        refused = read.provider_down and not jobs
        for job in jobs:
            if read.outcome in {"failed", "incomplete"}:
                # What an object names may be someone else's: the provider denies it, or us.
                if subject_of(read) not in job.named or (read.provider_down and read.status != 403):
                    job.error = read.error
                    job.down |= read.provider_down
                    refused |= read.provider_down and job.key not in self.breaker.deferred
            elif stale:
                job.error = "other reads of it kept overtaking this one"
            else:
                job.changed |= changed
            if isinstance(read, ObjectRead) and read.body is not None:
                self._read_named(connection, job, read.body)
            if job.down or not job.waits_for:
                self._finish(job)
        return refused

    def _read_named(self, connection: sqlite3.Connection, job: Job, body: str) -> None:
        """Read the wallets and tokens that an object names."""
        route = self._config.routes.find(job.key.resource_type)
        if route is not None:
            ours, others = plan_named(connection, route, body)
            if len(others) > self._config.most_unknown:
                job.error = (
                    f"the object names {len(others):,} wallets and tokens that are not known, more "
                    f"than {self._config.most_unknown:,}: only those that are known were read; "
                    "`nftsync wallets add` makes wallets known"
                )
                others = []
            job.named.update(subject_of(task) for task in others)
            self._work.add(job, [*ours, *others])

    def _judge(self, reads: Sequence[AnyRead], refused: Sequence[AnyRead]) -> None:
        """Pause when the provider is down, and go on when it answers again."""
        change = self.breaker.update(reads, refused, others=bool(len(self._work)))
        if change == "opened":
            self._work.withdrawn(self._pool.withdraw())
            self._release_idle()
        elif change == "closed" and self.breaker.deferred:
            with self._mirror.transaction() as transaction:
                inbox.make_due(transaction.connection, list(self.breaker.deferred), now())

    # Acknowledging ---------------------------------------------------------------------------

    def _finish(self, job: Job) -> None:
        """Decide on a job whose reads are over, or one of whose reads the provider refused."""
        self._work.drop(job)
        if job.down:
            self._release(job, job.error, self.breaker.defer(job.key, job.error))
            return
        self.breaker.answered(job.key)
        if job.error is not None:
            told = {"webhook_id": job.webhook_id, "error": job.error}
            _log.warning("a webhook's read failed", extra=job.key._asdict() | told)
            self._settle(job, "failed", job.error)
        elif self._rechecks and not (job.changed or job.recheck):
            self._settle(job, "done", recheck_at=_in_seconds(self.timing.recheck))
        else:
            self._settle(job, "done")

    def _release(self, job: Job, error: str | None = None, wait: float | None = None) -> None:
        """Let a job's webhooks wait again.

        Args:
            job: the job.
            error: why, or None to leave its webhooks the error that they had.
            wait: seconds until it is due; None: as it was.
        """
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
        """Let the webhooks of objects that are not being read wait again."""
        for job in self._work.not_begun():
            self._work.drop(job)
            self._release(job)
        self._lease.acknowledge_all()


def _in_seconds(seconds: float) -> str:
    """The time so many seconds from now, in the stored form."""
    return shifted(now(), timedelta(seconds=seconds))


def replay_once(
    database: Path,
    config: ReplayConfig,
    stopped: threading.Event,
    *,
    progress: bool | None = None,
) -> ReplayResult:
    """Work off the webhooks that are due now.

    Args:
        database: created or migrated where needed.
        config: what to work with.
        stopped: set it, and what has been read is applied and the rest waits again.
        progress: show a bar; None shows it on a terminal and in a notebook.

    Raises:
        StoreError: the database cannot be written; what was not acknowledged waits again.
        SettingsError: the provider cannot be read with these settings.
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
                news = worker.news()
                bar.update(news.total() - news["fetches"])
                if idle and not worker.busy:
                    break
                if idle and not worker.awaits_reads:
                    stopped.wait(config.timing.read_timeout)  # for a sync
            worker.interrupted = stopped.is_set()
    told = {
        "seconds": round(time.monotonic() - began, 3),
        "held": worker.held,
        "error": worker.breaker.reason,
    }
    return msgspec.convert({**worker.counts, **told}, ReplayResult)


def follow(
    database: Path,
    config: ReplayConfig,
    stopped: threading.Event,
    wake: threading.Event,
    tell: Callable[[Counter[str]], None],
    on_damaged: Callable[[str], None] = lambda _: None,
) -> None:
    """Work off webhooks as they come, until stopped.

    Args:
        database: created or migrated where needed.
        config: what to work with.
        stopped: set it (and `wake`), and this ends; what is not worked off waits again.
        wake: is set when webhooks have come; those that other processes store are found too.
        tell: is called with how many webhooks have come to which state, and how many reads were
            made, since the last call.
        on_damaged: is called, perhaps more than once, with what SQLite finds wrong with the
            database.
    """
    timing = config.timing
    files = FilesInUse(database)
    while not stopped.is_set():
        try:
            files.check()  # no other file is opened in its place
            with (
                explained(database),
                Mirror(database, busy_seconds=timing.busy) as mirror,
                ExitStack() as stack,
            ):
                worker = Worker(mirror, config, rechecks=True)
                stack.callback(lambda each: tell(each.news()), worker)
                stack.enter_context(worker)
                quiet_since = time.monotonic()
                while not stopped.is_set():
                    if wake.is_set():
                        wake.clear()
                        worker.look_now()
                    if worker.step() or worker.busy:
                        quiet_since = time.monotonic()
                        tell(worker.news())
                    elif time.monotonic() - quiet_since > timing.quiet:
                        worker.end_run()
                    if not worker.awaits_reads:
                        wake.wait(timing.read_timeout if worker.busy else timing.poll)
        except StoreError as error:
            # What was in hand waits again when the lease runs out.
            _log.error("database trouble: %s", error)
            if isinstance(error, DamagedDatabase):
                on_damaged(str(error))
            stopped.wait(timing.restart)
