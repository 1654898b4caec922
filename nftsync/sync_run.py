"""A sync under way: threads read, this thread writes and keeps the run's ledger."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from nftsync.client import Client, Health, Tally
from nftsync.empty_answers import EmptyAnswers
from nftsync.errors import ReadError
from nftsync.fetchers import Fetchers
from nftsync.models import Applied, TokenRead, WalletRead
from nftsync.progress import progress_bar
from nftsync.store import runs
from nftsync.store.lock import sync_lock
from nftsync.store.mirror import Mirror
from nftsync.sync_plan import (
    Request,
    TokenTask,
    WalletTask,
    begin,
    unread_tokens,
    unread_wallets,
)
from nftsync.sync_result import Failure, SyncResult
from nftsync.times import now

__all__ = ["read_token", "read_wallet", "sync_wallets"]

#: A write transaction of about this length leaves room for the webhooks' inbox beside it.
_TARGET_SECONDS = 0.08
_FEWEST_ENTRIES = 200
_MOST_ENTRIES = 10_000
#: Reads wait at most this long to be written together, in seconds.
_PATIENCE = 0.2
#: How often a read is made again because a later one overtook it.
_MOST_OVERTAKEN = 3
#: What an answer that has come when the run is stopped has to be decoded, in seconds.
_LAST_READS = 2.0


def sync_wallets(
    database: Path,
    client: Client,
    health: Health,
    request: Request,
    *,
    concurrency: int = 16,
    progress: bool | None = None,
) -> SyncResult:
    """Read wallets into the mirror.

    Args:
        database: created or migrated where needed.
        client: reads the provider; its pace is stopped when the run has to end early.
        health: what the client reports to.
        request: what to read.
        concurrency: requests at once.
        progress: show bars; None shows them on a terminal and in a notebook.

    Raises:
        InputError: there is nothing to read.
        SyncRunning: another sync holds the database.
        StoreError: the database cannot be written; what was committed stays.
    """
    with sync_lock(database), Mirror(database) as mirror:
        run = begin(mirror, request)
        empty = EmptyAnswers(accept=request.accept_empty)
        sync = _SyncRun(mirror, client, health, empty, run, concurrency, progress)
        with _interruptible(client.pace.stopped) as interrupted:
            return sync.run(interrupted)


def read_wallet(client: Client, mirror: Mirror, task: WalletTask) -> WalletRead:
    """Read a wallet's balances; a failure is an outcome, not an exception.

    Raises:
        Stopped: the client's pace was stopped.
    """
    tally = Tally()
    asked: dict[str, Any] = {
        "wallet_id": task.wallet_id,
        "ticket": mirror.tickets.take(),
        "started_at": now(),
    }
    try:
        found = client.balances(task.wallet_id, tally, etag=task.etag, known_digest=task.digest)
    except ReadError as error:
        return WalletRead(**asked, outcome="failed", error=str(error), effort=tally.effort())
    asked |= {"digest": found.digest, "etag": found.etag, "effort": tally.effort()}
    if found.entries is None:
        return WalletRead(**asked, outcome="unchanged")
    if found.unknown_field is not None:
        return WalletRead(
            **asked,
            outcome="incomplete",
            entries=found.entries,
            error=(
                f"the answer has the unknown field {found.unknown_field[:80]!r} beside "
                "nftTokenBalances and may be one page of several: nothing was taken as removed; "
                "list it in ignore_fields, or set [paging]"
            ),
        )
    return WalletRead(**asked, outcome="ok", entries=found.entries)


def read_token(client: Client, mirror: Mirror, task: TokenTask) -> TokenRead:
    """Read a single token; a failure is an outcome, not an exception.

    Raises:
        Stopped: the client's pace was stopped.
    """
    tally = Tally()
    asked: dict[str, Any] = {
        "token_id": task.token_id,
        "ticket": mirror.tickets.take(),
        "started_at": now(),
    }
    try:
        content = client.token(task.token_id, tally)
    except ReadError as error:
        return TokenRead(**asked, outcome="failed", error=str(error), effort=tally.effort())
    return TokenRead(**asked, outcome="ok", content=content, effort=tally.effort())


class _SyncRun:
    def __init__(
        self,
        mirror: Mirror,
        client: Client,
        health: Health,
        empty: EmptyAnswers,
        run: runs.Run,
        concurrency: int,
        progress: bool | None,
    ) -> None:
        self._mirror = mirror
        self._client = client
        self._health = health
        self._empty = empty
        self._run = run
        self._concurrency = concurrency
        self._progress = progress
        self._stopped = client.pace.stopped
        self._failures: dict[str, Failure] = {}
        self._overtaken: dict[str, int] = {}
        self._batch = 1_000
        self._earlier_seconds = run.counts.seconds
        self._began = time.monotonic()

    def run(self, interrupted: threading.Event) -> SyncResult:
        connection = self._mirror.connection
        self._read_all(
            "wallets",
            len(self._run.plan),
            unread_wallets(connection, self._run),
            lambda task: read_wallet(self._client, self._mirror, task),
        )
        if self._run.with_tokens and not self._stopped.is_set():
            count, tasks = unread_tokens(connection, self._run)
            self._read_all(
                "tokens", count, tasks, lambda task: read_token(self._client, self._mirror, task)
            )
        if not self._stopped.is_set():
            self._mirror.index_tokens()
        return self._finish(interrupted=interrupted.is_set())

    def _finish(self, *, interrupted: bool) -> SyncResult:
        error = self._health.verdict or self._empty.verdict
        counts = self._run.counts
        status: runs.RunStatus = "ok"
        if error is not None or (counts.wallets_failed and not counts.wallets_ok):
            status = "failed"
        elif interrupted:
            status = "interrupted"
        elif self._failures:
            status = "partial"
        counts.seconds = self._seconds()
        with self._mirror.transaction() as transaction:
            runs.finish_run(transaction.connection, self._run, status, error)
        return SyncResult.of(self._run, status, list(self._failures.values()), error)

    def _seconds(self) -> float:
        return round(self._earlier_seconds + time.monotonic() - self._began, 3)

    def _read_all(
        self,
        label: str,
        total: int,
        tasks: Iterator[Any],
        read: Callable[[Any], WalletRead | TokenRead],
    ) -> None:
        """Feed the fetching threads and write what they bring, until nothing is left."""
        done = self._run.counts.wallets_ok if label == "wallets" else 0
        bar = progress_bar(label, total, unit=label, done=done, shown=self._progress)
        with bar, Fetchers(read, self._concurrency) as fetchers:
            more = True
            while not self._stopped.is_set() and (more or not fetchers.idle):
                if more and (room := fetchers.room):
                    step = list(islice(tasks, room))
                    more = len(step) == room
                    fetchers.submit(step)
                bar.update(self._take(fetchers))
                if not more and fetchers.idle and not self._stopped.is_set():
                    fetchers.submit(self._tasks_again(self._write(self._empty.release())))
            fetchers.close()
            fetchers.join(_LAST_READS)
            while not fetchers.idle and self._take(fetchers):
                pass

    def _take(self, fetchers: Fetchers[Any]) -> int:
        """Write what has been read; return how many objects are done with."""
        reads = fetchers.take(self._batch, patience=_PATIENCE)
        applied = self._write(self._empty.sift(reads, self._mirror.connection))
        again = self._tasks_again(applied)
        fetchers.submit(again)
        if self._health.verdict or self._empty.verdict:
            self._stopped.set()
        return len(reads) - len(again)

    def _write(self, reads: Sequence[WalletRead | TokenRead]) -> list[Applied]:
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

    def _tasks_again(self, applied: Sequence[Applied]) -> list[Any]:
        """Tasks for the reads that were overtaken: unconditional, as what they knew is gone."""
        if self._stopped.is_set():
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

    def _adapt(self, reads: Sequence[WalletRead | TokenRead], took: float) -> None:
        """Size the next batch so that its transaction lasts about as long as it should."""
        entries = sum(len(x.entries) if isinstance(x, WalletRead) else 1 for x in reads)
        if entries > self._batch // 2:
            factor = min(2.0, max(0.5, _TARGET_SECONDS / max(took, 0.001)))
            self._batch = int(min(_MOST_ENTRIES, max(_FEWEST_ENTRIES, self._batch * factor)))


def _object_id(read: WalletRead | TokenRead) -> str:
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
