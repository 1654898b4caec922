"""A sync under way: threads read, this thread writes and keeps the run's ledger."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path

from nftsync.errors import CutOff, SettingsError, StoreError
from nftsync.provider import Access, ClientConfig
from nftsync.pull.plan import Request, begin, never_read, unread_tokens, unread_wallets
from nftsync.pull.pool import FetchThreads, Reader
from nftsync.pull.process import FetchProcess
from nftsync.pull.reads import Read, Task, TokenTask, WalletTask
from nftsync.pull.removals import EmptyAnswers
from nftsync.pull.result import Failure, SyncResult
from nftsync.records import Applied, WalletRead
from nftsync.store import runs
from nftsync.store.database import explained, file_at, sync_lock
from nftsync.store.mirror import BatchSize, Mirror
from nftsync.terminal import interruptible, progress_bar

__all__ = ["sync_wallets"]

#: So many wallets are worth the fifth of a second that a reading process takes to start.
_WORTH_A_PROCESS = 500
#: Reads wait at most this long to be written together, in seconds.
_PATIENCE = 0.2
#: So long a wait for reads, in seconds, leaves time to take some new tokens into the full-text
#: index, together with what is written next.
_IDLE = 0.02
_INDEX_BESIDE = 4_000
#: How often a read is made again because a later one overtook it.
_MOST_OVERTAKEN = 3


def sync_wallets(
    database: Path,
    config: ClientConfig,
    request: Request,
    *,
    concurrency: int = 16,
    progress: bool | None = None,
    access: Access | None = None,
    stopped: threading.Event | None = None,
) -> SyncResult:
    """Read wallets into the mirror.

    Args:
        database: created or migrated where needed.
        config: how to read the provider.
        request: what to read.
        concurrency: requests at once.
        progress: show bars; None shows them on a terminal and in a notebook.
        access: pace and credentials that are shared with others in this process, which then
            reads by threads of its own, whatever the number of wallets.
        stopped: set it from any thread, and the run ends as after Ctrl-C: what was fetched is
            saved, its status is `interrupted`.

    Raises:
        InputError: there is nothing to read.
        SettingsError: the provider cannot be read with these settings.
        SyncRunning: another sync holds the database.
        StoreError: the database cannot be written, or was moved; what was committed stays.
    """
    with sync_lock(database), ExitStack() as held:
        process: FetchProcess | None = None
        if access is None and _surely_many(request):
            process = held.enter_context(closing(FetchProcess()))  # it starts while we plan
        mirror = held.enter_context(Mirror(database))
        opened = file_at(database)
        signalled = held.enter_context(interruptible())  # a run that is entered is also closed
        with explained(database):
            run = begin(mirror, request)
        if process is None and access is None and len(run.plan) >= _WORTH_A_PROCESS:
            process = held.enter_context(closing(FetchProcess()))
        reader: Reader
        if process is not None:
            process.begin(config, mirror.tickets, concurrency)
            reader = process
        else:
            reader = FetchThreads[Task, Read](config, mirror.tickets, concurrency, access)
            held.enter_context(closing(reader))
        interruptions = [signalled] if stopped is None else [signalled, stopped]
        empty = EmptyAnswers(accept=request.accept_empty)
        result = _SyncRun(mirror, reader, empty, run, progress, interruptions).run()
        if file_at(database) != opened:  # SQLite goes on writing where nobody finds it
            raise StoreError(
                f"{database} was moved, removed or replaced while it was in use; what was fetched "
                "is not in it: run again"
            )
        return result


def _surely_many(request: Request) -> bool:
    """A reading process is worth its start, which shows before the run is planned."""
    if request.wallets is None or request.resume or request.older_than is not None:
        return False
    return len(request.wallets) >= _WORTH_A_PROCESS


class _SyncRun:
    def __init__(
        self,
        mirror: Mirror,
        reader: Reader,
        empty: EmptyAnswers,
        run: runs.Run,
        progress: bool | None,
        interruptions: Sequence[threading.Event],
    ) -> None:
        self._mirror = mirror
        self._reader = reader
        self._empty = empty
        self._run = run
        self._progress = progress
        self._interruptions = interruptions
        self._hopeless = False
        self._cut_off: str | None = None
        self._failures: dict[str, Failure] = {}
        self._overtaken: dict[str, int] = {}
        self._batch = BatchSize()
        self._waited = False
        self._earlier_seconds = run.counts.seconds
        self._began = time.monotonic()

    @property
    def _interrupted(self) -> bool:
        return any(event.is_set() for event in self._interruptions)

    @property
    def _over(self) -> bool:
        """No more is to be read, though not all has been."""
        return self._hopeless or self._interrupted or self._cut_off is not None

    def run(self) -> SyncResult:
        try:
            self._read()
        except SettingsError as error:  # no token is to be had, so no more can be read
            self._hopeless = True
            if not self._interrupted:
                self._finish(interrupted=False, error=str(error))
                raise
        except CutOff as error:
            self._cut_off = str(error)
        interrupted = self._interrupted
        if self._over:
            self._reader.stop()
            while not self._reader.idle and self._take():
                pass
            self._write(self._empty.give_up())
        return self._finish(interrupted=interrupted)

    def _read(self) -> None:
        connection = self._mirror.connection
        self._read_all("wallets", len(self._run.plan), unread_wallets(connection, self._run))
        if self._run.with_tokens and not self._over:
            count, tasks = unread_tokens(connection, self._run)
            self._read_all("tokens", count, tasks)
        if self._over:
            return
        if left := sum(1 for x in never_read(connection, self._run) if x not in self._failures):
            raise CutOff(f"{left:,} wallets were not read; run again with --resume")
        self._mirror.index_tokens()

    def _finish(self, *, interrupted: bool, error: str | None = None) -> SyncResult:
        error = error or self._cut_off or self._reader.verdict or self._empty.verdict
        counts = self._run.counts
        status: runs.RunStatus = "ok"
        if error is not None:
            status = "failed"
        elif interrupted:
            status = "interrupted"
        elif counts.wallets_failed and not counts.wallets_ok:
            status = "failed"
        elif self._failures:
            status = "partial"
        counts.seconds = self._seconds()
        with self._mirror.transaction() as transaction:
            resumable = status == "interrupted" or self._cut_off is not None
            runs.finish_run(transaction.connection, self._run, status, error, resumable=resumable)
        return SyncResult.of(self._run, status, list(self._failures.values()), error)

    def _seconds(self) -> float:
        return round(self._earlier_seconds + time.monotonic() - self._began, 3)

    def _read_all(self, label: str, total: int, tasks: Iterator[Task]) -> None:
        """Feed the reader and write what it brings, until nothing is left."""
        reader = self._reader
        done = self._run.counts.wallets_ok if label == "wallets" else 0
        with progress_bar(label, total, unit=label, done=done, shown=self._progress) as bar:
            more = True
            unseen = total - done
            while not self._over and (more or not reader.idle):
                if more and (room := reader.room):
                    step = list(islice(tasks, room))
                    more = len(step) == room
                    reader.submit(step)
                    unseen -= len(step)
                    if not more and label == "wallets":  # others have read the rest since it began
                        self._run.counts.add_unchanged(unseen)
                        bar.update(unseen)
                bar.update(self._take())
                if not more and reader.idle and not self._over:
                    reader.submit(self._tasks_again(self._write(self._empty.release())))

    def _take(self) -> int:
        """Write what has been read; return how many objects are done with."""
        began = time.monotonic()
        reads = self._reader.take(self._batch.entries, patience=_PATIENCE)
        self._waited = time.monotonic() - began > _IDLE
        applied = self._write(self._empty.sift(reads, self._mirror.connection))
        again = self._tasks_again(applied)
        self._reader.submit(again)
        if self._reader.verdict or self._empty.verdict:
            self._hopeless = True
        return len(reads) - len(again)

    def _write(self, reads: Sequence[Read]) -> list[Applied]:
        if not reads:
            return []
        with self._mirror.transaction() as transaction:
            applied = transaction.apply(reads, run_id=self._run.run_id)
            applied = [self._give_up(x) if x.result == "stale" else x for x in applied]
            if self._waited:
                transaction.index_tokens(_INDEX_BESIDE)
            counts = self._run.counts.with_applied(applied)
            counts.seconds = self._seconds()
            runs.save_counts(transaction.connection, self._run.run_id, counts)
        self._run.counts = counts
        self._note_failures(applied)
        entries = sum(len(x.entries) if isinstance(x, WalletRead) else 1 for x in reads)
        self._batch.learn(entries, self._mirror.held_seconds)
        return applied

    def _give_up(self, applied: Applied) -> Applied:
        """Let a read that was overtaken too often fail; otherwise it is made again."""
        object_id = _object_id(applied.read)
        times = self._overtaken[object_id] = self._overtaken.get(object_id, 0) + 1
        if times <= _MOST_OVERTAKEN:
            return applied
        return applied._replace(result="failed")

    def _tasks_again(self, applied: Sequence[Applied]) -> list[Task]:
        """Tasks for the reads that were overtaken: unconditional, as what they knew is gone."""
        if self._over:
            return []
        return [
            WalletTask(x.read.wallet_id)
            if isinstance(x.read, WalletRead)
            else TokenTask(x.read.token_id)
            for x in applied
            if x.result == "stale"
        ]

    def _note_failures(self, applied: Sequence[Applied]) -> None:
        for x in applied:
            if x.result not in {"failed", "incomplete"}:
                continue
            error = x.read.error or "other reads of it kept overtaking this one"
            if isinstance(x.read, WalletRead):
                self._failures[x.read.wallet_id] = Failure(x.read.wallet_id, error)
            else:
                holder = self._holder(x.read.token_id)
                self._failures[x.read.token_id] = Failure(holder, error, x.read.token_id)

    def _holder(self, token_id: str) -> str:
        row = self._mirror.connection.execute(
            "SELECT w.wallet_id FROM tokens t JOIN balance_rows b USING (token_no)"
            " JOIN wallets w USING (wallet_no) WHERE t.token_id = ? LIMIT 1",
            (token_id,),
        ).fetchone()
        return row[0] if row else ""


def _object_id(read: Read) -> str:
    return read.wallet_id if isinstance(read, WalletRead) else read.token_id
