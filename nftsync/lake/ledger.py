"""The ledger of a lake: its runs, which of them is under way and whose, and what each pinned.

It is one small Delta table that every change writes anew, so of two changes at once one is refused
and made again of what the other left. A driver renews its run while it lives; who finds a run that
is not renewed takes it over. No clock is compared with another machine's: who waits looks whether
the row changes meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from nftsync.errors import InputError, SyncRunning
from nftsync.lake.reasons import STORE_ERRORS
from nftsync.lake.storage import Lake, Versions
from nftsync.store.runs import Counts
from nftsync.times import now

__all__ = ["LakeRun", "Ledger"]

#: What holds a lake without being a run: it leaves no row behind, and what was to be gone on with
#: before it still is afterwards.
_COMPACT = "compact"
#: What fills a lake, which no other run goes on with.
_IMPORT = "import"

#: How often a run is renewed while it may be silent: once would be by chance.
_RENEWED = 4
#: A change is of the version that was read, or it is none: where the table has no rows yet, Delta
#: would otherwise let two through.
_NEXT_VERSION = CommitProperties(max_commit_retries=0)


class LakeRun(msgspec.Struct, kw_only=True):
    """A row of the ledger: a run, the columns of `sync_runs` among them.

    Attributes:
        driver: who drives it, a random name.
        beat: grows while its driver lives.
        buckets: into how many the lake is divided.
        plan: the SHA-256 of what it was asked for; blank: all tracked wallets.
        start: the version of each table that it begins from, as the run before pinned it.
        attempt: how often its writing was begun anew; by each driver of its own accord, as nobody
            knows what the last one's workers still write, and under which settings.
        applied_at: the time of everything that it changes.
        not_before: the time of what the run before has changed.
        greatest_ticket, greatest_change, greatest_state, greatest_token_change: the greatest
            numbers that were given.
        versions: the version of each table that it pinned; None: it has not finished.
    """

    run_id: int
    kind: str = "sync"
    status: str = "running"
    started_at: str
    finished_at: str | None = None
    wallets_total: int = 0
    counts: Counts = msgspec.field(default_factory=Counts)
    error: str | None = None
    driver: str | None = None
    beat: int = 0
    buckets: int
    plan: str = ""
    start: Versions = {}
    attempt: int = 0
    applied_at: str | None = None
    not_before: str = ""
    greatest_ticket: int = 0
    greatest_change: int = 0
    greatest_state: int = 0
    greatest_token_change: int = 0
    versions: Versions | None = None

    @property
    def let_go(self) -> bool:
        """It was a run of this lake that could be read, and no longer can."""
        finished = self.driver is not None and self.status in {"ok", "partial"}
        return finished and self.versions is None


_SUMS = Counts.__struct_fields__
_JSON = ("start", "versions")
_GREATEST = ("greatest_ticket", "greatest_change", "greatest_state", "greatest_token_change")
_SCHEMA = pa.schema(
    {
        "run_id": pa.int64(),
        **dict.fromkeys(("kind", "status", "started_at", "finished_at"), pa.string()),
        "wallets_total": pa.int64(),
        **{name: pa.float64() if name == "seconds" else pa.int64() for name in _SUMS},
        **dict.fromkeys(("error", "driver"), pa.string()),
        **dict.fromkeys(("beat", "buckets"), pa.int64()),
        **dict.fromkeys(("plan", *_JSON, "applied_at", "not_before"), pa.string()),
        **dict.fromkeys(("attempt", *_GREATEST), pa.int64()),
    }
)


def _row_of(run: LakeRun) -> dict[str, Any]:
    row = msgspec.structs.asdict(run)
    row |= msgspec.structs.asdict(row.pop("counts"))
    return row | {name: msgspec.json.encode(row[name]).decode() for name in _JSON}


def _rows_of(table: DeltaTable) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(table.scan()).to_pylist()
    return rows


def _run_of(row: dict[str, Any]) -> LakeRun:
    counts = Counts(**{name: row.pop(name) for name in _SUMS})
    return LakeRun(counts=counts, **row | {name: msgspec.json.decode(row[name]) for name in _JSON})


class Ledger:
    """The runs of one lake, as one driver or reader sees them."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._driver = uuid4().hex

    def runs(self) -> list[LakeRun]:
        """All runs, the oldest first."""
        rows = _rows_of(self._lake.open_first("runs"))
        return sorted(map(_run_of, rows), key=lambda run: run.run_id)

    def finished(self, run_id: int | None = None) -> LakeRun:
        """The last finished run, or the one that is named.

        Raises:
            InputError: there is no such run, or it pins nothing (any more).
        """
        runs = self.runs()
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

    def _change(self, change: Callable[[list[LakeRun]], object]) -> None:
        """Change the runs, on what is there when it counts."""
        while True:
            table = self._lake.create("runs", _SCHEMA)
            runs = [_run_of(row) for row in _rows_of(table)]
            change(runs)
            rows = pa.Table.from_pylist([_row_of(run) for run in runs], _SCHEMA)
            try:
                write_deltalake(table, rows, mode="overwrite", commit_properties=_NEXT_VERSION)
            except CommitFailedError:
                continue  # another has changed them meanwhile
            return

    def begin(self, plan: str, buckets: int | None, silence: float, kind: str = "sync") -> LakeRun:
        """Begin a run, or take over one whose driver is gone and that was asked for the same.

        Args:
            plan: what it is asked for.
            buckets: into how many a new lake is divided; None: 64, or as many as it has.
            silence: a driver that has not renewed its run for so long, in seconds, is gone.
            kind: what it is.

        Raises:
            SyncRunning: another driver is at work.
            InputError: the lake is divided into another number of buckets.
        """
        begun: list[LakeRun] = []
        gone = self._find_gone(silence)

        def change(runs: list[LakeRun]) -> None:
            begun.clear()
            last = max(runs, key=lambda run: run.run_id, default=None)
            if last is not None and last.status == "running" and (last.driver, last.beat) != gone:
                raise SyncRunning(f"another driver has just begun a run of {self._lake.url}")
            runs[:] = [run for run in runs if run.kind != _COMPACT]
            last = max(runs, key=lambda run: run.run_id, default=None)
            begun.append(self._next(runs, last, plan, buckets, kind))

        self._change(change)
        return begun[0]

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

    def unfinished(self) -> int:
        """The first run that may be gone on with, or the next one."""
        return max((run.run_id for run in self.runs() if run.versions is not None), default=0) + 1

    def end_compacting(self, run: LakeRun) -> None:
        """Let drivers begin."""

        def change(runs: list[LakeRun]) -> None:
            runs.remove(self._mine(runs, run.run_id))

        with suppress(SyncRunning):
            self._change(change)
        run.status = "ok"

    def _next(
        self,
        runs: list[LakeRun],
        last: LakeRun | None,
        plan: str,
        buckets: int | None,
        kind: str,
    ) -> LakeRun:
        if last is not None and buckets not in {None, last.buckets}:
            raise InputError(
                f"{self._lake.url} is divided into {last.buckets} buckets; leave --buckets away"
            )
        if last is not None and last.versions is None and last.status in {"running", "interrupted"}:
            if last.plan == plan:
                last.status, last.driver, last.finished_at = "running", self._driver, None
                last.beat, last.attempt = last.beat + 1, last.attempt + 1
                return last
            last.status = "interrupted"
        pinned = [run for run in runs if run.versions is not None]
        before = max(pinned, key=lambda run: run.run_id, default=None)
        run = LakeRun(
            run_id=1 if last is None else last.run_id + 1,
            kind=kind,
            started_at=now(),
            driver=self._driver,
            buckets=(buckets or 64) if last is None else last.buckets,
            plan=plan,
        )
        if before is not None:
            run.start, run.not_before = before.versions or {}, before.applied_at or ""
            for name in _GREATEST:
                setattr(run, name, getattr(before, name))
        runs.append(run)
        return run

    def _find_gone(self, silence: float) -> tuple[str | None, int] | None:
        """Watch a run that is under way for as long as its driver may be silent.

        Returns:
            Who drives it and how far it had come, where nothing came of it meanwhile.
        """
        seen: tuple[str | None, int] | None = None
        until = time.monotonic() + silence
        while True:
            table = self._lake.create("runs", _SCHEMA)
            runs = [_run_of(row) for row in _rows_of(table)]
            last = max(runs, key=lambda run: run.run_id, default=None)
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
            time.sleep(min(1.0, silence / 10))

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
        self._mine(self.runs(), run.run_id)

    def _mine(self, runs: list[LakeRun], run_id: int) -> LakeRun:
        """The run that we drive, renewed."""
        for known in runs:
            if (known.run_id, known.driver, known.status) == (run_id, self._driver, "running"):
                known.beat += 1
                return known
        raise SyncRunning(f"another driver has taken over run {run_id} of {self._lake.url}")

    @contextmanager
    def renewing(self, run: LakeRun, silence: float) -> Iterator[threading.Event]:
        """Renew a run during a block; the event tells that another has taken it over.

        Where the block ends before the run does, the next driver need not wait.
        """
        over, lost = threading.Event(), threading.Event()

        def renew() -> None:
            while not over.wait(silence / _RENEWED):
                try:
                    self._change(lambda runs: self._mine(runs, run.run_id))
                except SyncRunning:
                    lost.set()
                    return
                except STORE_ERRORS:
                    continue  # the store cannot be reached now; who waits for us sees no sign

        thread = threading.Thread(target=renew, name="nftsync-renew", daemon=True)
        thread.start()
        try:
            yield lost
        finally:
            over.set()
            thread.join()
            if run.status == "running":
                run.status, run.finished_at = "interrupted", now()
                with suppress(SyncRunning, *STORE_ERRORS):
                    self.save(run)
