"""Jobs of a replay in progress, and the reads that they wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from nftsync.pull.reads import (
    AnyRead,
    AnyTask,
    Subject,
    WalletTask,
    subject_of,
)
from nftsync.store.inbox import ObjectKey

#: Retries of a read that a newer one made stale.
_MAX_STALE = 3


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
