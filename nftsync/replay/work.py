"""The work of a replay: objects, the reads each needs, and their outcomes.

A read serves a job only if it started after the job's webhooks were claimed, and so after they
were stored; what tells is the sequence number. One read serves every job that waits for it.
"""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from nftsync.errors import InputError, NftsyncError, SyncRunning
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
from nftsync.pull.result import SyncResult
from nftsync.replay.config import RunSync, Timing
from nftsync.store.inbox import ObjectKey
from nftsync.store.wallets import KnownWallet, holders_of, known_tokens, wallets_by_id

_log = logging.getLogger("nftsync.replay")

#: How often a read is made again because a later one made it stale.
_MOST_STALE = 3
#: Objects whose webhooks wait for a sync in memory; a sync may take an hour.
_MOST_WAITING = 10_000
#: Objects in a row that the provider refuses before it counts as down; one may be refused alone.
_REFUSALS = 3


@dataclass(eq=False, slots=True)
class Job:
    """An object whose webhooks are being worked on.

    Attributes:
        key: the object.
        webhook_id: one of the webhooks; changes that are found are put down to it.
        since: reads with a greater sequence number know what the webhooks announced.
        recheck: its webhooks are done; it is only read once more.
        named: reads of what the object names; one of something unknown may fail.
        waits_for: the reads that are still to come.
        changed: a read has found a change.
        error: why a read failed.
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


class Work:
    """Jobs under way and their reads; used by one thread."""

    def __init__(self) -> None:
        self._jobs: set[Job] = set()
        self._waiting: dict[Subject, list[Job]] = {}
        self._to_submit: dict[Subject, AnyTask] = {}
        self._in_flight: dict[Subject, AnyTask] = {}
        self._stale: Counter[Subject] = Counter()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job, tasks: Iterable[AnyTask]) -> None:
        """Let a job wait for reads, beside those it may be waiting for already."""
        self._jobs.add(job)
        for task in tasks:
            subject = subject_of(task)
            if subject not in job.waits_for:
                job.waits_for.add(subject)
                self._waiting.setdefault(subject, []).append(job)
                self.want(task)

    def want(self, task: AnyTask) -> None:
        """Have a read made, whether or not a job waits for it."""
        subject = subject_of(task)
        if subject not in self._in_flight:
            self._to_submit[subject] = task

    def submit(self) -> list[AnyTask]:
        """The reads to begin now; each counts as under way from here on."""
        tasks = list(self._to_submit.values())
        self._in_flight |= self._to_submit
        self._to_submit.clear()
        return tasks

    def withdrawn(self, tasks: Iterable[AnyTask]) -> None:
        """These reads have not begun after all."""
        for task in tasks:
            subject = subject_of(task)
            self._in_flight.pop(subject, None)
            if subject in self._waiting:
                self._to_submit[subject] = task

    def fulfilled(self, read: AnyRead, *, stale: bool) -> list[Job]:
        """Take a read that has come: the jobs that have what they waited for.

        Args:
            read: the read.
            stale: what the read found was not applied; it is made again, though not for ever.
        """
        subject = subject_of(read)
        task = self._in_flight.pop(subject, None)
        jobs = self._waiting.pop(subject, [])
        done = [job for job in jobs if job.since < read.sequence]
        later = [job for job in jobs if job.since >= read.sequence]
        if stale and jobs:
            self._stale[subject] += 1
            if self._stale[subject] <= _MOST_STALE:
                done, later = [], jobs
        if later and task is not None:
            self._waiting[subject] = later
            # Without conditions, as what was known may be gone.
            again = WalletTask(task.wallet_id) if isinstance(task, WalletTask) else task
            self._to_submit[subject] = again
        if done:
            del self._stale[subject]
        for job in done:
            job.waits_for.discard(subject)
        return done

    def drop(self, job: Job) -> None:
        """Forget a job, and the reads that only it waits for."""
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
        """One of the webhooks that caused a read."""
        jobs = self._waiting.get(subject_of(read))
        return jobs[0].webhook_id if jobs else None

    def not_begun(self) -> list[Job]:
        """The jobs of which no read is under way."""
        return [job for job in self._jobs if self._in_flight.keys().isdisjoint(job.waits_for)]

    def forget_reads(self, subjects: Iterable[Subject] | None = None) -> None:
        """These reads, or all under way, will not come: whoever had them has let go."""
        for subject in list(self._in_flight if subjects is None else subjects):
            self._in_flight.pop(subject, None)

    def clear(self) -> None:
        """Forget all jobs; reads under way will serve nobody."""
        for job in list(self._jobs):
            self.drop(job)


class TriggeredSync:
    """Syncs of all wallets that webhooks ask for, one at a time, beside the replay that goes on."""

    def __init__(self, run_sync: RunSync, timing: Timing) -> None:
        """Begin with none."""
        self._run_sync = run_sync
        self._timing = timing
        self._stopped = threading.Event()
        self._thread = ThreadPoolExecutor(1, "nftsync-triggered-sync")
        self._sync: Future[SyncResult] | None = None
        self._waiting: list[Job] = []
        self._running: list[Job] = []

    @property
    def is_busy(self) -> bool:
        """One is under way or asked for."""
        return self._sync is not None or bool(self._waiting)

    def ask(self, job: Job) -> bool:
        """Let a job wait for a sync that is yet to begin; False: too many do."""
        if len(self._waiting) >= _MOST_WAITING:
            return False
        self._waiting.append(job)
        return True

    def update(self) -> tuple[list[Job], str | None, float | None] | None:
        """Begin a sync that is asked for; tell what became of it, once it is over.

        Returns:
            The jobs that asked for it before it began, why it was not made, and seconds until it
            should be tried again; None for these two: it was made.
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
        except InputError:  # no wallet is tracked, so all of them have been read
            pass
        except NftsyncError as trouble:
            error = str(trouble)
        else:
            if result.status not in {"ok", "partial"}:
                error = result.error or f"the sync ended as {result.status}"
        return self._running, error, None if error is None else wait

    def forget_jobs(self) -> None:
        """No job waits any more; a sync under way goes on for nobody."""
        self._waiting, self._running = [], []

    def stop(self) -> None:
        """End a sync under way; what it has read is kept."""
        self._stopped.set()
        self._thread.shutdown()


