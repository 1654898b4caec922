"""The ledger of a lake: its runs, the active run and its driver, and the versions each pinned.

It is one small Delta table that every change writes anew, so of two changes at once one is refused
and made again of what the other left. A driver renews its run while it lives; who finds a run that
is not renewed takes it over. No clock is compared with another machine's: who waits looks whether
the row changes meanwhile.
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
from nftsync.lake.storage import Lake, Versions
from nftsync.threads import start_thread
from nftsync.times import now

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
#: What holds a lake without being a run: it leaves no row behind, and an interrupted run
#: before it can still be resumed.
_COMPACT = "compact"
#: What fills a lake; no run resumes it.
_IMPORT = "import"

#: How often a run is renewed while it may be silent: once would be by chance.
_RENEWED = 4


def _newest(runs: list[LakeRun]) -> LakeRun | None:
    return max(runs, key=lambda run: run.run_id, default=None)


def _start(run: LakeRun, runs: list[LakeRun]) -> None:
    """Add a run, which begins at what the last finished one has pinned."""
    if (last := _newest(runs)) is not None and last.status == "running":
        last.status = "interrupted"
    if (before := _newest([each for each in runs if each.versions is not None])) is not None:
        run.start, run.not_before = before.versions or {}, before.applied_at or ""
        for name in ("approved_at", *GREATEST):
            setattr(run, name, getattr(before, name))
    runs.append(run)


class Ledger:
    """The runs of one lake, as one driver or reader sees them."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._table = LedgerTable(lake)
        self._driver = uuid4().hex

    def runs(self) -> list[LakeRun]:
        """All runs, the oldest first."""
        return self._table.read()

    @property
    def problem(self) -> str | None:
        """A damage that was passed over when the runs were read, or None."""
        return self._table.problem

    def warn(self) -> None:
        """Log such a damage."""
        if self.problem is not None:
            _log.warning(
                "%s: %s; the entry before it is shown. `nftsync lake sync` repairs it.",
                self._lake.url,
                self.problem,
            )

    def finished(self, run_id: int | None = None) -> LakeRun:
        """The last finished run, or the one that is named.

        Raises:
            InputError: there is no such run, or it pins nothing (any more).
        """
        runs = self.runs()
        self.warn()
        pinned = [run for run in runs if run.versions is not None]
        found = [run for run in pinned if run_id in {None, run.run_id}]
        if not found:
            which = "no run" if run_id is None else f"no run {run_id}"
            known = ", ".join(str(run.run_id) for run in pinned[-10:])
            if any(each.run_id == run_id and each.let_go for each in runs):
                raise InputError(
                    f"`nftsync lake compact` has let go of run {run_id} of {self._lake.url}; there"
                    f" are: {known}"
                )
            raise InputError(
                f"{self._lake.url} has {which} that finished and is kept"
                + (f"; there are: {known}" if known else "; `nftsync lake sync` makes one")
            )
        return found[-1]

    def _change(self, change: Callable[[list[LakeRun]], _T]) -> _T:
        """Change the runs, on what is there when it counts."""
        while True:
            table, runs = self._table.open()
            result = change(runs)
            with suppress(CommitFailedError):  # another has changed them meanwhile
                self._table.write(table, runs)
                return result

    def begin(
        self,
        plan: str,
        buckets: int | None,
        silence: float,
        kind: str = "sync",
        *,
        provider: str = "",
        resume: bool = False,
        interrupted: threading.Event | None = None,
    ) -> LakeRun:
        """Start a run, or resume the newest one if it was interrupted.

        Args:
            plan: what it is asked for.
            buckets: into how many a new lake is divided; None: 64, or as many as it has.
            silence: a driver that has not renewed its run for so long, in seconds, is gone.
            kind: what it is.
            provider: the provider's address, as one spelling.
            resume: take over an interrupted run of the same plan; its `attempt` is above 0.
            interrupted: ends the wait for another driver.

        Raises:
            SyncRunning: another driver is at work.
            InputError: the lake is divided into another number of buckets, or the run to resume
                read another provider.
            KeyboardInterrupt: the event was set.
        """
        gone = self._find_gone(silence, interrupted)
        staged = self._lake.newest_staged()

        def change(runs: list[LakeRun]) -> LakeRun:
            last = _newest(runs)
            if last is not None and last.status == "running" and (last.driver, last.beat) != gone:
                raise SyncRunning(f"another driver has just begun a run of {self._lake.url}")
            runs[:] = [run for run in runs if run.kind != _COMPACT]
            last = _newest(runs)
            if last is not None and buckets not in {None, last.buckets}:
                raise InputError(
                    f"{self._lake.url} is divided into {last.buckets} buckets; leave --buckets away"
                )
            if resume and last is not None and self._can_resume(last, plan, provider):
                return self._resume(last)
            run = LakeRun(
                # Not of a run that an older ledger does not know: what it handed over is there.
                run_id=max(staged, 0 if last is None else last.run_id) + 1,
                kind=kind,
                started_at=now(),
                driver=self._driver,
                buckets=(buckets or 64) if last is None else last.buckets,
                plan=plan,
                provider=provider,
            )
            _start(run, runs)
            return run

        return self._change(change)

    def begin_import(self, history: Sequence[LakeRun], buckets: int, silence: float) -> LakeRun:
        """Begin to fill a lake that has no runs of its own.

        Args:
            history: the runs of what it is filled from.
            buckets: into how many it is divided.
            silence: another import that has not been renewed for so long, in seconds, is gone.

        Raises:
            SyncRunning: another driver is at work.
            InputError: it has runs of its own.
        """
        gone = self._find_gone(silence)
        run = LakeRun(
            run_id=max((run.run_id for run in history), default=0) + 1,
            kind=_IMPORT,
            plan=_IMPORT,
            started_at=now(),
            driver=self._driver,
            buckets=buckets,
        )

        def change(runs: list[LakeRun]) -> None:
            own = [each for each in runs if each.driver is not None]
            if any(each.kind != _IMPORT or each.versions is not None for each in own):
                raise InputError(f"{self._lake.url} has runs already; import into a new lake")
            if any(each.status == "running" and (each.driver, each.beat) != gone for each in own):
                raise SyncRunning(f"another driver has just begun to import into {self._lake.url}")
            # So that nothing of another one's counts for its own.
            run.attempt = max((each.attempt for each in own), default=0) + 1
            runs[:] = [*history, run]

        self._change(change)
        return run

    def begin_compacting(self, silence: float) -> LakeRun:
        """Keep drivers away, as a run does; `begin` tells the rest."""
        return self.begin(_COMPACT, None, silence, _COMPACT)

    def pin_anew(self, run: LakeRun, last: int, versions: Versions, keep: Collection[int]) -> None:
        """Let the last finished run pin other versions of the same rows, and let go of old runs.

        Args:
            run: the one by which we keep drivers away.
            last: the last finished run; those after it begin where it is.
            versions: what it pins.
            keep: the runs that go on to pin what they do.

        Raises:
            SyncRunning: another driver has taken over.
        """

        def change(runs: list[LakeRun]) -> None:
            self._mine(runs, run.run_id)
            for each in runs:
                if each.run_id > last:
                    each.start = versions
                elif each.run_id == last:
                    each.versions = versions
                elif each.run_id not in keep:
                    each.versions = None

        self._change(change)

    def end_compacting(self, run: LakeRun) -> None:
        """Let drivers begin."""

        def change(runs: list[LakeRun]) -> None:
            runs.remove(self._mine(runs, run.run_id))

        with suppress(SyncRunning):
            self._change(change)
        run.status = "ok"

    def _can_resume(self, last: LakeRun, plan: str, provider: str) -> bool:
        """Whether the newest run was interrupted, and was asked for the same.

        Raises:
            InputError: it read another provider.
        """
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
                "Run %d was asked for other wallets or removals: a new run starts.", last.run_id
            )
        return last.plan == plan

    def _resume(self, last: LakeRun) -> LakeRun:
        last.status, last.driver, last.finished_at = "running", self._driver, None
        last.beat, last.attempt = last.beat + 1, last.attempt + 1
        return last

    def _find_gone(
        self, silence: float, interrupted: threading.Event | None = None
    ) -> tuple[str | None, int] | None:
        """Watch a run that is under way for as long as its driver may be silent.

        Returns:
            Who drives it and how far it had come, where nothing came of it meanwhile.
        """
        seen: tuple[str | None, int] | None = None
        until = time.monotonic() + silence
        while True:
            _, runs = self._table.open()
            last = _newest(runs)
            if last is None or last.status != "running":
                return None
            found = last.driver, last.beat
            if seen is not None and found != seen:
                raise SyncRunning(
                    f"another driver is at work on {self._lake.url} (run {last.run_id}); wait for"
                    " it to end"
                )
            seen = found
            if time.monotonic() >= until:
                return found
            if (interrupted or threading.Event()).wait(min(1.0, silence / 10)):
                raise KeyboardInterrupt

    def save(self, run: LakeRun) -> None:
        """Store a run that we drive.

        Raises:
            SyncRunning: another driver has taken it over.
        """

        def change(runs: list[LakeRun]) -> None:
            known = self._mine(runs, run.run_id)
            run.beat = known.beat
            runs[runs.index(known)] = run

        self._change(change)

    def check(self, run: LakeRun) -> None:
        """Look whether we still drive a run.

        Raises:
            SyncRunning: another driver has taken it over.
        """
        self._mine(self._table.open()[1], run.run_id)

    def _mine(self, runs: list[LakeRun], run_id: int) -> LakeRun:
        """The run that we drive, renewed."""
        for known in runs:
            if (known.run_id, known.driver, known.status) == (run_id, self._driver, "running"):
                known.beat += 1
                return known
        raise SyncRunning(f"another driver has taken over run {run_id} of {self._lake.url}")

    @contextmanager
    def renewing(
        self, run: LakeRun, silence: float, on_failure: Callable[[Exception], None] | None = None
    ) -> Iterator[threading.Event]:
        """Renew a run during a block; the event tells that another has taken it over.

        Where the block ends before the run does, the next driver need not wait.

        Args:
            run: the run.
            silence: seconds without a renewal after which another driver takes the run over.
            on_failure: called, from another thread, when the run is no longer renewed. If None,
                that is only logged: `check` still notices a driver that has taken it over.
        """
        over, lost = threading.Event(), threading.Event()

        def renew() -> None:
            while not over.wait(silence / _RENEWED):
                try:
                    self._change(lambda runs: self._mine(runs, run.run_id))
                except SyncRunning:
                    lost.set()
                    return
                except (StoreError, *STORE_ERRORS):
                    continue  # the store cannot be reached now; who waits for us sees no sign

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
