"""Copies of a live database: snapshots and dated backups."""

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
from nftsync.store.database import Check, damage, explained
from nftsync.store.runs import end_all_work
from nftsync.store.schema import made_at, opened_as_is
from nftsync.terminal import progress_bar
from nftsync.times import now
from nftsync.whole_files import whole_file

#: Pages copied between updates of the progress bar and checks for Ctrl-C; some 8 MB.
_STEP = 2_000


def write_snapshot(
    database: Path,
    file: Path,
    *,
    progress: bool | None = None,
    step: int = _STEP,
    check: Callable[[Path], None] | None = None,
) -> int:
    """Copy a database at one moment, while other programs write to it.

    The copy is one file, readable only by its owner. In it, running webhooks are pending, and
    running syncs are interrupted. An earlier version is not upgraded.

    Args:
        database: the source.
        file: the copy; missing folders are created.
        progress: see the package.
        step: pages per step.
        check: may raise an error to discard the finished copy.

    Returns:
        The copy's size in bytes.

    Raises:
        InputError: `file` exists.
        StoreError: see the package.
    """
    file = Path(os.path.abspath(file))  # noqa: PTH100 - does not follow a link at this path
    with opened_as_is(database) as source, whole_file(file) as partial, explained(file):
        bar = progress_bar("Copying", 0, unit="pages", shown=progress)

        def show(_: int, remaining: int, total: int) -> None:
            bar.total = total
            bar.update(total - remaining - bar.n)

        with closing(bar), closing(sqlite3.connect(partial, isolation_level=None)) as target:
            # The open read transaction keeps the moment, so commits do not restart the copy.
            source.execute("BEGIN DEFERRED")
            source.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
            source.backup(target, pages=step, progress=show)
            target.execute("PRAGMA journal_mode = DELETE").fetchone()
            end_all_work(target, now())
        if check is not None:
            check(partial)
        return partial.stat().st_size


#: Bytes up to which a copy gets the full check, at some 10 s per gigabyte. Larger copies skip the
#: comparison of tables with indexes, which halves the time.
_FULL_CHECK_LIMIT = 4_000_000_000

_MOMENT = "%Y%m%dT%H%M%SZ"


class Backup(NamedTuple):
    """Result of a backup.

    `check` is SQLite's check of the copy, `pruned` names the removed older backups, and `left_over`
    counts the removed files of killed backups.
    """

    file: Path
    size: int
    check: str
    pruned: list[str]
    left_over: int


def write_backup(
    database: Path,
    directory: Path,
    *,
    keep: int,
    progress: bool | None = None,
    full_check_limit: int = _FULL_CHECK_LIMIT,
) -> Backup:
    """Write a dated, checked copy of a database to a directory, and prune its older copies.

    Other files stay, also backups of other databases. If the copy fails, nothing is pruned.

    Args:
        database: the source; other programs may write to it.
        directory: created for its owner if missing.
        keep: number of copies of this database to keep, including the new one.
        progress: see the package.
        full_check_limit: bytes from which the copy gets only a quick check.

    Raises:
        InputError: `directory` is not a directory.
        StoreError: also if the database is damaged or another backup is running.
    """
    names = _Names.of(database)
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is not a directory; name another")
    check: Check = "integrity_check"

    def check_copy(copy: Path) -> None:
        nonlocal check
        check = "quick_check" if copy.stat().st_size >= full_check_limit else "integrity_check"
        _refuse_damaged(copy, check, database)

    with explained(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        with _locked(directory, names):
            left_over = _remove_unfinished(directory, names)
            file = _unused_path(directory, names)
            size = write_snapshot(database, file, progress=progress, check=check_copy)
            return Backup(file, size, check, _prune(directory, names, file, keep), left_over)


class _Names(NamedTuple):
    """Names of one database's copies: `STEM-TIME-MARK.db`.

    The mark, a hash of path and creation time, lets databases share a directory.
    """

    stem: str
    mark: str

    @classmethod
    def of(cls, database: Path) -> _Names:
        with opened_as_is(database) as connection, explained(database):
            made = made_at(connection)
        origin = f"{database.resolve()}\n{made}".encode(errors="surrogateescape")
        return cls(database.stem, hashlib.sha256(origin).hexdigest()[:6])

    def at(self, moment: str) -> str:
        return f"{self.stem}-{moment}-{self.mark}.db"

    def finished(self, name: str) -> bool:
        return bool(re.fullmatch(self._pattern(), name))

    def unfinished(self, name: str) -> bool:
        """Return whether a name is a temporary file of `whole_file`."""
        return bool(re.fullmatch(rf"\.{self._pattern()}\.\w+\.(nftsync-)?partial", name))

    def _pattern(self) -> str:
        return rf"{re.escape(self.stem)}-[0-9]{{8}}T[0-9]{{6}}Z-{self.mark}\.db"


@contextmanager
def _locked(directory: Path, names: _Names) -> Iterator[None]:
    """Lock a directory against other backups of the same database."""
    file = directory / f".{names.stem}-{names.mark}.lock"
    try:
        with filelock.FileLock(file, timeout=0, mode=0o600):
            yield
    except filelock.Timeout:
        raise StoreError(f"another backup is writing to {directory}; wait for it to end") from None


def _remove_unfinished(directory: Path, names: _Names) -> int:
    """Remove files of killed backups; the caller holds the lock."""
    unfinished = [path for path in directory.iterdir() if names.unfinished(path.name)]
    for path in unfinished:
        shutil.rmtree(path)
    return len(unfinished)


def _unused_path(directory: Path, names: _Names) -> Path:
    while True:
        file = directory / names.at(datetime.now(UTC).strftime(_MOMENT))
        if not os.path.lexists(file):
            return file
        time.sleep(0.1)


def _refuse_damaged(copy: Path, check: Check, database: Path) -> None:
    report = damage(copy, check)
    if report is not None:
        raise StoreError(
            f"the copy of {database} is damaged ({report}) and was deleted; older backups remain."
            " Check the database with `nftsync check`; if it is damaged, restore a backup"
        )


def _prune(directory: Path, names: _Names, newest: Path, keep: int) -> list[str]:
    """Remove the oldest copies; the newest stays, even if the clock was set back."""
    older = sorted(
        entry.name
        for entry in os.scandir(directory)
        if entry.is_file(follow_symlinks=False) and names.finished(entry.name)
    )
    older.remove(newest.name)
    pruned = older[: max(0, len(older) - keep + 1)]
    for name in pruned:
        try:
            (directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"wrote {newest}, but cannot remove {name}: {error.strerror or error}"
            ) from error
    return pruned
