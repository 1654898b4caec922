"""Compaction of a lake.

Compaction can stop at any point: it deletes files only after the ledger pins the new versions.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import NamedTuple

import msgspec

from nftsync.lake.folder import private_files
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.reasons import explained
from nftsync.lake.rows import TABLES
from nftsync.lake.setup import repair_lake
from nftsync.lake.staged import EARLIER_STEPS
from nftsync.lake.storage import Lake
from nftsync.terminal import progress_bar
from nftsync.times import now, shifted


class Compacted(msgspec.Struct, kw_only=True):
    """Result of a compaction."""

    lake: str
    tables: int
    files_before: int
    files_after: int
    bytes_freed: int
    runs_kept: list[int]
    runs_let_go: list[int]


def compact_lake(
    lake: str, keep: timedelta, *, takeover_after: float = 60.0, progress: bool | None = None
) -> Compacted:
    """Merge a lake's small files, and expire runs that ended more than `keep` ago.

    The last finished run never expires.
    """
    tables = Lake(lake)
    with explained(lake), private_files():
        repair_lake(tables)
        ledger = Ledger(tables)
        ledger.finished()  # raises if there is nothing to compact
        run = ledger.begin_compacting(takeover_after)
        with ledger.heartbeat(run, takeover_after):
            try:
                return _Compacting(tables, ledger, run).compact(keep, progress)
            finally:
                ledger.end_compacting(run)


class _Compacting(NamedTuple):
    lake: Lake
    ledger: Ledger
    run: LakeRun

    def compact(self, keep: timedelta, progress: bool | None) -> Compacted:
        """Compact all tables."""
        pinned = [run for run in self.ledger.runs() if run.versions is not None]
        last = pinned[-1]
        since = shifted(now(), -keep)
        kept_runs = [run for run in pinned if run is last or (run.finished_at or "") > since]
        before = self._files(pinned)
        versions = dict(last.versions or {})
        with progress_bar("Compacting", 2 * len(versions), unit="steps", shown=progress) as bar:
            for name in versions:
                merge = partial(self.lake.optimize, name, versions[name])
                versions[name] = self.ledger.committed(self.run, name, merge)
                bar.update(1)
            self.ledger.check(self.run)
            self.lake.sync_to_disk(last.versions or {}, versions)
            self.ledger.repin(self.run, last.run_id, versions, {run.run_id for run in kept_runs})
            last.versions = versions
            for name in versions:
                self.ledger.check(self.run)
                self.lake.vacuum(name, {(run.versions or {}).get(name) for run in kept_runs})
                bar.update(1)
        self.lake.drop(EARLIER_STEPS)
        self.lake.vacuum("runs", (), hours=1)  # readers may still have its newest versions open
        after = self._files(kept_runs)
        return Compacted(
            lake=self.lake.url,
            tables=len(versions) + 1,
            files_before=len(before),
            files_after=len(after),
            bytes_freed=max(0, sum(before.values()) - sum(after.values())),
            runs_kept=[run.run_id for run in kept_runs],
            runs_let_go=[run.run_id for run in pinned if run not in kept_runs],
        )

    def _files(self, runs: list[LakeRun]) -> dict[str, int]:
        files: dict[str, int] = {}
        for name in TABLES:
            for version in {(run.versions or {}).get(name) for run in runs} | {None}:
                files |= self.lake.data_files(name, version)
        return files
