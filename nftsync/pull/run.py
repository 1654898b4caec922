"""A sync: the policy of its reads, and the run in which they are counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from nftsync.errors import RunInterrupted, SettingsError
from nftsync.provider.client import Access
from nftsync.provider.config import ClientConfig
from nftsync.pull.loop import STALE, Policy, ReadLoop
from nftsync.pull.plan import SyncRequest, begin, unread_tokens, unread_wallets
from nftsync.pull.process import open_reader
from nftsync.pull.reads import Reader, Subject, Task, TokenTask, WalletTask, subject_of
from nftsync.pull.result import Failure, SyncResult
from nftsync.pull.waiting_reads import WaitingReads
from nftsync.records import Applied, OnRemovals, Read, WalletRead
from nftsync.store import runs
from nftsync.store.database import explained, sync_lock
from nftsync.store.day_report import approve_all
from nftsync.store.faults import unreadable_parts
from nftsync.store.history import begin_span, end_span
from nftsync.store.mirror import Mirror, Transaction
from nftsync.store.removals import HELD_BACK
from nftsync.terminal import interruptible, progress_bar

#: Seconds that reads wait to be written together.
_TIMEOUT = 0.2
#: After such a wait for reads, in seconds, the next transaction also indexes some new tokens.
_LONG_WAIT = 0.02
_INDEXED_AT_ONCE = 4_000
#: Tasks without conditions, by kind of object.
_TASKS = {"wallet": WalletTask, "token": TokenTask}


def sync_wallets(
    database: Path,
    config: ClientConfig,
    request: SyncRequest,
    *,
    concurrency: int = 16,
    progress: bool | None = None,
    access: Access | None = None,
    stopped: threading.Event | None = None,
    on_start: Callable[[], None] = lambda: None,
) -> SyncResult:
    """Read wallets into the database; see `nftsync.sync`.

    Creates or migrates the database. `access` is shared within this process, which then makes the
    reads. Set `stopped` from any thread to end the run as `interrupted`; fetched data is saved.
    Calls `on_start` once the run has begun.

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
        on_start()
        try:
            reader = open_reader(config, mirror.numbers, concurrency, access, tasks=len(run.plan))
        except SettingsError as error:
            with mirror.transaction() as transaction:
                runs.finish_run(transaction.connection, run, "failed", str(error))
            raise
        stack.enter_context(closing(reader))
        waiting = WaitingReads(None if request.allow_removals else request.limits)
        stack.enter_context(closing(waiting))
        interruptions = [signalled] if stopped is None else [signalled, stopped]
        result = Sync(mirror, reader, run, waiting, interruptions, progress).run()
        mirror.check_files()  # if the file was moved, the reads are lost
        return result


