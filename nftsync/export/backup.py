"""Snapshots and dated backups."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import filelock

from nftsync.errors import InputError, StoreError
from nftsync.store.database import SqliteCheck, damage, explained
from nftsync.store.runs import end_all_work
from nftsync.store.schema import made_at, opened_as_is
from nftsync.terminal import progress_bar
from nftsync.times import now
from nftsync.whole_files import whole_file

#: Pages copied between updates of the progress bar and checks for Ctrl-C; some 8 MB.
PAGES_PER_STEP = 2_000


def write_snapshot(
    database: Path, file: Path, *, check: Callable[[Path], None] | None = None
) -> int:
    """Copy a database at one moment, while other programs write to it; return the copy's size.

    Only its owner can read it. It has no running webhooks or syncs. An earlier version's database
    is not upgraded. `check` may raise an error to discard the finished copy.
    """
    file = Path(os.path.abspath(file))  # noqa: PTH100 - does not follow a link at this path
    with opened_as_is(database) as source, whole_file(file) as partial, explained(file):
        bar = progress_bar("Copying", 0, unit="pages")

        def show(_: int, remaining: int, total: int) -> None:
            bar.total = total
            bar.update(total - remaining - bar.n)

        with closing(bar), closing(sqlite3.connect(partial, isolation_level=None)) as target:
            # The open read transaction fixes the snapshot, so commits do not restart the copy.
            source.execute("BEGIN DEFERRED")
            source.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
            source.backup(target, pages=PAGES_PER_STEP, progress=show)
            target.execute("PRAGMA journal_mode = DELETE").fetchone()
            end_all_work(target, now())
        if check is not None:
            check(partial)
        return partial.stat().st_size


#: Bytes up to which a copy gets the full check, at some 10 s per gigabyte. Larger copies skip the
#: comparison of tables with indexes, which halves the time.
FULL_CHECK_LIMIT = 4_000_000_000


class Backup(NamedTuple):
    """Result of a backup: SQLite's check of the copy, and the names of removed older backups.

    `left_over` counts the removed files of killed backups.
    """

    file: Path
    size: int
    check: SqliteCheck
    pruned: list[str]
    left_over: int


def write_backup(database: Path, directory: Path, *, keep: int) -> Backup:
    """Write a dated, checked copy to a directory, and prune older copies of this database.

    If the copy fails, nothing is pruned. `keep` includes the new copy.
    """
    copies = _Copies(database, directory)
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is not a directory; name another")

    def refuse_damaged(copy: Path) -> None:
        if report := damage(copy, _check_for(copy.stat().st_size)):
            raise StoreError(
                f"the copy of {database} is damaged ({report}) and was deleted; older backups"
                " remain. Check the database with `nftsync check`; if it is damaged, restore a"
                " backup"
            )

    with explained(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        with copies.locked():
            unfinished = [path for path in directory.iterdir() if copies.unfinished(path.name)]
            for path in unfinished:
                shutil.rmtree(path)
            while os.path.lexists(file := copies.at(datetime.now(UTC))):
                time.sleep(0.1)
            size = write_snapshot(database, file, check=refuse_damaged)
            return Backup(file, size, _check_for(size), copies.prune(file, keep), len(unfinished))


def _check_for(size: int) -> SqliteCheck:
    return "quick_check" if size >= FULL_CHECK_LIMIT else "integrity_check"


class _Copies:
    """One database's copies in a directory: `STEM-TIME-MARK.db`.

    The mark, a hash of path and creation time, lets databases share a directory.
    """

    def __init__(self, database: Path, directory: Path) -> None:
        with opened_as_is(database) as connection, explained(database):
            made = made_at(connection)
        origin = f"{database.resolve()}\n{made}".encode(errors="surrogateescape")
        self._stem = database.stem
        self._mark = hashlib.sha256(origin).hexdigest()[:6]
        self._directory = directory
        self._name = rf"{re.escape(self._stem)}-[0-9]{{8}}T[0-9]{{6}}Z-{self._mark}\.db"

    def at(self, moment: datetime) -> Path:
        return self._directory / f"{self._stem}-{moment:%Y%m%dT%H%M%SZ}-{self._mark}.db"

    def unfinished(self, name: str) -> bool:
        return bool(re.fullmatch(rf"\.{self._name}\.\w+\.(nftsync-)?partial", name))

    @contextmanager
    def locked(self) -> Iterator[None]:
        file = self._directory / f".{self._stem}-{self._mark}.lock"
        try:
            with filelock.FileLock(file, timeout=0, mode=0o600):
                yield
        except filelock.Timeout:
            raise StoreError(
                f"another backup is writing to {self._directory}; wait for it to end"
            ) from None

    def prune(self, newest: Path, keep: int) -> list[str]:
        """The newest stays, even if the clock was set back."""
        older = sorted(
            entry.name
            for entry in os.scandir(self._directory)
            if entry.is_file(follow_symlinks=False) and re.fullmatch(self._name, entry.name)
        )
        older.remove(newest.name)
        pruned = older[: max(0, len(older) - keep + 1)]
        for name in pruned:
            try:
                (self._directory / name).unlink(missing_ok=True)
            except OSError as error:
                raise StoreError(
                    f"wrote {newest}, but cannot remove {name}: {error.strerror or error}"
                ) from error
        return pruned
