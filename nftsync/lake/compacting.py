"""Compaction of a lake.

Compaction can stop at any point: it deletes files only after the ledger pins the new manifest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import PurePosixPath

import msgspec

from nftsync.errors import StoreError
from nftsync.lake.bucket import BUCKETS, store_database, temporary_path
from nftsync.lake.delta import open_table
from nftsync.lake.folder import private_files
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.manifest import MANIFESTS, BucketEntry, Manifest, read_manifest, write_manifest
from nftsync.lake.reasons import STORE_ERRORS, explained
from nftsync.lake.setup import repair_lake
from nftsync.lake.steps import STEPS
from nftsync.lake.storage import Lake
from nftsync.lake.tables import (
    LONGEST_WRITE,
    PUBLISHED,
    check_tables,
    compact_tables,
    vacuum_tables,
)
from nftsync.store.database import explained as store_explained
from nftsync.terminal import progress_bar
from nftsync.times import now, shifted

#: A bucket file is vacuumed if more than this share of it is unused.
_UNUSED = 0.25
#: Folders whose files manifests, reports and the ledger name, and a part of paths of Delta's log.
_FOLDERS, _LOG = (BUCKETS, MANIFESTS, STEPS, "runs"), "/_delta_log/"


class Compacted(msgspec.Struct, kw_only=True):
    """Result of a compaction; the counts of files include buckets and published tables."""

    lake: str
    buckets: int
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
    opened = Lake(lake)
    with explained(lake), private_files():
        repair_lake(opened)
        ledger = Ledger(opened)
        ledger.finished()  # raises if there is nothing to compact
        run = ledger.begin_compacting(takeover_after)
        with ledger.heartbeat(run, takeover_after):
            try:
                return _Compacting(opened, ledger, run, keep).compact(progress)
            finally:
                ledger.end_compacting(run)


class _Compacting:
    def __init__(self, lake: Lake, ledger: Ledger, run: LakeRun, keep: timedelta) -> None:
        self._lake, self._ledger, self._run = lake, ledger, run
        runs = [row for row in ledger.runs() if row.run_id != run.run_id]
        self._pinned = {row.run_id: row.manifest for row in runs if row.manifest is not None}
        self._last, since = max(self._pinned), shifted(now(), -keep)
        recent = {row.run_id for row in runs if (row.finished_at or "") > since}
        self._kept = [x for x in self._pinned if x == self._last or x in recent]
        # Reports of an interrupted run name the files of the last run, and files of its own.
        self._can_resume = runs[-1].kind == "sync" and runs[-1].status == "interrupted"
        self._ended = {x.folder for x in (runs[:-1] if self._can_resume else runs)}

    def compact(self, progress: bool | None) -> Compacted:
        """Compact the bucket files and tables, and delete what no kept run needs."""
        lake, before = self._lake, self._sizes()
        manifests = {x: read_manifest(lake, self._pinned[x]) for x in self._kept}
        known, let_go = self._names(manifests), [x for x in self._pinned if x not in manifests]
        for run_id in let_go:
            with suppress(StoreError, *STORE_ERRORS):  # its files go once they are old
                known |= self._names({run_id: read_manifest(lake, self._pinned[run_id])})
        last, vacuumed = manifests[self._last], 0
        steps, check = len(last.buckets) + 2, partial(self._ledger.check, self._run)
        with progress_bar("Compacting", steps, unit="steps", shown=progress) as bar:
            for bucket, entry in enumerate(last.buckets):
                vacuumed += self._vacuum(bucket, entry)
                bar.update(1)
            if last.tables and not check_tables(lake, last.tables):
                last.tables = {}  # the next run publishes all rows again
            last.tables = compact_tables(lake, last.tables, check)
            bar.update(1)
            check()
            self._pinned[self._last] = write_manifest(lake, last, self._last)
            self._ledger.repin(self._run, self._last, self._pinned[self._last], self._kept)
            self._delete(known, self._names(manifests))
            versions = {
                x: {y.tables[x].version for y in manifests.values() if y.tables}
                for x in last.tables
            }
            vacuum_tables(lake, versions, unknown=not self._can_resume)
            bar.update(1)
        after = self._sizes()
        return Compacted(
            lake=lake.url,
            buckets=vacuumed,
            tables=len(last.tables),
            files_before=len(before),
            files_after=len(after),
            bytes_freed=max(0, sum(before.values()) - sum(after.values())),
            runs_kept=self._kept,
            runs_let_go=let_go,
        )

    def _sizes(self) -> dict[str, int]:
        files = [self._lake.names(folder) for folder in (BUCKETS, *PUBLISHED)]
        return {x: size for some in files for x, (size, _) in some.items() if _LOG not in x}

    def _names(self, manifests: Mapping[int, Manifest]) -> set[str]:
        files = [self._pinned[x] for x in manifests]
        for manifest in manifests.values():
            own = manifest.samples, manifest.known_tokens, *(y.file for y in manifest.buckets)
            files += (x for x in own if x)
        return {file.name for file in files}

    def _vacuum(self, bucket: int, entry: BucketEntry) -> bool:
        """Store a bucket's file again, without its unused bytes, if these are many."""
        file = entry.file
        if file is None or self._can_resume or entry.free <= _UNUSED * file.content_size:
            return False
        with temporary_path() as path:
            self._lake.fetch(file, path)  # not opened, as the entry keeps its confirmations
            with store_explained(path), closing(sqlite3.connect(path)) as connection:
                connection.execute("VACUUM")
            is_published = entry.is_published
            entry.file, entry.free = store_database(self._lake, bucket, path), 0
        if is_published:
            entry.publish()
        return True

    def _delete(self, known: Collection[str], needed: Collection[str]) -> None:
        """Delete files that no kept run needs; unknown ones may belong to a late writer."""
        old = datetime.now(UTC) - timedelta(hours=LONGEST_WRITE)
        files = {x: at for y in _FOLDERS for x, (_, at) in self._lake.names(y).items()}
        self._ledger.check(self._run)
        newest = open_table(self._lake, "runs").file_uris()
        needed = {*needed, *(f"runs/{PurePosixPath(x).name}" for x in newest)}

        def is_left(name: str) -> bool:
            if name in needed or _LOG in name:
                return False
            is_old = files[name] < old and not self._can_resume
            return is_old or name in known or PurePosixPath(name).parent.name in self._ended

        self._lake.delete([*filter(is_left, files)])
