"""Checks that the files of an open database are still at their paths.

SQLite would write to a moved file. A new file in the same process would share its log, which goes
by name (https://sqlite.org/howtocorrupt.html, section 2.5). So writing stops until the file is back
or the process restarts.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TypeAlias

from nftsync.errors import DamagedDatabase, StoreError
from nftsync.store.database import log_of

#: Device and inode; None: there is no file.
Identity: TypeAlias = tuple[int, int] | None


def identity_of(path: Path) -> Identity:
    try:
        status = os.stat(path)  # noqa: PTH116 - faster: a receiver calls this often per commit
    except OSError:
        return None
    return status.st_dev, status.st_ino


def refuse_other_file(path: Path, identity: Identity) -> None:
    """Raise StoreError unless the file with this identity is at the path."""
    if identity is None or identity_of(path) != identity:
        name = path.name
        raise StoreError(
            f"{path} was moved, removed or replaced while in use. Put it back. Otherwise,"
            f" stop nftsync, move {name}-wal and {name}-shm away, and start it again"
        )


class FilesInUse:
    """Identities of a database and of its log, which exists while a connection is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = log_of(path)
        self._file = identity_of(path)
        self._log_file: Identity = None
        self._size = self._pages = 0

    def opened(self) -> None:
        """Check the file, and remember the log that a connection has created."""
        self._log_file = identity_of(self._log)
        self.check()

    def closed(self) -> None:
        """Forget the log, which the last connection deletes."""
        self._log_file = None

    def check(self, connection: sqlite3.Connection | None = None) -> None:
        """Raise StoreError if a file was moved or replaced or, given a connection, truncated."""
        refuse_other_file(self._path, self._file)
        if self._log_file is not None and identity_of(self._log) != self._log_file:
            raise DamagedDatabase(
                f"{self._log} was moved, removed or replaced while in use; stop nftsync, which"
                " saves the log's content, then start it again"
            )
        if connection is None:
            return
        size = self._path.stat().st_size
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        # VACUUM shrinks the file, too, but reduces the page count with it. Only frequent checks see
        # this: the count may grow again before the file does.
        if size < self._size and pages >= self._pages:
            raise DamagedDatabase(
                f"{self._path} is damaged (it was truncated while in use); restore a backup, or"
                " start over with another --database"
            )
        self._size, self._pages = size, pages
