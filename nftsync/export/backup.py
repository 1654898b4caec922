"""Copies of a database in use, at one moment: snapshots and dated backups."""

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

#: Pages that are copied between two looks at the progress bar and at Ctrl-C; some 8 MB.
_STEP = 2_000


def write_snapshot(
    database: Path,
    file: Path,
    *,
    progress: bool | None = None,
    step: int = _STEP,
    check: Callable[[Path], None] | None = None,
) -> int:
    """Copy a database as it is at one moment, while others may go on writing it.

    In the copy nothing is under way: webhooks that were being processed are pending again, and runs
    that were going on are interrupted. It has no write-ahead log and is readable by its owner only.
    It appears under its name once it is whole. A database of an earlier version is not upgraded.

    Args:
        database: what to copy.
        file: where to; its folder is made where it is missing.
        progress: show a progress bar; None shows it on a terminal.
        step: pages that are copied at once.
        check: looks at the whole copy before it has its name; what it raises leaves none.

    Returns:
        The copy's size in bytes.

    Raises:
        InputError: `file` is there already.
        StoreError: the database cannot be read, or the copy cannot be written.
    """
    file = Path(os.path.abspath(file))  # noqa: PTH100 - a link at its place is not followed
    with opened_as_is(database) as source, whole_file(file) as partial, explained(file):
        bar = progress_bar("Copying", 0, unit="pages", shown=progress)

        def show(_: int, remaining: int, total: int) -> None:
            bar.total = total
            bar.update(total - remaining - bar.n)

        with closing(bar), closing(sqlite3.connect(partial, isolation_level=None)) as target:
            # The source's open read transaction holds the moment: however often a writer commits
            # meanwhile, the copy need not begin again.
            source.execute("BEGIN DEFERRED")
            source.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
            source.backup(target, pages=step, progress=show)
            target.execute("PRAGMA journal_mode = DELETE").fetchone()
            end_all_work(target, now())
        if check is not None:
            check(partial)
        return partial.stat().st_size


#: Bytes up to which a copy is checked wholly, which takes some 10 s a gigabyte. Beyond it what the
#: tables say is not compared with their indexes, which takes half of that.
_LARGE = 4_000_000_000

_MOMENT = "%Y%m%dT%H%M%SZ"


class Backup(NamedTuple):
    """What a backup came to.

    Attributes:
        file: the copy.
        size: its bytes.
        check: how SQLite has checked it: `integrity_check` or `quick_check`.
        pruned: the names of the older ones that were removed, the oldest first.
        left_over: how many unfinished ones of backups that were killed were removed.
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
    large: int = _LARGE,
) -> Backup:
    """Copy a database into a directory under the time's name, and remove its oldest copies there.

    The copy is checked before it has its name. Of other files, those of other databases' backups
    included, none is touched, and nothing is removed if the copy fails.

    Args:
        database: what to copy; others may go on writing it.
        directory: where to; made for its owner alone if it is missing.
        keep: how many copies of this database there are then at most, the new one included.
        progress: show a progress bar; None shows it on a terminal.
        large: bytes from which on the copy is checked only quickly.

    Raises:
        InputError: `directory` is no directory.
        StoreError: the database cannot be read or is damaged, the copy cannot be written, an old
            one cannot be removed, or another backup of this database is being written there.
    """
    ours = _Names.of(database)
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is there and is no directory; name another")
    check: Check = "integrity_check"

    def look(copy: Path) -> None:
        nonlocal check
        check = "quick_check" if copy.stat().st_size >= large else "integrity_check"
        _refuse_damaged(copy, check, database)

    with explained(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        with _alone(directory, ours):
            left_over = _sweep(directory, ours)
            file = _free_place(directory, ours)
            size = write_snapshot(database, file, progress=progress, check=look)
            return Backup(file, size, check, _prune(directory, ours, file, keep), left_over)


class _Names(NamedTuple):
    """How copies of one database are called: `STEM-TIME-MARK.db`.

    The mark stands for where the database lies and when it was made, so that several of one name
    can share a directory.
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
        """Whether it is what `whole_file` works in until a copy is finished."""
        return bool(re.fullmatch(rf"\.{self._pattern()}\.\w+\.(nftsync-)?partial", name))

    def _pattern(self) -> str:
        return rf"{re.escape(self.stem)}-[0-9]{{8}}T[0-9]{{6}}Z-{self.mark}\.db"


@contextmanager
def _alone(directory: Path, ours: _Names) -> Iterator[None]:
    """Keep other backups of the same database out of a directory during a block."""
    file = directory / f".{ours.stem}-{ours.mark}.lock"
    try:
        with filelock.FileLock(file, timeout=0, mode=0o600):
            yield
    except filelock.Timeout:
        raise StoreError(
            f"another backup is being written into {directory}; wait for it to end"
        ) from None


def _sweep(directory: Path, ours: _Names) -> int:
    """Remove what killed backups have left; nobody else works on it while the lock is held."""
    left = [path for path in directory.iterdir() if ours.unfinished(path.name)]
    for path in left:
        shutil.rmtree(path)
    return len(left)


def _free_place(directory: Path, ours: _Names) -> Path:
    """A name of this second, or of the next if there is a copy of this one."""
    while True:
        file = directory / ours.at(datetime.now(UTC).strftime(_MOMENT))
        if not os.path.lexists(file):
            return file
        time.sleep(0.1)


def _refuse_damaged(copy: Path, check: Check, database: Path) -> None:
    report = damage(copy, check)
    if report is not None:
        raise StoreError(
            f"the copy of {database} is damaged ({report}) and was not kept, nor was an older one"
            " removed; see whether the database is whole with `nftsync check`, else restore a copy"
        )


def _prune(directory: Path, ours: _Names, newest: Path, keep: int) -> list[str]:
    """Remove all but so many; the newest stays, though the clock may have gone back."""
    older = sorted(
        entry.name
        for entry in os.scandir(directory)
        if entry.is_file(follow_symlinks=False) and ours.finished(entry.name)
    )
    older.remove(newest.name)
    pruned = older[: max(0, len(older) - keep + 1)]
    for name in pruned:
        try:
            (directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"{newest} was written, but {name} cannot be removed: {error.strerror or error}"
            ) from error
    return pruned
