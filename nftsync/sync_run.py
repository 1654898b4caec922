"""A sync under way: threads read, this thread writes and keeps the run's ledger."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from types import FrameType

from nftsync.client import ClientConfig
from nftsync.empty_answers import EmptyAnswers
from nftsync.errors import SettingsError
from nftsync.fetch_process import FetchProcess
from nftsync.fetch_threads import FetchThreads, Reader
from nftsync.models import Applied, WalletRead
from nftsync.progress import progress_bar
from nftsync.reads import Read, Task, TokenTask, WalletTask
from nftsync.store import runs
from nftsync.store.connection import explained
from nftsync.store.lock import sync_lock
from nftsync.store.mirror import Mirror
from nftsync.sync_plan import Request, begin, unread_tokens, unread_wallets
from nftsync.sync_result import Failure, SyncResult

__all__ = ["sync_wallets"]

#: So many wallets are worth the third of a second that a reading process takes to start.
_WORTH_A_PROCESS = 500
#: A write transaction of about this length leaves room for the webhooks' inbox beside it.
_TARGET_SECONDS = 0.12
_FEWEST_ENTRIES = 200
_MOST_ENTRIES = 8_000
#: Reads wait at most this long to be written together, in seconds.
_PATIENCE = 0.2
#: How often a read is made again because a later one overtook it.
_MOST_OVERTAKEN = 3


def sync_wallets(
    database: Path,
    config: ClientConfig,
    request: Request,
    *,
    concurrency: int = 16,
    progress: bool | None = None,
) -> SyncResult:
    """Read wallets into the mirror.

    Args:
        database: created or migrated where needed.
        config: how to read the provider.
        request: what to read.
        concurrency: requests at once.
        progress: show bars; None shows them on a terminal and in a notebook.

    Raises:
        InputError: there is nothing to read.
        SettingsError: the provider cannot be read with these settings.
        SyncRunning: another sync holds the database.
        StoreError: the database cannot be written; what was committed stays.
    """
    with sync_lock(database), Mirror(database) as mirror:
        with explained(database):
            run = begin(mirror, request)
        kind = FetchProcess if len(run.plan) >= _WORTH_A_PROCESS else FetchThreads
        empty = EmptyAnswers(accept=request.accept_empty)
        with closing(kind(config, mirror.tickets, concurrency)) as reader:
            sync = _SyncRun(mirror, reader, empty, run, progress)
            with _interruptible(sync.stopped) as interrupted:
                return sync.run(interrupted)


class _SyncRun:
    def __init__(
        self,
        mirror: Mirror,
        reader: Reader,
        empty: EmptyAnswers,
        run: runs.Run,
        progress: bool | None,
    ) -> None:
        self.stopped = threading.Event()
        self._mirror = mirror
        self._reader = reader
        self._empty = empty
        self._run = run
        self._progress = progress
        self._failures: dict[str, Failure] = {}
        self._overtaken: dict[str, int] = {}
        self._batch = 1_000
        self._earlier_seconds = run.counts.seconds
        self._began = time.monotonic()

    def run(self, interrupted: threading.Event) -> SyncResult:
        try:
            self._read()
        except SettingsError as error:  # no token is to be had, so no more can be read
            self.stopped.set()
            if not interrupted.is_set():
                self._finish(interrupted=False, error=str(error))
                raise
        if self.stopped.is_set():
            self._reader.stop()
            while not self._reader.idle and self._take():
                pass
            self._write(self._empty.give_up())
        return self._finish(interrupted=interrupted.is_set())

    def _read(self) -> None:
        connection = self._mirror.connection
        self._read_all("wallets", len(self._run.plan), unread_wallets(connection, self._run))
        if self._run.with_tokens and not self.stopped.is_set():
            count, tasks = unread_tokens(connection, self._run)
            self._read_all("tokens", count, tasks)
        if not self.stopped.is_set():
            self._mirror.index_tokens()

    def _finish(self, *, interrupted: bool, error: str | None = None) -> SyncResult:
        error = error or self._reader.verdict or self._empty.verdict
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
            runs.finish_run(transaction.connection, self._run, status, error)
        return SyncResult.of(self._run, status, list(self._failures.values()), error)

    def _seconds(self) -> float:
        return round(self._earlier_seconds + time.monotonic() - self._began, 3)

    def _read_all(self, label: str, total: int, tasks: Iterator[Task]) -> None:
        """Feed the reader and write what it brings, until nothing is left."""
        reader = self._reader
        done = self._run.counts.wallets_ok if label == "wallets" else 0
        with progress_bar(label, total, unit=label, done=done, shown=self._progress) as bar:
            more = True
            while not self.stopped.is_set() and (more or not reader.idle):
                if more and (room := reader.room):
                    step = list(islice(tasks, room))
                    more = len(step) == room
                    reader.submit(step)
                bar.update(self._take())
                if not more and reader.idle and not self.stopped.is_set():
                    reader.submit(self._tasks_again(self._write(self._empty.release())))

    def _take(self) -> int:
        """Write what has been read; return how many objects are done with."""
        reads = self._reader.take(self._batch, patience=_PATIENCE)
        applied = self._write(self._empty.sift(reads, self._mirror.connection))
        again = self._tasks_again(applied)
        self._reader.submit(again)
        if self._reader.verdict or self._empty.verdict:
            self.stopped.set()
        return len(reads) - len(again)

    def _write(self, reads: Sequence[Read]) -> list[Applied]:
        if not reads:
            return []
        began = time.monotonic()
        with self._mirror.transaction() as transaction:
            applied = transaction.apply(reads, run_id=self._run.run_id)
            applied = [self._give_up(x) if x.fate == "superseded" else x for x in applied]
            counts = self._run.counts.with_applied(applied)
            counts.seconds = self._seconds()
            runs.save_counts(transaction.connection, self._run.run_id, counts)
        self._run.counts = counts
        self._note_failures(applied)
        self._adapt(reads, time.monotonic() - began)
        return applied

    def _give_up(self, applied: Applied) -> Applied:
        """Let a read that was overtaken too often fail; otherwise it is made again."""
        object_id = _object_id(applied.read)
        times = self._overtaken[object_id] = self._overtaken.get(object_id, 0) + 1
        if times <= _MOST_OVERTAKEN:
            return applied
        return applied._replace(fate="failed")

    def _tasks_again(self, applied: Sequence[Applied]) -> list[Task]:
        """Tasks for the reads that were overtaken: unconditional, as what they knew is gone."""
        if self.stopped.is_set():
            return []
        return [
            WalletTask(x.read.wallet_id)
            if isinstance(x.read, WalletRead)
            else TokenTask(x.read.token_id)
            for x in applied
            if x.fate == "superseded"
        ]

    def _note_failures(self, applied: Sequence[Applied]) -> None:
        for x in applied:
            if x.fate not in {"failed", "incomplete"}:
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

    def _adapt(self, reads: Sequence[Read], took: float) -> None:
        """Size the next batch so that its transaction lasts about as long as it should."""
        entries = sum(len(x.entries) if isinstance(x, WalletRead) else 1 for x in reads)
        if entries > self._batch // 2:
            factor = min(2.0, max(0.5, _TARGET_SECONDS / max(took, 0.001)))
            self._batch = int(min(_MOST_ENTRIES, max(_FEWEST_ENTRIES, self._batch * factor)))


def _object_id(read: Read) -> str:
    return read.wallet_id if isinstance(read, WalletRead) else read.token_id


@contextmanager
def _interruptible(stopped: threading.Event) -> Iterator[threading.Event]:
    """Let Ctrl-C and SIGTERM end the run after what was fetched is saved; a second one ends it now.

    Signals reach the main thread only; elsewhere this does nothing.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(_number: int, _frame: FrameType | None) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        stopped.set()

    for number in before:
        signal.signal(number, stop)
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