class CircuitBreaker:
    """Is the provider down, or does it refuse a few objects alone? Told by what reads came to.

    A provider that is down costs no attempts. It is left alone for a while, then one object tells
    whether it answers again. An object that is refused while others are answered is deferred alone.

    Attributes:
        deferred: the objects that were deferred, and not answered for since; and how often again.
        outage: why the provider counts as down, or None while it does not.
        sync_error: why a sync that webhooks ask for was not made, or None.
    """

    def __init__(self, timing: Timing) -> None:
        """Begin with a provider that answers."""
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
        """The provider is down: one object at a time tells whether it answers again."""
        return self._pauses > 0

    @property
    def is_paused(self) -> bool:
        """Nothing may be asked for now."""
        return time.monotonic() < self._paused_until

    @property
    def reason(self) -> str | None:
        """Why webhooks wait that were due, or None."""
        return self.outage or (self._refused if self.deferred else None) or self.sync_error

    def defer(self, key: ObjectKey, error: str | None) -> float:
        """Note that the provider refuses an object; returns how long that is to wait."""
        times = self.deferred[key] = self.deferred.get(key, -1) + 1
        self._refused = f"{key.resource_type} {key.resource_id}: {error}"
        return min(self._timing.longest_deferral, self._timing.first_deferral * 2.0**times)

    def answered(self, key: ObjectKey) -> None:
        """Note that the provider answers for an object."""
        self.deferred.pop(key, None)

    def update(
        self, reads: Sequence[AnyRead], refused: Sequence[AnyRead], *, others: bool
    ) -> Literal["opened", "closed"] | None:
        """Judge the provider by some more reads.

        Args:
            reads: all that have come.
            refused: those of them that say something new of the provider.
            others: more objects are in hand, which may still be answered for.

        Returns:
            What has changed.
        """
        answered = [read.sequence for read in reads if not read.provider_down]
        self._answered = max([self._answered, *answered])
        # A read that failed, while one that began later was answered, failed alone.
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
            _log.info("the provider answers again; replay goes on")
            return "closed"
        return None

    def open(self, why: str) -> None:
        """Leave the provider alone, longer each time."""
        self._pauses += 1
        self._refusals.clear()
        timing = self._timing
        pause = min(timing.longest_pause, timing.first_pause * 2.0 ** (self._pauses - 1))
        pause *= random.uniform(0.8, 1.2)  # noqa: S311 - spreads load
        self._paused_until = time.monotonic() + pause
        self.outage = f"the provider is down or refuses: {why}"
        _log.warning(
            "replay paused: %s", why, extra={"pause_s": round(pause, 1), "pauses": self._pauses}
        )


def plan_reads(
    connection: sqlite3.Connection, routes: Routes, keys: Sequence[ObjectKey]
) -> dict[ObjectKey, tuple[Route | None, list[AnyTask]]]:
    """Work out the reads for objects.

    Args:
        connection: any connection.
        routes: how types are followed.
        keys: the objects.

    Returns:
        Of each how its type is followed, or None where nobody has said; and the reads to make now:
        none for an untracked wallet, or where a sync is asked for.
    """
    routed = {key: routes.find(key.resource_type) for key in keys}
    followed = [(key.resource_id, route) for key, route in routed.items() if route is not None]
    wallet_ids = [of for of, route in followed if route.kind == "wallet"]
    token_ids = [of for of, route in followed if route.kind == "token" and route.holders]
    holders = holders_of(connection, token_ids) if token_ids else {}
    known = wallets_by_id(connection, [*wallet_ids, *chain(*holders.values())])
    plans: dict[ObjectKey, tuple[Route | None, list[AnyTask]]] = {}
    for key, route in routed.items():
        tasks: list[AnyTask] = []
        if route is None or route.kind == "sync":
            pass
        elif route.kind == "wallet":
            tasks += _wallet_task(key.resource_id, known)
        elif route.kind == "token":
            tasks.append(TokenTask(key.resource_id))
            for wallet_id in holders.get(key.resource_id, []) if route.holders else []:
                tasks += _wallet_task(wallet_id, known)
        else:
            path = path_for(route, key.resource_id)
            tasks.append(ObjectTask(key.resource_type, key.resource_id, path))
        plans[key] = route, tasks
    return plans


def plan_named(
    connection: sqlite3.Connection, route: Route, body: str
) -> tuple[list[Task], list[Task]]:
    """The wallets and tokens that an object names, as reads to make next.

    Args:
        connection: any connection.
        route: its route, whose `wallets` and `tokens` say where ids are.
        body: the object, as JSON.

    Returns:
        Reads of what the mirror knows, and reads of what it does not: those may be anyone's.
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


def _wallet_task(wallet_id: str, known: Mapping[str, KnownWallet]) -> list[Task]:
    """A read of a wallet; none of an untracked one.

    Without a condition, as a webhook says that it has changed: a 304 would be weak evidence.
    """
    wallet = known.get(wallet_id)
    if wallet is None:
        return [WalletTask(wallet_id)]
    return [WalletTask(wallet_id, digest=wallet.digest)] if wallet.tracked else []