@dataclass(eq=False)
class Sync(Policy[Transaction]):
    """A run that reads the wallets of its plan, and counts the results."""

    _mirror: Mirror
    _reader: Reader
    _run: runs.Run
    _waiting: WaitingReads
    _interruptions: Sequence[threading.Event]
    _progress: bool | None
    _error: str | None = None
    _succeeded: int = 0
    _to_repeat: list[Subject] = field(default_factory=list)
    _failures: dict[Subject, Failure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._started = time.monotonic() - self._run.counts.seconds
        self._loop = ReadLoop(self._reader, self, self._waiting, self._mirror)

    def run(self) -> SyncResult:
        """Read everything, and end the run; errors as in `sync_wallets`."""
        cut_off = False
        try:
            self._read()
        except SettingsError as error:  # the token command failed
            if not self._is_interrupted():
                self._error = str(error)
                self._finish()
                raise
        except RunInterrupted as error:
            self._error, cut_off = str(error), True
        interrupted = self._is_interrupted()
        if self._is_over():
            self._loop.stop()
        return self._finish(interrupted=interrupted, cut_off=cut_off)

    def _is_interrupted(self) -> bool:
        return any(event.is_set() for event in self._interruptions)

    def _is_over(self) -> bool:
        self._error = self._error or self._reader.reason
        return self._error is not None or self._is_interrupted()

    # Tasks -----------------------------------------------------------------------------------

    def _read(self) -> None:
        connection = self._mirror.connection
        self._read_all("wallets", len(self._run.plan), unread_wallets(connection, self._run))
        if self._run.with_tokens and not self._is_over():
            self._read_all("tokens", *unread_tokens(connection, self._run))
        if not self._is_over():
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
            if len(self._to_repeat) <= self._succeeded + len(self._waiting):
                self._feed([_TASKS[kind](object_id) for kind, object_id in self._to_repeat])
            while not self._is_over() and self._release():
                self._feed()
        unread = self._loop.unfinished
        if unread and not self._is_over():
            raise RunInterrupted(f"{unread:,} {kind} were not read; run again with --resume")

    def _release(self) -> bool:
        """Decide on the reads that wait; return whether there were any."""
        return self._loop.release()

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
        self._loop.feed(tasks, self._is_over, _TIMEOUT, advance)

    # Reads -----------------------------------------------------------------------------------

    def transaction(self) -> AbstractContextManager[Transaction]:
        return self._mirror.transaction()

    def apply(
        self, transaction: Transaction, reads: Sequence[Read], removals: OnRemovals
    ) -> list[Applied]:
        return transaction.apply(reads, run_id=self._run.run_id, removals=removals)

    def in_transaction(self, transaction: Transaction, applied: Sequence[Applied]) -> None:
        """Store the counts, and index new tokens if there is time."""
        if self._loop.waited > _LONG_WAIT:
            transaction.index_tokens(_INDEXED_AT_ONCE)
        counts = self._run.counts = self._run.counts.with_applied(applied)
        for one in applied:
            if one.is_finished and subject_of(one.read) in self._failures:
                # A repeated read counts once, with its latest outcome.
                counts.retries += min(1, one.read.effort.requests)
                counts.wallets_failed -= isinstance(one.read, WalletRead)
        counts.seconds = self._seconds()
        runs.save_counts(transaction.connection, self._run.run_id, counts)
        if not all(one.changed_nothing for one in applied):
            begin_span(transaction.connection, self._run.run_id, transaction.observed_at)

    def after_commit(self, applied: Sequence[Applied]) -> None:
        """Note failures, and which reads to repeat at the end."""
        for one in applied:
            if not one.is_finished:
                continue
            read, subject = one.read, subject_of(one.read)
            before = self._failures.pop(subject, None)
            if one.result not in {"failed", "incomplete", "held"}:
                self._succeeded += 1
                continue
            self._failures[subject] = self._failure(one)
            if before is None and read.passing and read.provider_down:
                self._to_repeat.append(subject)

    def _failure(self, applied: Applied) -> Failure:
        read = applied.read
        error = HELD_BACK if applied.result == "held" else read.error or STALE
        if isinstance(read, WalletRead):
            is_failed = applied.result == "failed"
            return Failure(read.wallet_id, error, status=None if is_failed else "incomplete")
        _, token_id = subject_of(read)
        holder = self._mirror.connection.execute(
            "SELECT w.wallet_id FROM tokens t JOIN balance_rows b USING (token_no)"
            " JOIN wallets w USING (wallet_no) WHERE t.token_id = ? LIMIT 1",
            (token_id,),
        ).fetchone()
        return Failure(holder[0] if holder else "", error, token_id)

    def _seconds(self) -> float:
        return round(time.monotonic() - self._started, 3)

    def _finish(self, *, interrupted: bool = False, cut_off: bool = False) -> SyncResult:
        run, counts = self._run, self._run.counts
        counts.seconds = self._seconds()
        failures = list(self._failures.values())
        result = SyncResult.of(run.run_id, counts, failures, self._error, interrupted=interrupted)
        with self._mirror.transaction() as transaction:
            if self._waiting.limits is None:
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
