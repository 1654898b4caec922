"""Ledger of a lake: its runs, their drivers, and the manifests that they pinned.

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
from nftsync.lake.ledger_table import LakeRun, LedgerTable
from nftsync.lake.reasons import STORE_ERRORS
from nftsync.lake.storage import Lake, StoredFile
from nftsync.text import counted
from nftsync.threads import start_thread
from nftsync.times import now

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
#: A compaction leaves no row, so an interrupted run before it can still be resumed.
_COMPACT = "compact"
#: An import cannot be resumed.
_IMPORT = "import"

#: Heartbeats within the takeover timeout: one alone could be late by chance.
_BEATS = 4


def default_buckets(wallets: int) -> int:
    """Return the number of buckets of a new lake, with room to grow."""
    return min(64, max(4, wallets // 1_000))


class Ledger:
    """Runs of one lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._table = LedgerTable(lake)
        # A heartbeat must not move the table on between another thread's read and write.
        self._lock = threading.Lock()
        self._driver = uuid4().hex

    def runs(self) -> list[LakeRun]:
        with self._lock:
            return self._table.read()

    def _newest_runs(self) -> list[LakeRun]:
        with self._lock:
            return self._table.open()[1]

    @property
    def problem(self) -> str | None:
        """Damage that the last read skipped, or None."""
        return self._table.problem

    def warn(self) -> None:
        if self.problem is not None:
            _log.warning(
                "%s: %s. Showing the entry before it. Repair it: `nftsync lake sync`",
                self._lake.url,
                self.problem,
            )

    def finished(self, run_id: int | None = None, runs: list[LakeRun] | None = None) -> LakeRun:
        """Return a finished run, by default the last; `runs` saves a read."""
        runs = self.runs() if runs is None else runs
        self.warn()
        pinned = [run for run in runs if run.manifest is not None]
        for run in reversed(pinned):
            if run_id in {None, run.run_id}:
                return run
        problem = f"{self._lake.url} has no finished run" + (f" {run_id}" if run_id else "")
        if any(run.run_id == run_id and run.expired for run in runs):
            problem = f"`nftsync lake compact` has expired run {run_id} of {self._lake.url}"
        numbers = ", ".join(str(run.run_id) for run in pinned[-10:])
        remedy = f"Available runs: {numbers}" if numbers else "Start one: `nftsync lake sync`"
        raise InputError(f"{problem}. {remedy}")

    def _change(self, change: Callable[[list[LakeRun]], _T]) -> _T:
        with self._lock:
            table, runs = self._table.open()
            while True:
                result = change(runs)
                with suppress(CommitFailedError):  # another driver changed them first
                    self._table.write(table, runs)
                    return result
                changed = runs
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
        history: Sequence[LakeRun] = (),
    ) -> LakeRun:
        """Start or resume a run.

        `plan` is the digest of the request. The `attempt` of a resumed run is above 0. `history`
        has the runs of an imported database.
        """
        dead = self._find_dead_driver(timeout, interrupted)

        def change(runs: list[LakeRun]) -> LakeRun:
            if kind == _IMPORT:
                runs[:] = [row for row in runs if row.driver is not None]
                if any(row.kind != _IMPORT or row.manifest is not None for row in runs):
                    raise InputError(f"{self._lake.url} already has runs; import into a new lake")
            if any(row.status == "running" and (row.driver, row.beat) != dead for row in runs):
                raise SyncRunning(
                    f"another driver has just started work on {self._lake.url}; wait for it to end"
                )
            runs[:] = history if kind == _IMPORT else [x for x in runs if x.kind != _COMPACT]
            last = runs[-1] if runs else None
            if last is not None and buckets not in {None, last.buckets}:
                raise InputError(
                    f"{self._lake.url} was created with {last.buckets} buckets, which cannot"
                    " change; omit --buckets"
                )
            if resume and last is not None and self._can_resume(last, plan, provider):
                last.status, last.driver, last.finished_at = "running", self._driver, None
                last.beat, last.attempt = last.beat + 1, last.attempt + 1
                return last
            if kind == "sync" and (last, buckets, wallets) == (None, None, None):
                # A failed run would fix the number of buckets.
                raise InputError("no wallets to read; name them with --wallets-file")
            if last is not None and last.status == "running":
                last.status = "interrupted"
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
            runs.append(run)
            return run

        run = self._change(change)
        if buckets is None and wallets is not None and (run.run_id, run.attempt) == (1, 0):
            _log.warning(
                "New lake with %s; --buckets sets another number. To change it later, export the"
                " lake, and import it again.",
                counted(run.buckets, "bucket"),
            )
        return run

    def begin_import(self, history: Sequence[LakeRun], buckets: int, timeout: float) -> LakeRun:
        return self.begin(_IMPORT, buckets, timeout, _IMPORT, history=history)

    def begin_compacting(self, timeout: float) -> LakeRun:
        """Start a compaction, which keeps other drivers out."""
        return self.begin(_COMPACT, None, timeout, _COMPACT)

    def repin(self, run: LakeRun, last: int, manifest: StoredFile, keep: Collection[int]) -> None:
        """Pin another manifest of the same rows for the last finished run; expire old runs.

        Runs in `keep` keep their manifests.
        """

        def change(runs: list[LakeRun]) -> None:
            self._own_run(runs, run.run_id)
            for row in runs:
                if row.run_id == last:
                    row.manifest = manifest
                elif row.run_id not in keep:
                    row.manifest = None

        self._change(change)

    def end_compacting(self, run: LakeRun) -> None:
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
                f" {last.provider or 'an unknown provider'}, not {provider}; resume it with"
                f" that --base-url, or start a new run without --resume"
            )
        if last.plan != plan:
            _log.warning(
                "Cannot resume run %d: its wallets or --allow-removals differ. Starting a new run.",
                last.run_id,
            )
        return last.plan == plan

    def _find_dead_driver(
        self, timeout: float, interrupted: threading.Event | None = None
    ) -> tuple[str | None, int] | None:
        """Watch the active run, if any, for the takeover timeout.

        Returns its driver and last heartbeat if there was no new one; None without an active run.
        """
        beats, until = set(), time.monotonic() + timeout
        while True:
            runs = self._newest_runs()
            last = runs[-1] if runs else None
            if last is None or last.status != "running":
                return None
            beat = last.driver, last.beat
            beats.add(beat)
            if len(beats) > 1:
                raise SyncRunning(
                    f"another driver is at work on {self._lake.url} (run {last.run_id}); wait for"
                    " it to end"
                )
            if time.monotonic() >= until:
                return beat
            if (interrupted or threading.Event()).wait(min(1.0, timeout / 10)):
                raise KeyboardInterrupt

    def save(self, run: LakeRun) -> None:
        def change(runs: list[LakeRun]) -> None:
            row = self._own_run(runs, run.run_id)
            run.beat = row.beat
            runs[runs.index(row)] = run

        self._change(change)

    def check(self, run: LakeRun) -> None:
        """Raise `SyncRunning` if another driver has taken over a run."""
        self._own_run(self._newest_runs(), run.run_id)

    def _own_run(self, runs: list[LakeRun], run_id: int) -> LakeRun:
        for run in runs:
            if (run.run_id, run.driver, run.status) == (run_id, self._driver, "running"):
                run.beat += 1
                return run
        raise SyncRunning(
            f"another driver has taken over run {run_id} of {self._lake.url}; wait for it to end"
        )

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
