"""Jobs of a replay in progress, and the reads that they wait for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from nftsync.pull.loop import STALE, ReadLoop
from nftsync.pull.reads import Subject, Task, subject_of
from nftsync.records import Applied, Read
from nftsync.store.inbox import ObjectKey
from nftsync.store.mirror import Transaction


@dataclass(eq=False, slots=True)
class Job:
    """An object whose webhooks are being processed.

    `webhook_id` is recorded as the cause of changes. Reads with a sequence number above `since`
    reflect the webhooks. `recheck`: the webhooks are done already. The reads of `named` objects,
    which are unknown, may fail. `down`: the provider is down or refuses.
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


class Answer(NamedTuple):
    """What a read means for a job; `is_down`: the provider is down or refuses."""

    error: str | None = None
    is_down: bool = False
    changed: bool = False


def answer_of(applied: Applied, *, is_named: bool) -> Answer:
    """Return what a read means for a job, whose object may only name the read's object."""
    read = applied.read
    if read.outcome in {"failed", "incomplete"}:
        # A named id may belong to others: the provider then answers 404 or 403.
        if is_named and (read.status == 403 or not read.provider_down):
            return Answer()
        return Answer(read.error, is_down=read.provider_down)
    if applied.result == "failed":
        return Answer(STALE)
    return Answer(changed=not applied.changed_nothing)


class Jobs:
    """Jobs in progress; for one thread."""

    def __init__(self, loop: ReadLoop[Transaction]) -> None:
        self._loop = loop
        self._jobs: set[Job] = set()
        self._waiting: dict[Subject, list[Job]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job, tasks: Iterable[Task]) -> None:
        self._jobs.add(job)
        for task in tasks:
            subject = subject_of(task)
            if subject not in job.waits_for:
                job.waits_for.add(subject)
                self._waiting.setdefault(subject, []).append(job)
                self._loop.request(task, after=job.since)

    def served_by(self, read: Read) -> list[Job]:
        """Return the jobs that wait for a read, and wait for it no more."""
        subject = subject_of(read)
        jobs = self._waiting.pop(subject, [])
        served = [job for job in jobs if job.since < read.sequence]
        if later := [job for job in jobs if job.since >= read.sequence]:
            self._waiting[subject] = later
        for job in served:
            job.waits_for.discard(subject)
        return served

    def drop(self, job: Job) -> None:
        """Drop a job, and reads for this job alone."""
        self._jobs.discard(job)
        for subject in job.waits_for:
            others = [other for other in self._waiting.get(subject, []) if other is not job]
            if others:
                self._waiting[subject] = others
            else:
                self._waiting.pop(subject, None)
                self._loop.cancel(subject)
        job.waits_for.clear()

    def webhook_behind(self, read: Read) -> str | None:
        jobs = self._waiting.get(subject_of(read))
        return jobs[0].webhook_id if jobs else read.webhook_id

    def idle(self) -> list[Job]:
        in_flight = self._loop.is_in_flight
        return [job for job in self._jobs if not any(map(in_flight, job.waits_for))]

    def clear(self) -> None:
        for job in list(self._jobs):
            self.drop(job)
