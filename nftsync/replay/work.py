"""What a replay has in hand: objects with webhooks, and the reads each still waits for.

A read serves a job only if it started after the job's webhooks were claimed, and so after they
were stored; what tells is the ticket. One read serves every job that waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from nftsync.models import TokenRead, WalletRead
from nftsync.reads import AnyRead, AnyTask, TokenTask, WalletTask
from nftsync.store.inbox_queue import ObjectKey

__all__ = ["Job", "Subject", "Work", "subject_of"]

#: What a read is of: its kind, and the ids that name the object.
Subject: TypeAlias = tuple[str, ...]

#: How often a read is made again because a later one overtook it.
_MOST_OVERTAKEN = 3


def subject_of(read: AnyTask | AnyRead) -> Subject:
    """What a task asks for, or a read answers."""
    if isinstance(read, WalletTask | WalletRead):
        return ("wallet", read.wallet_id)
    if isinstance(read, TokenTask | TokenRead):
        return ("token", read.token_id)
    return ("object", read.resource_type, read.resource_id)


class Job:
    """An object whose webhooks are being worked on.

    Attributes:
        key: the object.
        webhook_id: one of the webhooks; changes that are found are put down to it.
        since: reads with a greater ticket know what the webhooks announced.
        look: its webhooks are done; it is only looked at once more.
        named: reads of what the object names; one of something unknown may fail.
        waits_for: the reads that are still to come.
        changed: a read has found a change.
        error: why a read failed.
        down: a read failed because the provider is down or refuses.
    """

    __slots__ = (
        "changed", "down", "error", "key", "look", "named", "since", "waits_for", "webhook_id",
    )  # fmt: skip

    def __init__(self, key: ObjectKey, webhook_id: str, since: int, *, look: bool = False) -> None:
        self.key = key
        self.webhook_id = webhook_id
        self.since = since
        self.look = look
        self.named: set[Subject] = set()
        self.waits_for: set[Subject] = set()
        self.changed = False
        self.error: str | None = None
        self.down = False


class Work:
    """Jobs under way and their reads; used by one thread."""

    def __init__(self) -> None:
        self._jobs: set[Job] = set()
        self._waiting: dict[Subject, list[Job]] = {}
        self._in_flight: set[Subject] = set()
        self._to_submit: dict[Subject, AnyTask] = {}
        self._overtaken: dict[Subject, int] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job, tasks: Iterable[AnyTask]) -> None:
        """Let a job wait for reads, beside those it may be waiting for already."""
        self._jobs.add(job)
        for task in tasks:
            subject = subject_of(task)
            if subject in job.waits_for:
                continue
            job.waits_for.add(subject)
            self._waiting.setdefault(subject, []).append(job)
            if subject not in self._in_flight:
                self._to_submit[subject] = task

    def submit(self) -> list[AnyTask]:
        """The reads to begin now; each counts as under way from here on."""
        tasks = list(self._to_submit.values())
        self._in_flight.update(self._to_submit)
        self._to_submit.clear()
        return tasks

    def want(self, task: AnyTask) -> None:
        """Have a read made that no job waits for."""
        subject = subject_of(task)
        if subject not in self._in_flight:
            self._to_submit.setdefault(subject, task)

    def withdrawn(self, tasks: Iterable[AnyTask]) -> None:
        """These reads have not begun after all."""
        for task in tasks:
            subject = subject_of(task)
            self._in_flight.discard(subject)
            if subject in self._waiting:
                self._to_submit[subject] = task

    def served(self, read: AnyRead, again: AnyTask, *, overtaken: bool) -> list[Job]:
        """Take a read that has come: the jobs that it serves.

        Args:
            read: the read.
            again: asks the same without conditions; submitted when a later read is needed.
            overtaken: what the read found was not applied; it is made again, though not for ever.
        """
        subject = subject_of(read)
        self._in_flight.discard(subject)
        jobs = self._waiting.pop(subject, [])
        served: list[Job] = []
        later: list[Job] = []
        for job in jobs:
            (later if job.since >= read.ticket else served).append(job)
        if overtaken and jobs:
            times = self._overtaken[subject] = self._overtaken.get(subject, 0) + 1
            if times <= _MOST_OVERTAKEN:
                later, served = jobs, []
        if later:
            self._waiting[subject] = later
            self._to_submit[subject] = again
        if served:
            self._overtaken.pop(subject, None)
        for job in served:
            job.waits_for.discard(subject)
        return served

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
                self._overtaken.pop(subject, None)
        job.waits_for.clear()

    def webhook_behind(self, read: AnyRead) -> str | None:
        """One of the webhooks that caused a read."""
        jobs = self._waiting.get(subject_of(read))
        return jobs[0].webhook_id if jobs else None

    def not_begun(self) -> list[Job]:
        """The jobs of which no read is under way."""
        return [job for job in self._jobs if not job.waits_for & self._in_flight]

    def forget_reads(self) -> None:
        """The reads under way will not come: whoever made them has ended."""
        self._in_flight.clear()

    def clear(self) -> None:
        """Forget all jobs; reads under way will serve nobody."""
        for job in list(self._jobs):
            self.drop(job)
