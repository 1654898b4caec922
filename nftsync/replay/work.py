"""Parts of the replay worker: its claims and reads, requested syncs, and the circuit breaker.

A lease keeps two workers from processing the same webhooks. A read serves every waiting job whose
webhooks were claimed before the read started, as sequence numbers show.
"""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

import msgspec

from nftsync.errors import NftsyncError, SyncRunning
from nftsync.provider.webhooks import Route, Routes, named_ids, path_for
from nftsync.pull.reads import (
    AnyRead,
    AnyTask,
    ObjectTask,
    Subject,
    Task,
    TokenTask,
    WalletTask,
    subject_of,
)
from nftsync.pull.removal_guard import RemovalGuard
from nftsync.pull.result import SyncResult
from nftsync.pull.run import NoWallets
from nftsync.records import Applied, ObjectRead, WalletRead
from nftsync.replay.config import ReplayConfig, RunSync, Timing
from nftsync.store import inbox, leases, runs
from nftsync.store.history import begin_span, end_span
from nftsync.store.inbox import ObjectKey, Settlement
from nftsync.store.mirror import Mirror, Transaction
from nftsync.store.wallets import KnownWallet, holders_of, known_tokens, wallets_by_id
from nftsync.times import growing_wait, now

_log = logging.getLogger("nftsync.replay")

#: Retries of a read that a newer one made stale.
_MAX_STALE = 3
#: Limit of the jobs in memory that wait for a sync; a sync may take an hour.
_MAX_WAITING = 10_000
#: Refused objects in a row after which the provider counts as down; it may refuse a single object.
_REFUSALS = 3


@dataclass(eq=False, slots=True)
class Job:
    """An object whose webhooks are being processed.

    Attributes:
        webhook_id: a webhook to record as the cause of changes.
        since: reads with a greater sequence number reflect the webhooks.
        recheck: the webhooks are done; this is the recheck.
        named: reads of unknown wallets and tokens that the object names; they may fail.
        waits_for: pending reads.
        down: a read failed because the provider is down or refuses.
    """

    key: ObjectKey
    webhook_id: str
    since: int
    recheck: bool = False
    named: set[Subject] = field(default_factory=set)
    waits_for: set[Subject] = field(default_factory=set)
    changed: bool = False
    error: str | None = None
    down: bool = False


