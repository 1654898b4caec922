"""Compaction: few files per bucket, and only files that a kept run needs.

It goes on in an order that may end anywhere. Tables are rewritten beside what is pinned; then the
last run is pinned anew and older ones are let go, in one change of the ledger; only then files go.
What a died one has left, the next one goes back from, or removes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import msgspec

from nftsync.lake.folder import private_files
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.reasons import explained
from nftsync.lake.rows import TABLES
from nftsync.lake.setup import repair_lake
from nftsync.lake.storage import Commit, Lake, Overtaken
from nftsync.terminal import progress_bar
from nftsync.times import now, shifted

#: How often a table is rewritten again where another wrote meanwhile.
_MOST_ATTEMPTS = 5
#: In the place of a run's attempt, so that nothing takes its writes for a run's.
_ATTEMPT = -1


class Compacted(msgspec.Struct, kw_only=True):
    """What compacting a lake came to.

    Attributes:
        lake: its folder or address.
        tables: how many it has.
        files_before: the files of rows that its versions were made of.
        files_after: those that they are made of now.
        bytes_freed: how much smaller these are together.
        runs_kept: the runs that can be read.
        runs_let_go: those that no longer can.
    """

    lake: str
    tables: int
    files_before: int
    files_after: int
    bytes_freed: int
    runs_kept: list[int]
    runs_let_go: list[int]


def compact_lake(
    lake: str, keep: timedelta, *, silence: float = 60.0, progress: bool | None = None
) -> Compacted:
    """Rewrite a lake into few files, and remove those that no kept run needs.

    Args:
        lake: its folder or address.
        keep: runs that ended so long ago are let go; the last one never is.
        silence: a driver that has not renewed its run for so long, in seconds, is gone.
        progress: show a bar; None shows it on a terminal and in a notebook.

    Raises:
        InputError: no run of the lake has finished.
        SyncRunning: a driver is at work, or has taken the lake over.
        StoreError: there is no lake, or it cannot be read or written.
    """
    tables = Lake(lake)
    with explained(lake), private_files():
        repair_lake(tables)
        ledger = Ledger(tables)
        ledger.finished()  # or there is nothing to compact
        run = ledger.begin_compacting(silence)
        with ledger.renewing(run, silence):
            try:
                return _Compacting(tables, ledger, run).compact(keep, progress)
            finally:
                ledger.end_compacting(run)


class _Compacting(NamedTuple):
    lake: Lake
    ledger: Ledger
    run: LakeRun

    def compact(self, keep: timedelta, progress: bool | None) -> Compacted:
        """Do all of it."""
        pinned = [run for run in self.ledger.runs() if run.versions is not None]
        last = pinned[-1]
        since = shifted(now(), -keep)
        kept = [run for run in pinned if run is last or (run.finished_at or "") > since]
        names = [*TABLES, "staged"]
        before = self._files(pinned)
        with progress_bar("Compacting", 2 * len(names), unit="steps", shown=progress) as bar:
            versions = dict(last.versions or {})
            for name in versions:
                versions[name] = self._rewrite(name, versions[name])
                bar.update(1)
            self.ledger.check(self.run)
            self.lake.sync_to_disk(last.versions or {}, versions)
            self.ledger.pin_anew(self.run, last.run_id, versions, {run.run_id for run in kept})
            last.versions = versions
            self.lake.drop_staged(last.run_id)
            bar.update(len(names) - len(versions))
            for name in names:
                self.ledger.check(self.run)
                self.lake.vacuum(name, {(run.versions or {}).get(name) for run in kept})
                bar.update(1)
        self.lake.vacuum("runs", (), hours=1)  # it is read by its newest version, by anybody
        after = self._files(kept)
        return Compacted(
            lake=self.lake.url,
            tables=len(names) + 1,
            files_before=len(before),
            files_after=len(after),
            bytes_freed=max(0, sum(before.values()) - sum(after.values())),
            runs_kept=[run.run_id for run in kept],
            runs_let_go=[run.run_id for run in pinned if run not in kept],
        )

    def _rewrite(self, name: str, pinned: int) -> int:
        """Make a table few files; the version that has the rows of the one that is pinned."""
        commit = Commit(self.run.run_id, "compact", 0, _ATTEMPT, {})
        for _ in range(_MOST_ATTEMPTS):
            self.ledger.check(self.run)
            base = self.lake.go_back(name, pinned)
            found = self.lake.optimize(name, commit)
            if found == base:
                return pinned
            if not self.lake.only_by(self.run.run_id, _ATTEMPT, name, base, found):
                continue  # a late worker of a run wrote there
            if self.lake.count(name, {name: found}) == self.lake.count(name, {name: pinned}):
                return found
        raise Overtaken(f"{name} is written by others; run it again")

    def _files(self, runs: list[LakeRun]) -> dict[str, int]:
        """The files of what runs pinned and of what there is now, each with its size."""
        found: dict[str, int] = {}
        for name in (*TABLES, "staged"):
            for version in {(run.versions or {}).get(name) for run in runs} | {None}:
                found |= self.lake.files(name, version)
        return found
