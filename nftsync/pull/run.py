"""A sync run: its plan, and the loop that applies reads while a reader makes them.

It reads the wallets that it was asked for, or the rest of those of a run that was cut off.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from nftsync.errors import CutOff, InputError, SettingsError
from nftsync.provider.config import ClientConfig
from nftsync.provider.limits import GiveUpRule
from nftsync.pull.process import Process
from nftsync.pull.reads import (
    Pool,
    Read,
    Reader,
    Subject,
    Task,
    TokenTask,
    WalletTask,
    afresh,
    subject_of,
    weight,
)
from nftsync.pull.removal_guard import RemovalGuard, RemovalLimits
from nftsync.pull.result import Failure, SyncResult
from nftsync.records import Applied, WalletRead
from nftsync.store import runs
from nftsync.store.contracts import names_that_differ, store_file_names
from nftsync.store.database import explained, over_keys, sync_lock
from nftsync.store.history import approve_all
from nftsync.store.mirror import BatchSize, Mirror, Transaction
from nftsync.store.removals import HELD_BACK
from nftsync.store.wallets import (
    WalletLine,
    has_all_tracked,
    numbers_of,
    register,
    tracked_numbers,
    wallets_to_read,
)
from nftsync.terminal import interruptible, progress_bar
from nftsync.times import format_time, now

if TYPE_CHECKING:
    from nftsync.provider.access import Access

_Row = TypeVar("_Row")

#: So many wallets are worth the fifth of a second that a reading process takes to start.
WORTH_A_PROCESS = 500
#: Reads wait at most this long to be written together, in seconds.
_TIMEOUT = 0.2
#: So long a wait for reads, in seconds, leaves time to take some new tokens into the full-text
#: index, together with what is written next.
_IDLE = 0.02
_INDEX_BESIDE = 4_000
#: How often a read is made again because a later one made it stale.
_MOST_STALE = 3
#: Tokens that are looked up at once.
_STEP = 2_000
#: Wallets or names that one transaction registers; about 15 ms. More would keep the inbox waiting.
_REGISTERED_AT_ONCE = 2_000


class SyncRequest(NamedTuple):
    """What a sync is asked to do.

    Attributes:
        wallets: the wallets to read; None for all tracked ones.
        tokens: also read each token they hold by its id.
        older_than: skip wallets read since.
        resume: go on with the newest interrupted run, where there is one.
        allow_removals: take the provider's word, however much vanishes at once.
        limits: how much may vanish otherwise.
        collections: what contracts are called, by address; None leaves them as they are.
    """

    wallets: Sequence[WalletLine] | None = None
    tokens: bool = False
    older_than: timedelta | None = None
    resume: bool = False
    allow_removals: bool = False
    limits: RemovalLimits = RemovalLimits()
    collections: Mapping[str, str] | None = None


def begin(mirror: Mirror, request: SyncRequest) -> runs.Run:
    """Enter a run into the ledger, or go on with one that was cut off.

    The caller holds the sync lock.

    Raises:
        InputError: there is nothing to read.
    """
    if request.collections is not None:
        name_collections(mirror, request.collections)
    with mirror.transaction() as transaction:
        connection = transaction.connection
        cut_off = runs.find_cut_off_run(connection)
        if request.resume and cut_off is not None:
            run, followed = cut_off
            unread = sum(1 for _ in unread_wallets(connection, run))
            # A run whose objects a later one has read is over, whatever its row says.
            if not followed or unread or (run.with_tokens and unread_tokens(connection, run)[0]):
                counts, read = run.counts, len(run.plan) - unread
                counts.wallets_ok = read
                counts.wallets_unchanged = min(counts.wallets_unchanged, read)
                runs.reopen(connection, run)
                return run
    started_at = now()
    plan = _plan(mirror, request)
    reads_all = has_all_tracked(mirror.connection, plan)
    with mirror.transaction() as transaction:
        return runs.start_run(
            transaction.connection,
            "sync",
            mirror.numbers.take(),
            started_at,
            plan=plan,
            with_tokens=request.tokens,
            reads_all=reads_all,
        )


def _plan(mirror: Mirror, request: SyncRequest) -> array[int]:
    read_before = None
    if request.older_than is not None:
        read_before = format_time(datetime.now(UTC) - request.older_than)
    if request.wallets is not None:
        register_all(mirror, request.wallets)
        ids = (line.wallet_id for line in request.wallets)
        return numbers_of(mirror.connection, ids, read_before=read_before)
    plan = tracked_numbers(mirror.connection, read_before=read_before)
    if not plan and (read_before is None or not tracked_numbers(mirror.connection)):
        raise InputError(
            "no wallets to read: name some, give --wallets-file, or add them with "
            "`nftsync wallets add`"
        )
    return plan


def register_all(mirror: Mirror, wallets: Sequence[WalletLine]) -> None:
    """Make any number of wallets known and tracked, in short transactions."""
    _in_steps(mirror, wallets, lambda connection, step: register(connection, step, now()))


def name_collections(mirror: Mirror, names: Mapping[str, str]) -> None:
    """Call contracts what the file calls them, in short transactions; the others lose its names."""
    _in_steps(mirror, names_that_differ(mirror.connection, names), store_file_names)


def _in_steps(
    mirror: Mirror,
    rows: Sequence[_Row],
    store: Callable[[sqlite3.Connection, Sequence[_Row]], object],
) -> None:
    for start in range(0, len(rows), _REGISTERED_AT_ONCE):
        with mirror.transaction() as transaction:
            store(transaction.connection, rows[start : start + _REGISTERED_AT_ONCE])


def unread_wallets(connection: sqlite3.Connection, run: runs.Run) -> Iterator[WalletTask]:
    """The wallets of a run that have not been read well since it began."""
    for wallet in wallets_to_read(connection, run.plan):
        if wallet.sequence < run.first_sequence or wallet.status != "ok":
            yield WalletTask(wallet.wallet_id, wallet.etag, wallet.digest)


def unread_tokens(connection: sqlite3.Connection, run: runs.Run) -> tuple[int, Iterator[TokenTask]]:
    """The tokens that a run's wallets hold and that have not been read by id since it began.

    Returns:
        How many, and each as a task.
    """
    rows = over_keys(
        connection,
        "SELECT DISTINCT b.token_no FROM json_each(?1) k"
        " JOIN balance_rows b ON b.wallet_no = k.value LEFT JOIN token_sources s USING (token_no)"
        " WHERE coalesce(s.detail_ticket, 0) < ?2 ORDER BY b.token_no",
        run.plan,
        run.first_sequence,
    )
    numbers = array("q", (row[0] for row in rows))
    query = "SELECT t.token_id FROM json_each(?) k JOIN tokens t ON t.token_no = k.value"
    steps = (numbers[start : start + _STEP] for start in range(0, len(numbers), _STEP))
    found = (over_keys(connection, query, step).fetchall() for step in steps)
    return len(numbers), (TokenTask(row[0]) for rows in found for row in rows)


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
    """Read wallets into the mirror.

    Args:
        database: created or migrated where needed.
        config: how to read the provider.
        request: what to read.
        concurrency: requests at once.
        progress: show bars; None shows them on a terminal and in a notebook.
        access: rate limit and credentials that are shared with others in this process, which then
            reads by threads of its own, whatever the number of wallets.
        stopped: set it from any thread, and the run ends as after Ctrl-C: what was fetched is
            saved, its status is `interrupted`.

    Raises:
        InputError: there is nothing to read.
        SettingsError: the provider cannot be read with these settings.
        SyncRunning: another sync holds the database.
        StoreError: the database cannot be written, or was moved; what was committed stays.
    """
    with explained(database), sync_lock(database), ExitStack() as held:
        mirror = held.enter_context(Mirror(database))
        signalled = held.enter_context(interruptible())  # a run that is entered is also closed
        run = begin(mirror, request)
        reader: Reader[Task, Read]
        if access is None and len(run.plan) >= WORTH_A_PROCESS:
            reader = Process(config, mirror.numbers, concurrency)
        else:
            reader = Pool(config, mirror.numbers, concurrency, access, rule=GiveUpRule())
        held.enter_context(closing(reader))
        limits = None if request.allow_removals else request.limits
        guard = held.enter_context(closing(RemovalGuard(limits)))
        interruptions = [signalled] if stopped is None else [signalled, stopped]
        result = SyncRun(mirror, reader, run, guard, interruptions, progress).run()
        mirror.files.check()  # or what was fetched is where nobody finds it
        return result


@dataclass
class SyncRun:
    """Feeds a reader with a run's tasks, writes what it brings, and keeps the run's ledger.

    `_unfinished` decides whether the run is complete: the submitted tasks without an outcome, and
    how often a read of each was stale.
    """

    _mirror: Mirror
    _reader: Reader[Task, Read]
    _run: runs.Run
    _guard: RemovalGuard
    _interruptions: Sequence[threading.Event]
    _progress: bool | None
    _error: str | None = None
    _unfinished: dict[Subject, int] = field(default_factory=dict)
    _well: int = 0
    _given_up: list[Task] = field(default_factory=list)
    _failures: dict[Subject, Failure] = field(default_factory=dict)
    _batch: BatchSize = field(default_factory=BatchSize)

    def __post_init__(self) -> None:
        self._began = time.monotonic() - self._run.counts.seconds

    @property
    def _interrupted(self) -> bool:
        return any(event.is_set() for event in self._interruptions)

    @property
    def _over(self) -> bool:
        """No more is to be read, though not all has been."""
        return self._error is not None or self._interrupted

    def run(self) -> SyncResult:
        """Read all there is to read, and end the run.

        Raises:
            SettingsError: no token is to be had.
            StoreError: the database cannot be written; what was committed stays.
        """
        cut_off = False
        try:
            self._read()
        except SettingsError as error:  # no token is to be had, so no more can be read
            if not self._interrupted:
                self._error = str(error)
                self._finish()
                raise
        except CutOff as error:
            self._error, cut_off = str(error), True
        interrupted = self._interrupted
        if self._over:
            self._reader.stop()
            while not self._reader.idle:
                self._take()
        return self._finish(interrupted=interrupted, cut_off=cut_off)

    def _read(self) -> None:
        connection = self._mirror.connection
        self._read_all("wallets", len(self._run.plan), unread_wallets(connection, self._run))
        if self._run.with_tokens and not self._over:
            self._read_all("tokens", *unread_tokens(connection, self._run))
        if not self._over:
            self._mirror.index_tokens()

    def _read_all(self, what: str, planned: int, tasks: Iterator[Task]) -> None:
        """Read all of one kind; what was given up on is tried once more at the end.

        Raises:
            CutOff: the reader is done, and not all that was planned has been written.
        """
        done = self._run.counts.wallets_ok if what == "wallets" else 0
        self._well, self._given_up = 0, []
        with progress_bar(what, planned, unit=what, done=done, shown=self._progress) as bar:
            if what == "wallets":
                tasks = self._less_read_meanwhile(tasks, planned - done, bar.update)
            self._feed(tasks, bar.update)
            # A provider that is down as a whole needs no second helping.
            if len(self._given_up) <= self._well:
                self._feed(iter(self._given_up), lambda _: None)
            while not self._over and self._release():
                self._feed(iter(()), lambda _: None)
        if self._unfinished and not self._over:
            raise CutOff(f"{len(self._unfinished):,} {what} were not read; run again with --resume")

    def _less_read_meanwhile(
        self, tasks: Iterator[Task], planned: int, tell: Callable[[int], object]
    ) -> Iterator[Task]:
        """Pass wallets on; those that others have read since the run began count as read."""
        for task in tasks:
            planned -= 1
            yield task
        self._run.counts.add_unchanged(planned)
        tell(planned)

    def _feed(self, tasks: Iterator[Task], tell: Callable[[int], object]) -> None:
        """Feed the reader and write what it brings, until nothing is left; `tell` how many."""
        reader = self._reader
        more = True
        while not self._over and (more or not reader.idle):
            if more and (room := reader.room):
                step = list(islice(tasks, room))
                more = len(step) == room
                self._submit(step)
            tell(self._take())

    def _submit(self, tasks: Sequence[Task]) -> None:
        self._reader.submit(tasks)
        for task in tasks:
            self._unfinished.setdefault(subject_of(task), 0)

    def _take(self) -> int:
        """Write what has been read; return how many objects are done with."""
        began = time.monotonic()
        reads = self._reader.take(self._batch.entries, timeout=_TIMEOUT)
        most = _INDEX_BESIDE if time.monotonic() - began > _IDLE else 0
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
        """Apply reads, and submit those that are stale once more; return how many those are.

        Args:
            apply: how.
            index: how many new tokens go into the full-text index with them, at most.
        """
        with self._mirror.transaction() as transaction:
            applied = [self._give_up(x) if x.result == "stale" else x for x in apply(transaction)]
            if index:
                transaction.index_tokens(index)
            counts = self._run.counts.with_applied(applied)
            self._recount(counts, applied)
            counts.seconds = self._seconds()
            runs.save_counts(transaction.connection, self._run.run_id, counts)
        self._run.counts = counts
        self._batch.learn(sum(weight(x.read) for x in applied), self._mirror.lock_seconds)
        for each in applied:
            self._note(each)
        # Unconditional, as what they knew is gone.
        stale = [x.read for x in applied if x.result == "stale" and not self._over]
        self._submit([afresh(read) for read in stale])
        return len(stale)

    def _give_up(self, applied: Applied) -> Applied:
        """Let a read that is stale too often fail; otherwise it is made again."""
        subject = subject_of(applied.read)
        self._unfinished[subject] += 1
        if self._unfinished[subject] <= _MOST_STALE:
            return applied
        return applied._replace(result="failed")

    def _recount(self, counts: runs.Counts, all_applied: Sequence[Applied]) -> None:
        """Count what was tried once more as what it came to now, and its request as a repeat."""
        for applied in all_applied:
            if (
                applied.result not in {"stale", "staged"}
                and subject_of(applied.read) in self._failures
            ):
                counts.retries += min(1, applied.read.effort.requests)
                counts.wallets_failed -= isinstance(applied.read, WalletRead)

    def _note(self, applied: Applied) -> None:
        """Keep what failed, and what may go well when it is tried once more."""
        read = applied.read
        if applied.result in {"stale", "staged"}:
            return
        self._unfinished.pop(subject_of(read), None)
        before = self._failures.pop(subject_of(read), None)
        if applied.result in {"failed", "incomplete", "held"}:
            self._note_failure(read, HELD_BACK if applied.result == "held" else None)
            if before is None and read.passing and read.provider_down:
                self._given_up.append(afresh(read))
        else:
            self._well += 1

    def _note_failure(self, read: Read, error: str | None) -> None:
        error = error or read.error or "other reads of it kept overtaking this one"
        if isinstance(read, WalletRead):
            failure = Failure(read.wallet_id, error)
        else:
            holder = self._mirror.connection.execute(
                "SELECT w.wallet_id FROM tokens t JOIN balance_rows b USING (token_no)"
                " JOIN wallets w USING (wallet_no) WHERE t.token_id = ? LIMIT 1",
                (read.token_id,),
            ).fetchone()
            failure = Failure(holder[0] if holder else "", error, read.token_id)
        self._failures[subject_of(read)] = failure

    def _seconds(self) -> float:
        return round(time.monotonic() - self._began, 3)

    def _finish(self, *, interrupted: bool = False, cut_off: bool = False) -> SyncResult:
        run, counts = self._run, self._run.counts
        counts.seconds = self._seconds()
        failures = list(self._failures.values())
        result = SyncResult.of(run.run_id, counts, failures, self._error, interrupted=interrupted)
        with self._mirror.transaction() as transaction:
            if self._guard.limits is None:
                approve_all(transaction.connection)
            resumable = cut_off or result.status == "interrupted"
            runs.finish_run(
                transaction.connection, run, result.status, self._error, resumable=resumable
            )
        return result