class LeasedRun:
    """Run under a lease: it starts with the first work, and ends when no work is left.

    Attributes:
        counts: webhooks by end state, and reads, in all runs.
        settlements: end states of claimed webhooks, to be acknowledged.
    """

    def __init__(self, mirror: Mirror, config: ReplayConfig, on_lost: Callable[[], None]) -> None:
        """Start without a lease; `on_lost` is called when a lease was lost."""
        self.counts: Counter[str] = Counter()
        self.guard = RemovalGuard(config.limits)
        self.settlements: list[Settlement] = []
        self._mirror = mirror
        self._config = config
        self._on_lost = on_lost
        self._number: int | None = None  # the fencing token
        self._run: runs.Run | None = None
        self._look_for_late_at = 0.0

    # The lease -------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a transaction that takes or renews the lease."""
        with self._mirror.transaction() as transaction:
            connection, at = transaction.connection, now()
            if self._run is None:
                self._run = runs.start_run(connection, "replay", self._mirror.numbers.take(), at)
            run_id = self._run.run_id
            lost = self._number is not None and not leases.renew_lease(
                connection, self._number, at, run_id=run_id
            )
            if lost:
                _log.warning("lease lost; its webhooks are pending again")
                runs.reopen(connection, self._run)  # the new owner has closed it
                self._on_lost()
                self.forget()
            if lost or self._number is None:
                self._number = leases.take_lease(connection, at)
                leases.renew_lease(connection, self._number, at, run_id=run_id)
            yield transaction

    @property
    def _current(self) -> tuple[int, runs.Run]:
        if self._number is None or self._run is None:
            raise AssertionError("a run requires a lease")
        return self._number, self._run

    @property
    def is_held(self) -> bool:
        """Whether this worker holds a lease, as far as it knows."""
        return self._number is not None

    def renew(self) -> None:
        """Renew the lease, and release the webhooks of dead workers."""
        while leases.has_expired(self._mirror.connection, now()):
            with self._mirror.transaction() as transaction:
                leases.take_back_expired(transaction.connection, now())
        if self.is_held:
            with self.transaction():
                pass

    def forget(self) -> None:
        """Discard unstored work."""
        self.settlements = []
        self.guard.forget()

    def end(self, status: runs.RunStatus, error: str | None = None) -> None:
        """End the lease and the run, and release its claimed webhooks."""
        more = self._number is not None
        while more:
            with self._mirror.transaction() as transaction:
                more = leases.end_lease(transaction.connection, self._number or 0)
                if self._run is not None:
                    runs.finish_run(transaction.connection, self._run, status, error)
                    end_span(transaction.connection, self._run.run_id)
            self._run = None
        self._number = None

    # Claiming --------------------------------------------------------------------------------

    def claim(self, room: int, due: str | None) -> tuple[bool, list[Job]]:
        """Claim webhooks of at most `room` objects, due by `due` (default: now).

        Returns:
            Whether any webhook was due (another worker may have claimed it), and a job per object.
        """
        at = now()
        late = time.monotonic() >= self._look_for_late_at
        if late:
            self._look_for_late_at = time.monotonic() + self._config.timing.late_check
        keys = inbox.due_objects(self._mirror.connection, due or at, at, room, late=late)
        was_due = more = bool(keys)
        claims: dict[ObjectKey, str] = {}
        under = None
        while more:
            with self.transaction() as transaction:
                number, _ = self._current
                if under not in {None, number}:
                    return True, []  # the webhooks of the lost lease are pending again
                claimed = inbox.claim(
                    transaction.connection,
                    number,
                    keys,
                    due or at,
                    at,
                    organization_id=self._config.organization_id,
                    going_on=under is not None,
                )
            self.counts["quarantined"] += claimed.quarantined
            claims |= claimed.claims
            # Continue only with this claim's objects: another worker may run the others by now.
            keys = [key for key in keys if key in claims]
            more, under = claimed.more and bool(keys), number
        # After the claim: later reads reflect the claimed webhooks.
        since = self._mirror.numbers.take() if claims else 0
        return was_due, [Job(key, webhook_id, since) for key, webhook_id in claims.items()]

    def claim_rechecks(self, room: int) -> list[Job]:
        """Claim at most `room` due rechecks."""
        at = now()
        (due,) = self._mirror.connection.execute(
            "SELECT EXISTS (SELECT 1 FROM webhooks"
            " WHERE look_again_at IS NOT NULL AND look_again_at <= ?)",
            (at,),
        ).fetchone()
        if not due or room <= 0:
            return []
        with self.transaction() as transaction:
            rechecks = inbox.due_rechecks(transaction.connection, at, room)
        since = self._mirror.numbers.take()
        return [Job(key, webhook_id, since, recheck=True) for key, webhook_id in rechecks]

    # Applying and acknowledging --------------------------------------------------------------

    def apply(
        self,
        transaction: Transaction,
        reads: Sequence[AnyRead],
        webhook_behind: Callable[[AnyRead], str | None],
    ) -> list[tuple[AnyRead, Applied | None]]:
        """Apply reads of wallets and tokens, and count all reads in the run.

        Returns:
            Each read, unless it awaits a decision on removals, and its effect on the mirror, if
            any.
        """
        _, run = self._current
        unknown = _unknown_wallets(transaction.connection, reads)
        aside: list[AnyRead] = []
        caused = []
        for read in reads:
            if isinstance(read, ObjectRead) or read.provider_down or read in unknown:
                aside.append(read)
                run.counts.requests += read.effort.requests
                run.counts.retries += read.effort.retries
            else:
                caused.append(msgspec.structs.replace(read, webhook_id=webhook_behind(read)))
        applied = self._counted(transaction, self.guard.apply(transaction, run.run_id, caused))
        if self.guard:
            changed = not all(effect.changed_nothing for effect in applied)
            at = transaction.observed_at
            begin_span(transaction.connection, run.run_id, at, changed=changed)
        done = [(effect.read, effect) for effect in applied if effect.result != "staged"]
        return [*((read, None) for read in aside), *done]

    def release(self, transaction: Transaction, entries: int) -> list[tuple[AnyRead, Applied]]:
        """Apply waiting reads, of about `entries` list entries, after the removal guard decided."""
        _, run = self._current
        released = self.guard.release(transaction, run.run_id, entries)
        applied = self._counted(transaction, released)
        if not self.guard:
            end_span(transaction.connection, run.run_id)
        if number := sum(effect.result == "held" for effect in applied):
            _log.warning("removals held for review", extra={"reads": number})
        return [(effect.read, effect) for effect in applied]

    def _counted(self, transaction: Transaction, applied: list[Applied]) -> list[Applied]:
        _, run = self._current
        run.counts = run.counts.with_applied(applied)
        runs.save_counts(transaction.connection, run.run_id, run.counts)
        return applied

    def acknowledge(self, connection: sqlite3.Connection) -> None:
        """Acknowledge as many webhooks as fit in a transaction."""
        number, run = self._current
        counts, self.settlements = inbox.acknowledge(
            connection, number, self.settlements, now(), run.run_id
        )
        self.counts.update({state: n for state, n in counts.items() if state != "pending"})

    def acknowledge_all(self) -> None:
        """Acknowledge all webhooks in `settlements`."""
        while self.settlements:
            with self.transaction() as transaction:
                self.acknowledge(transaction.connection)


