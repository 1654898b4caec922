"""Ledger of a lake: its runs, their drivers, and the versions that they pinned.

Of two simultaneous changes, Delta refuses one, which its driver repeats. Another driver takes over
if it sees a run's heartbeats unchanged for the takeover timeout, so machines never compare clocks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar
from uuid import uuid4

from deltalake.exceptions import CommitFailedError

from nftsync.errors import InputError, StoreError, SyncRunning
from nftsync.lake.ledger_table import GREATEST, LakeRun, LedgerTable
from nftsync.lake.reasons import STORE_ERRORS
from nftsync.lake.rows import default_buckets
from nftsync.lake.storage import Lake, Versions, WriteConflict
from nftsync.text import counted
from nftsync.threads import start_thread
from nftsync.times import now

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
#: A compaction leaves no row, so an interrupted run before it can still be resumed.
_COMPACT = "compact"
#: An import cannot be resumed.
_IMPORT = "import"

#: Attempts at a commit in case of write conflicts.
_MOST_ATTEMPTS = 5
#: Heartbeats within the takeover timeout: one alone could be late by chance.
_BEATS = 4


def _newest(runs: list[LakeRun]) -> LakeRun | None:
    return max(runs, key=lambda run: run.run_id, default=None)


def _start(run: LakeRun, runs: list[LakeRun]) -> None:
    if (last := _newest(runs)) is not None and last.status == "running":
        last.status = "interrupted"
    if (before := _newest([run for run in runs if run.versions is not None])) is not None:
        run.start, run.not_before = before.versions or {}, before.applied_at or ""
        for name in ("approved_at", *GREATEST):
            setattr(run, name, getattr(before, name))
    runs.append(run)


class Ledger:
    """Runs of one lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._table = LedgerTable(lake)
        self._driver = uuid4().hex

    def runs(self) -> list[LakeRun]:
        """Return all runs, oldest first."""
        return self._table.read()

    @property
    def problem(self) -> str | None:
        """Damage that the last read skipped, or None."""
        return self._table.problem

    def warn(self) -> None:
        """Log the damage that the last read skipped."""
        if self.problem is not None:
            _log.warning(
                "%s: %s. Showing the entry before it. Repair it: `nftsync lake sync`",
                self._lake.url,
                self.problem,
            )

    def finished(self, run_id: int | None = None) -> LakeRun:
        """Return a finished run, by default the last."""
        runs = self.runs()
        self.warn()
        pinned = [run for run in runs if run.versions is not None]
        matches = [run for run in pinned if run_id in {None, run.run_id}]
        if not matches:
            missing = "finished run" if run_id is None else f"finished run {run_id}"
            numbers = ", ".join(str(run.run_id) for run in pinned[-10:])
            if any(run.run_id == run_id and run.expired for run in runs):
                raise InputError(
                    f"`nftsync lake compact` has expired run {run_id} of {self._lake.url}."
                    f" Available runs: {numbers}"
                )
            raise InputError(
                f"{self._lake.url} has no {missing}. "
                + (f"Available runs: {numbers}" if numbers else "Start one: `nftsync lake sync`")
            )
        return matches[-1]

    def _change(self, change: Callable[[list[LakeRun]], _T]) -> _T:
        table, runs = self._table.open()
        while True:
            result = change(runs)
            with suppress(CommitFailedError):  # another driver changed them first
                self._table.write(table, runs)
                return result
            changed = sorted(runs, key=lambda run: run.run_id)
            table, runs = self._table.open()
            if runs == changed:  # the store made the commit, but did not confirm it
                return result

    def begin(
        self,
        plan: str,
        buckets: int | None,
        timeout: float,
        kind: str = "sync",
        *,
        wallets: int | None = None,
        provider: str = "",
        resume: bool = False,
        interrupted: threading.Event | None = None,
    ) -> LakeRun:
        """Start or resume a run.

        `plan` is the digest of the request. The `attempt` of a resumed run is above 0.
        """
        dead = self._find_dead_driver(timeout, interrupted)

        def change(runs: list[LakeRun]) -> LakeRun:
            last = _newest(runs)
            self._refuse_running(runs, dead)
            runs[:] = [run for run in runs if run.kind != _COMPACT]
            last = _newest(runs)
            if last is not None and buckets not in {None, last.buckets}:
                raise InputError(
                    f"{self._lake.url} always has {last.buckets} buckets; omit --buckets"
                )
            if resume and last is not None and self._can_resume(last, plan, provider):
                last.status, last.driver, last.finished_at = "running", self._driver, None
                last.beat, last.attempt = last.beat + 1, last.attempt + 1
                return last
            if kind == "sync" and (last, buckets, wallets) == (None, None, None):
                # A failed run would fix the number of buckets.
                raise InputError("no wallets to read: set --wallets-file")
            run = LakeRun(
                run_id=1 if last is None else last.run_id + 1,
                kind=kind,
                started_at=now(),
                driver=self._driver,
                folder=f"run-{uuid4().hex}",
                buckets=last.buckets if last else buckets or default_buckets(wallets or 0),
                plan=plan,
                provider=provider,
            )
            _start(run, runs)
            return run

        run = self._change(change)
        if buckets is None and wallets is not None and (run.run_id, run.attempt) == (1, 0):
            _log.warning(
                "New lake with %s. You can't change this later; --buckets sets another number.",
                counted(run.buckets, "bucket"),
            )
        return run

    def begin_import(self, history: Sequence[LakeRun], buckets: int, timeout: float) -> LakeRun:
        """Start the import of a database with the runs `history`."""
        dead = self._find_dead_driver(timeout)
        run = LakeRun(
            run_id=max((run.run_id for run in history), default=0) + 1,
            kind=_IMPORT,
            plan=_IMPORT,
            started_at=now(),
            driver=self._driver,
            buckets=buckets,
        )

        def change(runs: list[LakeRun]) -> None:
            own = [row for row in runs if row.driver is not None]
            if any(row.kind != _IMPORT or row.versions is not None for row in own):
                raise InputError(f"{self._lake.url} already has runs; import into a new lake")
            self._refuse_running(own, dead)
            runs[:] = [*history, run]

        self._change(change)
        return run

    def begin_compacting(self, timeout: float) -> LakeRun:
        """Start a compaction, which keeps other drivers out."""
        return self.begin(_COMPACT, None, timeout, _COMPACT)

    def repin(self, run: LakeRun, last: int, versions: Versions, keep: Collection[int]) -> None:
        """Pin other versions with the same rows for the last finished run; expire old runs.

        Later runs then start from `versions`, and runs in `keep` keep their versions.
        """

        def change(runs: list[LakeRun]) -> None:
            self._own_run(runs, run.run_id)
            for row in runs:
                if row.run_id > last:
                    row.start = versions
                elif row.run_id == last:
                    row.versions = versions
                elif row.run_id not in keep:
                    row.versions = None

        self._change(change)

    def end_compacting(self, run: LakeRun) -> None:
        """End a compaction."""

        def change(runs: list[LakeRun]) -> None:
            runs.remove(self._own_run(runs, run.run_id))

        with suppress(SyncRunning):
            self._change(change)
        run.status = "ok"

    def _can_resume(self, last: LakeRun, plan: str, provider: str) -> bool:
        if last.kind != "sync" or last.status not in {"running", "interrupted"}:
            return False
        if last.provider != provider:
            raise InputError(
                f"run {last.run_id} of {self._lake.url} read"
                f" {last.provider or 'an unknown provider'}, not {provider}: resume it with"
                f" that --base-url, or start a new run without --resume"
            )
        if last.plan != plan:
            _log.warning(
                "Run %d has other wallets or another --allow-removals: starting a new run.",
                last.run_id,
            )
        elif not last.folder:
            _log.warning(
                "Run %d was started by an earlier version: starting a new run.", last.run_id
            )
        return last.plan == plan and bool(last.folder)

    def _find_dead_driver(
        self, timeout: float, interrupted: threading.Event | None = None
    ) -> tuple[str | None, int] | None:
        """Watch the active run, if any, for the takeover timeout.

        Returns its driver and last heartbeat if there was no new one; None without an active run.
        """
        last_beat: tuple[str | None, int] | None = None
        until = time.monotonic() + timeout
        while True:
            _, runs = self._table.open()
            last = _newest(runs)
            if last is None or last.status != "running":
                return None
            beat = last.driver, last.beat
            if last_beat is not None and beat != last_beat:
                raise SyncRunning(
                    f"another driver is at work on {self._lake.url} (run {last.run_id}); wait for"
                    " it to end"
                )
            last_beat = beat
            if time.monotonic() >= until:
                return beat
            if (interrupted or threading.Event()).wait(min(1.0, timeout / 10)):
                raise KeyboardInterrupt

    def _refuse_running(self, runs: list[LakeRun], dead: tuple[str | None, int] | None) -> None:
        if any(run.status == "running" and (run.driver, run.beat) != dead for run in runs):
            raise SyncRunning(
                f"another driver has just started work on {self._lake.url}; wait for it to end"
            )

    def save(self, run: LakeRun) -> None:
        """Store a run of this driver."""

        def change(runs: list[LakeRun]) -> None:
            row = self._own_run(runs, run.run_id)
            run.beat = row.beat
            runs[runs.index(row)] = run

        self._change(change)

    def check(self, run: LakeRun) -> None:
        """Raise `SyncRunning` if another driver has taken over a run."""
        self._own_run(self._table.open()[1], run.run_id)

    def committed(self, run: LakeRun, table: str, commit: Callable[[], _T]) -> _T:
        """Commit to a table, also if late drivers keep changing it; return the result."""
        for _ in range(_MOST_ATTEMPTS):
            self.check(run)
            with suppress(WriteConflict):
                return commit()
        raise WriteConflict(f"other writers keep changing {table}. Run the command again")

    def _own_run(self, runs: list[LakeRun], run_id: int) -> LakeRun:
        for run in runs:
            if (run.run_id, run.driver, run.status) == (run_id, self._driver, "running"):
                run.beat += 1
                return run
        raise SyncRunning(f"another driver has taken over run {run_id} of {self._lake.url}")

    @contextmanager
    def heartbeat(
        self, run: LakeRun, timeout: float, on_failure: Callable[[Exception], None] | None = None
    ) -> Iterator[threading.Event]:
        """Send heartbeats for a run during a block.

        Yields an event that is set once another driver has taken over. A run that the block leaves
        unfinished is marked as interrupted.
        """
        over, lost = threading.Event(), threading.Event()

        def renew() -> None:
            while not over.wait(timeout / _BEATS):
                try:
                    self._change(lambda runs: self._own_run(runs, run.run_id))
                except SyncRunning:
                    lost.set()
                    return
                except (StoreError, *STORE_ERRORS):
                    continue  # the store may answer again before the takeover timeout

        thread = start_thread("renew", renew, on_failure)
        try:
            yield lost
        finally:
            over.set()
            thread.join()
            if run.status == "running":
                run.status, run.finished_at = "interrupted", now()
                with suppress(SyncRunning, *STORE_ERRORS):
                    self.save(run)
