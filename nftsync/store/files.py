"""The files of a database in use: whether they are in place, and emptying the write-ahead log."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

from nftsync.errors import DamagedDatabase, StoreError
from nftsync.store.database import log_of
from nftsync.threads import start_thread

_log = logging.getLogger("nftsync.store")

#: Rows that a writer changes before what it wrote is moved out of the log: some 60 MB in a database
#: of millions, where many lie on a page of their own, and a tenth of that in a small one.
_ROWS_BEFORE_CHECKPOINT = 32_000
_ROWS_ON_A_SMALL_DISK = 64
#: Bytes of a log that is called long.
LONG_LOG = 256_000_000
_PAGE = 4_096
#: Should the thread not keep up, the writer's commits move it all, as SQLite does it: 256 MB.
_MOST_PAGES = 64_000


class FilesInUse:
    """Which file is a database, and which its log, since somebody opened them; opens nothing.

    SQLite goes on writing to a file that was moved or removed, where nobody finds what it writes.
    Nor may another file be opened instead while this process has the first one open: the files
    beside a database (log, shared memory) go by its name, so the two would share them
    (https://sqlite.org/howtocorrupt.html, section 2.5). So nothing is written until the first file
    is back at its path, or a new process begins with what is there.

    Args:
        path: the database, which is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = log_of(path)
        self._file = _file_at(path)
        self._log_file: tuple[int, int] | None = None
        self._size = self._pages = 0

    def opened(self) -> None:
        """Remember the log, too, now that a connection has read the database."""
        self._log_file = _file_at(self._log)

    def closed(self) -> None:
        """Forget the log: who closes a database last takes it away."""
        self._log_file = None

    @property
    def in_place(self) -> bool:
        """Whether they are where they were."""
        try:
            self.check()
        except StoreError:
            return False
        return True

    def check(self, connection: sqlite3.Connection | None = None) -> None:
        """Make sure that all files are where they were.

        Args:
            connection: of the database; with it, also that the file was not cut off.

        Raises:
            StoreError: the database was moved, removed or replaced.
            DamagedDatabase: its log was, or the database was cut off.
        """
        name = self._path.name
        if self._file is None or _file_at(self._path) != self._file:
            raise StoreError(
                f"{self._path} was moved, removed or replaced while it was in use; put it back,"
                f" or stop nftsync, move {name}-wal and {name}-shm away too, and start it again"
            )
        if self._log_file is not None and _file_at(self._log) != self._log_file:
            raise DamagedDatabase(
                f"{self._log} was moved, removed or replaced while it was in use; stop nftsync,"
                " which saves what that held, and start it again"
            )
        if connection is not None:
            self._refuse_cut_off(connection)

    def _refuse_cut_off(self, connection: sqlite3.Connection) -> None:
        size = self._path.stat().st_size
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        # VACUUM makes it smaller, too, but then it counts fewer pages.
        if size < self._size and pages >= self._pages:
            raise DamagedDatabase(
                f"{self._path} is damaged (it was cut off while it was in use); restore a copy,"
                " or begin afresh with another --database"
            )
        self._size, self._pages = size, pages


def _file_at(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a receiver asks this twice for each commit
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Checkpoints:
    """Moves what a busy writer's log holds into the database, mostly in a thread beside it.

    New rows lie all over the indexes of their ids, so in a database of millions a checkpoint moves
    nearly as many pages as were written. It needs no write lock, yet the commit that sets it off
    waits for it, and for the disk. A log begins anew only when all of it has been moved, and the
    writer adds to it meanwhile: so a thread moves most, and the writer, between two transactions,
    the little that is left.

    Args:
        path: the database.
        writer: the connection that writes it.
        rows: how many it changes between two checkpoints.
        long_log: bytes that may wait in the log because others read an old state, before it is
            said.
    """

    def __init__(
        self,
        path: Path,
        writer: sqlite3.Connection,
        *,
        rows: int = _ROWS_BEFORE_CHECKPOINT,
        long_log: int = LONG_LOG,
    ) -> None:
        self._writer = writer
        self._rows = rows
        self._log = log_of(path)
        # Opened now, while this name is surely the database that the writer has opened.
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._thread: threading.Thread | None = None  # noqa: TID251 - its type alone
        self._moved = writer.total_changes
        self._long_log = long_log
        self._warned_at = long_log // 2
        writer.execute(f"PRAGMA wal_autocheckpoint = {_MOST_PAGES}")

    def after_commit(self) -> None:
        """Begin or complete a checkpoint where one is due."""
        if self._thread is None:
            rows = self._writer.total_changes - self._moved
            if rows >= self._rows or (rows >= _ROWS_ON_A_SMALL_DISK and self._is_short_of_room()):
                self._moved = self._writer.total_changes
                with suppress(RuntimeError):  # no room for a thread: then SQLite does it, later
                    self._thread = start_thread("checkpoint", self._move_most)
        elif not self._thread.is_alive():
            self._thread = None
            _checkpoint(self._writer)

    def _is_short_of_room(self) -> bool:
        """Whether the database might find no room for what is in the log."""
        disk = os.statvfs(self._log)
        return disk.f_bavail * disk.f_frsize < self._log.stat().st_size

    def empty_log(self) -> None:
        """Move all that the log holds into the file that was opened, and empty the log.

        Where that file was moved or replaced, its log stays behind under its old name, and would be
        laid over what is put there. On a full disk it holds the room that its content needs.
        """
        with suppress(sqlite3.Error):  # what cannot be moved now is safe in the log
            self._writer.execute("PRAGMA busy_timeout = 500")
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def close(self, *, empty_log: bool = False) -> None:
        """Wait for the thread, and empty the log if told to; the writer's connection stays open."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if empty_log:
            self.empty_log()
        self._connection.close()

    def _move_most(self) -> None:
        _checkpoint(self._connection)
        self._warn(_checkpoint(self._connection))  # what came during the first

    def _warn(self, left: int) -> None:
        """Say that the log grows, and again whenever it is twice as long."""
        if left < self._long_log:
            self._warned_at = self._long_log // 2
        elif left >= 2 * self._warned_at:
            self._warned_at = left
            _log.warning(
                "the database's log grows, as a program reads an old state of it; end that",
                extra={"log_bytes": left},
            )


def _checkpoint(connection: sqlite3.Connection) -> int:
    """Move what the log holds, without waiting for anybody; the bytes that stay there."""
    with suppress(sqlite3.Error):  # what cannot be moved now is safe in the log
        _, pages, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return int(pages - moved) * _PAGE
    return 0


def log_bytes(path: Path) -> int:
    """The size of the log's file: what is not yet in the database, and room to be used again."""
    try:
        return log_of(path).stat().st_size
    except OSError:
        return 0