def _unknown_wallets(connection: sqlite3.Connection, reads: Sequence[AnyRead]) -> list[WalletRead]:
    """Return the failed reads of wallets that the database lacks."""
    failed = [x for x in reads if isinstance(x, WalletRead) and x.outcome == "failed"]
    if not failed:
        return []
    wallets = wallets_by_id(connection, [read.wallet_id for read in failed])
    return [read for read in failed if read.wallet_id not in wallets]


class Work:
    """Jobs in progress, and their reads; for one thread."""

    def __init__(self) -> None:
        self._jobs: set[Job] = set()
        self._waiting: dict[Subject, list[Job]] = {}
        self._to_submit: dict[Subject, AnyTask] = {}
        self._in_flight: dict[Subject, AnyTask] = {}
        self._stale: Counter[Subject] = Counter()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job, tasks: Iterable[AnyTask]) -> None:
        """Make a job wait for reads."""
        self._jobs.add(job)
        for task in tasks:
            subject = subject_of(task)
            if subject not in job.waits_for:
                job.waits_for.add(subject)
                self._waiting.setdefault(subject, []).append(job)
                self.request(task)

    def request(self, task: AnyTask) -> None:
        """Request a read, even without a job."""
        subject = subject_of(task)
        if subject not in self._in_flight:
            self._to_submit[subject] = task

    def submit(self) -> list[AnyTask]:
        """Return the requested reads, now in flight."""
        tasks = list(self._to_submit.values())
        self._in_flight |= self._to_submit
        self._to_submit.clear()
        return tasks

    def withdraw(self, tasks: Iterable[AnyTask]) -> None:
        """Request again the submitted reads that did not start, if jobs wait for them."""
        for task in tasks:
            subject = subject_of(task)
            self._in_flight.pop(subject, None)
            if subject in self._waiting:
                self._to_submit[subject] = task

    def complete(self, read: AnyRead, *, stale: bool) -> list[Job]:
        """Return the jobs that a read serves; repeat a `stale` read a few times."""
        subject = subject_of(read)
        task = self._in_flight.pop(subject, None)
        jobs = self._waiting.pop(subject, [])
        done = [job for job in jobs if job.since < read.sequence]
        later = [job for job in jobs if job.since >= read.sequence]
        if stale and jobs:
            self._stale[subject] += 1
            if self._stale[subject] <= _MAX_STALE:
                done, later = [], jobs
        if later and task is not None:
            self._waiting[subject] = later
            # Unconditionally, because the state to compare with may be gone.
            again = WalletTask(task.wallet_id) if isinstance(task, WalletTask) else task
            self._to_submit[subject] = again
        if done:
            del self._stale[subject]
        for job in done:
            job.waits_for.discard(subject)
        return done

    def drop(self, job: Job) -> None:
        """Drop a job, and reads for this job alone."""
        self._jobs.discard(job)
        for subject in job.waits_for:
            others = [other for other in self._waiting.get(subject, []) if other is not job]
            if others:
                self._waiting[subject] = others
            else:
                self._waiting.pop(subject, None)
                self._to_submit.pop(subject, None)
                del self._stale[subject]
        job.waits_for.clear()

    def webhook_behind(self, read: AnyRead) -> str | None:
        """Return a webhook that caused a read, if any."""
        jobs = self._waiting.get(subject_of(read))
        return jobs[0].webhook_id if jobs else None

    def idle_jobs(self) -> list[Job]:
        """Return the jobs without a read in flight."""
        return [job for job in self._jobs if self._in_flight.keys().isdisjoint(job.waits_for)]

    def forget_reads(self, subjects: Iterable[Subject] | None = None) -> None:
        """Forget reads in flight (all by default) that will not return."""
        for subject in list(self._in_flight if subjects is None else subjects):
            self._in_flight.pop(subject, None)

    def clear(self) -> None:
        """Drop all jobs."""
        for job in list(self._jobs):
            self.drop(job)


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


