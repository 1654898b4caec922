"""Policy of a sync."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from nftsync.errors import RunInterrupted, SettingsError
from nftsync.provider.config import ClientConfig
from nftsync.pull.process import open_reader
from nftsync.pull.reads import (
    Read,
    Reader,
    Subject,
    Task,
    retry_task,
    subject_of,
    weight,
)
from nftsync.pull.result import Failure, SyncResult
from nftsync.pull.waiting_reads import RemovalGuard
from nftsync.records import Applied, Result, WalletRead
from nftsync.store import runs
from nftsync.store.database import explained, sync_lock
from nftsync.store.faults import unreadable_parts
from nftsync.store.history import approve_all, begin_span, end_span
from nftsync.store.mirror import BatchSize, Mirror, Transaction
from nftsync.store.removals import HELD_BACK
from nftsync.terminal import interruptible, progress_bar

if TYPE_CHECKING:
    from nftsync.provider.client import Access
from nftsync.pull.plan import SyncRequest, begin, unread_tokens, unread_wallets

#: Seconds that reads wait to be written together.
_TIMEOUT = 0.2


#: After such a wait for reads, in seconds, the next transaction also indexes some new tokens.
_LONG_WAIT = 0.02


_INDEXED_AT_ONCE = 4_000


#: Limit of repeats of a stale read.
_MOST_STALE = 3


def sync_wallets(
    database: Path,
    config: ClientConfig,
    request: SyncRequest,
    *,
    concurrency: int = 16,
    progress: bool | None = None,
    access: Access | None = None,
    stopped: threading.Event | None = None,
) -> SyncResult:
    """Read wallets into the database; see `nftsync.sync`.

    Creates or migrates the database. `access` is shared within this process, which then makes the
    reads. Set `stopped` from any thread to end the run as `interrupted`; fetched data is saved.

    Raises:
        NoWallets: no wallets to read.
        SettingsError: the provider's settings are unusable.
        SyncRunning: another sync holds the database.
        StoreError: the database was moved or cannot be written; committed data stays.
    """
    with explained(database), sync_lock(database), ExitStack() as stack:
        mirror = stack.enter_context(Mirror(database))
        # From here on, a signal ends the run in order.
        signalled = stack.enter_context(interruptible())
        run = begin(mirror, request)
        reader = open_reader(config, mirror.numbers, concurrency, access, tasks=len(run.plan))
        stack.enter_context(closing(reader))
        limits = None if request.allow_removals else request.limits
        guard = stack.enter_context(closing(RemovalGuard(limits)))
        interruptions = [signalled] if stopped is None else [signalled, stopped]
        result = SyncRun(mirror, reader, run, guard, interruptions, progress).run()
        mirror.files.check()  # if the file was moved, the reads are lost
        return result


@dataclass
class SyncRun:
    """Loop of a run: feeds a reader with tasks, applies its reads, and counts the results.

    `_unfinished` maps submitted tasks without an outcome to their number of stale reads.
    """

    _mirror: Mirror
    _reader: Reader[Task, Read]
    _run: runs.Run
    _guard: RemovalGuard
    _interruptions: Sequence[threading.Event]
    _progress: bool | None
    _error: str | None = None
    _unfinished: dict[Subject, int] = field(default_factory=dict)
    _succeeded: int = 0
    _to_repeat: list[Task] = field(default_factory=list)
    _failures: dict[Subject, Failure] = field(default_factory=dict)
    _batch: BatchSize = field(default_factory=BatchSize)

    def __post_init__(self) -> None:
        self._started = time.monotonic() - self._run.counts.seconds

    @property
    def _interrupted(self) -> bool:
        return any(event.is_set() for event in self._interruptions)

    @property
    def _stopping(self) -> bool:
        """Whether to stop before all tasks are read."""
        return self._error is not None or self._interrupted

    def run(self) -> SyncResult:
        """Read everything, and end the run; errors as in `sync_wallets`."""
        cut_off = False
        try:
            self._read()
        except SettingsError as error:  # the token command failed
            if not self._interrupted:
                self._error = str(error)
                self._finish()
                raise
        except RunInterrupted as error:
            self._error, cut_off = str(error), True
        interrupted = self._interrupted
        if self._stopping:
            self._reader.stop()
            while not self._reader.idle:
                self._write_reads()
        return self._finish(interrupted=interrupted, cut_off=cut_off)

    def _read(self) -> None:
        connection = self._mirror.connection
        self._read_all("wallets", len(self._run.plan), unread_wallets(connection, self._run))
        if self._run.with_tokens and not self._stopping:
            self._read_all("tokens", *unread_tokens(connection, self._run))
        if not self._stopping:
            self._mirror.index_tokens()

    def _read_all(self, kind: str, planned: int, tasks: Iterator[Task]) -> None:
        """Read all wallets or all tokens, and repeat failed reads once at the end."""
        done = self._run.counts.wallets_ok if kind == "wallets" else 0
        self._succeeded, self._to_repeat = 0, []
        with progress_bar(kind, planned, unit=kind, done=done, shown=self._progress) as bar:
            if kind == "wallets":
                tasks = self._without_read_wallets(tasks, planned - done, bar.update)
            self._feed(tasks, bar.update)
            # If most reads failed, the provider is down, and repeats would fail too.
            if len(self._to_repeat) <= self._succeeded + len(self._guard):
                self._feed(self._to_repeat)
            while not self._stopping and self._release():
                self._feed()
        unread = self._unfinished.keys() - set(self._guard.subjects)
        if unread and not self._stopping:
            raise RunInterrupted(f"{len(unread):,} {kind} were not read; run again with --resume")

    def _without_read_wallets(
        self, tasks: Iterator[Task], planned: int, advance: Callable[[int], object]
    ) -> Iterator[Task]:
        for task in tasks:
            planned -= 1
            yield task
        self._run.counts.add_unchanged(planned)
        advance(planned)

    def _feed(
        self, tasks: Iterable[Task] = (), advance: Callable[[int], object] = lambda _: None
    ) -> None:
        unfinished = self._noted(tasks)
        more = True
        while not self._stopping and (more or not self._reader.idle):
            more = more and self._reader.submit_some(unfinished)
            advance(self._write_reads())

    def _noted(self, tasks: Iterable[Task]) -> Iterator[Task]:
        for task in tasks:
            self._unfinished[subject_of(task)] = 0
            yield task

    def _write_reads(self) -> int:
        """Store finished reads; return the number of finished objects."""
        began = time.monotonic()
        reads = self._reader.take(self._batch.entries, timeout=_TIMEOUT)
        most = _INDEXED_AT_ONCE if time.monotonic() - began > _LONG_WAIT else 0
        apply, run_id = self._guard.apply, self._run.run_id
        again = self._write(lambda t: apply(t, run_id, reads), most) if reads else 0
        self._error = self._error or self._reader.reason
        return len(reads) - again

    def _release(self) -> bool:
        """Decide on the waiting reads, and apply them; return whether there were any."""
        if not self._guard:
            return False
        self._guard.decide(self._mirror.connection)
        release, run_id = self._guard.release, self._run.run_id
        while self._guard:
            self._write(lambda transaction: release(transaction, run_id, self._batch.entries))
        return True

    def _write(self, apply: Callable[[Transaction], list[Applied]], index: int = 0) -> int:
        """Apply reads, and repeat stale reads; return the number of stale reads.

        `index` limits the new tokens that the transaction adds to the full-text index.
        """
        with self._mirror.transaction() as transaction:
            applied = [self._give_up(x) if x.result == "stale" else x for x in apply(transaction)]
            if index:
                transaction.index_tokens(index)
            counts = self._run.counts.with_applied(applied)
            finished = [x for x in applied if x.result not in {"stale", "staged"}]
            for read in (x.read for x in finished if subject_of(x.read) in self._failures):
                # A repeated read counts once, with its latest outcome.
                counts.retries += min(1, read.effort.requests)
                counts.wallets_failed -= isinstance(read, WalletRead)
            counts.seconds = self._seconds()
            runs.save_counts(transaction.connection, self._run.run_id, counts)
            if not all(x.changed_nothing for x in applied):
                begin_span(transaction.connection, self._run.run_id, transaction.observed_at)
        self._run.counts = counts
        self._batch.learn(sum(weight(x.read) for x in applied), self._mirror.lock_seconds)
        for outcome in finished:
            self._note(outcome)
        # Without conditions, as the ETag and digest are outdated.
        stale = [x.read for x in applied if x.result == "stale" and not self._stopping]
        self._reader.submit([retry_task(read) for read in stale])
        return len(stale)

    def _give_up(self, applied: Applied) -> Applied:
        subject = subject_of(applied.read)
        self._unfinished[subject] += 1
        if self._unfinished[subject] <= _MOST_STALE:
            return applied
        return applied._replace(result="failed")

    def _note(self, applied: Applied) -> None:
        """Record a finished read's failure, and whether to repeat it at the end."""
        read = applied.read
        self._unfinished.pop(subject_of(read), None)
        before = self._failures.pop(subject_of(read), None)
        if applied.result in {"failed", "incomplete", "held"}:
            self._note_failure(read, applied.result)
            if before is None and read.passing and read.provider_down:
                self._to_repeat.append(retry_task(read))
        else:
            self._succeeded += 1

    def _note_failure(self, read: Read, result: Result) -> None:
        error = HELD_BACK if result == "held" else read.error
        error = error or "newer reads kept making this read stale"
        if isinstance(read, WalletRead):
            failure = Failure(
                read.wallet_id, error, status=None if result == "failed" else "incomplete"
            )
        else:
            holder = self._mirror.connection.execute(
                "SELECT w.wallet_id FROM tokens t JOIN balance_rows b USING (token_no)"
                " JOIN wallets w USING (wallet_no) WHERE t.token_id = ? LIMIT 1",
                (read.token_id,),
            ).fetchone()
            failure = Failure(holder[0] if holder else "", error, read.token_id)
        self._failures[subject_of(read)] = failure

    def _seconds(self) -> float:
        return round(time.monotonic() - self._started, 3)

    def _finish(self, *, interrupted: bool = False, cut_off: bool = False) -> SyncResult:
        run, counts = self._run, self._run.counts
        counts.seconds = self._seconds()
        failures = list(self._failures.values())
        result = SyncResult.of(run.run_id, counts, failures, self._error, interrupted=interrupted)
        with self._mirror.transaction() as transaction:
            if self._guard.limits is None:
                approve_all(transaction.connection)
            if not (self._error or interrupted):  # removals that waited were stored, too
                whole = result.status in {"ok", "partial"}
                end_span(transaction.connection, run.run_id, made_up_for=whole)
            resumable = cut_off or result.status == "interrupted"
            runs.finish_run(
                transaction.connection, run, result.status, self._error, resumable=resumable
            )
            parts = unreadable_parts(transaction.connection)
        return msgspec.structs.replace(result, unreadable=parts)
