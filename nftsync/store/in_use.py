"""The files of a database that somebody has open: whether they are still where they were."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from nftsync.errors import DamagedDatabase, StoreError
from nftsync.store.database import log_of


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