class CircuitBreaker:
    """Breaker that pauses reads while the provider is down, and defers objects that it refuses.

    After a pause, one object tests the provider. An outage uses up no attempts.

    Attributes:
        deferred: refused objects, and their number of further refusals.
        outage: why the provider counts as down, or None.
        sync_error: why the last requested sync failed, or None.
    """

    def __init__(self, timing: Timing) -> None:
        self.deferred: dict[ObjectKey, int] = {}
        self.outage: str | None = None
        self.sync_error: str | None = None
        self._timing = timing
        self._answered = 0
        self._refusals: list[int] = []
        self._pauses = 0
        self._paused_until = 0.0
        self._refused: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the provider is down."""
        return self._pauses > 0

    @property
    def is_paused(self) -> bool:
        """Whether no read may start now."""
        return time.monotonic() < self._paused_until

    @property
    def reason(self) -> str | None:
        """Why due webhooks are still pending, or None."""
        return self.outage or (self._refused if self.deferred else None) or self.sync_error

    def defer(self, key: ObjectKey, error: str | None) -> float:
        """Record a refused object; return its delay in seconds."""
        times = self.deferred[key] = self.deferred.get(key, -1) + 1
        self._refused = f"{key.resource_type} {key.resource_id}: {error}"
        timing = self._timing
        return growing_wait(timing.first_deferral, timing.longest_deferral, times)

    def answered(self, key: ObjectKey) -> None:
        """Record an answered object."""
        self.deferred.pop(key, None)

    def update(
        self, reads: Sequence[AnyRead], refused: Sequence[AnyRead], *, others: bool
    ) -> Literal["opened", "closed"] | None:
        """Update the breaker from finished reads, and return the change, if any.

        Some reads count as refused. `others`: other objects are in work and may still succeed.
        """
        answered = [read.sequence for read in reads if not read.provider_down]
        self._answered = max([self._answered, *answered])
        # A refusal counts only if no later read was answered.
        down = [read for read in refused if read.sequence > self._answered]
        self._refusals += [read.sequence for read in down]
        self._refusals = [sequence for sequence in self._refusals if sequence > self._answered]
        alone = len(self._refusals) < _REFUSALS and others and not self.is_open
        if down and not alone:
            if self.is_paused:
                return None
            self.open(down[0].error or "no answer")
            return "opened"
        if answered and self.is_open:
            self._pauses, self._paused_until, self.outage = 0, 0.0, None
            _log.info("the provider answers again; replay resumes")
            return "closed"
        return None

    def open(self, reason: str) -> None:
        """Pause reads, longer each time."""
        self._pauses += 1
        self._refusals.clear()
        timing = self._timing
        pause = growing_wait(timing.first_pause, timing.longest_pause, self._pauses - 1)
        pause *= random.uniform(0.8, 1.2)  # noqa: S311 - spreads load
        self._paused_until = time.monotonic() + pause
        self.outage = f"the provider is down or refuses: {reason}"
        _log.warning(
            "replay paused: %s", reason, extra={"pause_s": round(pause, 1), "pauses": self._pauses}
        )


def plan_reads(
    connection: sqlite3.Connection, routes: Routes, keys: Sequence[ObjectKey]
) -> dict[ObjectKey, tuple[Route | None, list[AnyTask]]]:
    """Return each object's route, if any, and the reads to request now.

    An untracked wallet and a route to a sync need no read.
    """
    routed = {key: routes.find(key.resource_type) for key in keys}
    followed = [(key.resource_id, route) for key, route in routed.items() if route is not None]
    wallet_ids = [id_ for id_, route in followed if route.kind == "wallet"]
    token_ids = [id_ for id_, route in followed if route.kind == "token" and route.holders]
    holders = holders_of(connection, token_ids) if token_ids else {}
    wallets = wallets_by_id(connection, [*wallet_ids, *chain(*holders.values())])
    plans: dict[ObjectKey, tuple[Route | None, list[AnyTask]]] = {}
    for key, route in routed.items():
        tasks: list[AnyTask] = []
        if route is None or route.kind == "sync":
            pass
        elif route.kind == "wallet":
            tasks += _wallet_task(key.resource_id, wallets)
        elif route.kind == "token":
            tasks.append(TokenTask(key.resource_id))
            for wallet_id in holders.get(key.resource_id, []) if route.holders else []:
                tasks += _wallet_task(wallet_id, wallets)
        else:
            path = path_for(route, key.resource_id)
            tasks.append(ObjectTask(key.resource_type, key.resource_id, path))
        plans[key] = route, tasks
    return plans


def plan_named(
    connection: sqlite3.Connection, route: Route, body: str
) -> tuple[list[Task], list[Task]]:
    """Plan the reads of the wallets and tokens that an object names in its JSON.

    Returns:
        Reads of known wallets and tokens, and of unknown ones, which may belong to others.
    """
    wallet_ids, token_ids = named_ids(body, route.wallets), named_ids(body, route.tokens)
    wallets = wallets_by_id(connection, wallet_ids)
    tokens = known_tokens(connection, token_ids)
    ours: list[Task] = []
    others: list[Task] = []
    for wallet_id in wallet_ids:
        (ours if wallet_id in wallets else others).extend(_wallet_task(wallet_id, wallets))
    for token_id in token_ids:
        (ours if token_id in tokens else others).append(TokenTask(token_id))
    return ours, others


def _wallet_task(wallet_id: str, wallets: Mapping[str, KnownWallet]) -> list[Task]:
    # Unconditional: after a webhook, a 304 would be weak evidence.
    wallet = wallets.get(wallet_id)
    if wallet is None:
        return [WalletTask(wallet_id)]
    return [WalletTask(wallet_id, digest=wallet.digest)] if wallet.tracked else []
