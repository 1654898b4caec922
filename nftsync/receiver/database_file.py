"""The file that a receiver writes to, and whether it is still the one at its path."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from nftsync.errors import StoreError
from nftsync.store.connection import create_private_file, explained, file_at
from nftsync.store.schema import open_store

__all__ = ["DatabaseFile"]


class DatabaseFile:
    """The file at the database's path when the receiver began; created where it is missing.

    SQLite goes on writing to a file that was moved or removed, where nobody finds what it writes.
    Nor may another file be opened instead while this process has the first one open: the files
    beside a database (log, shared memory) go by its name, so the two would share them
    (https://sqlite.org/howtocorrupt.html, section 2.5). So nothing is written until the first file
    is back at its path, or a new process begins with what is there.

    Attributes:
        path: where it was, and is to be.

    Raises:
        StoreError: it cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with explained(path):
            create_private_file(path)
        self._identity = file_at(path)

    def check(self) -> None:
        """Make sure that it is where it was; only looks at the path and opens nothing.

        Raises:
            StoreError: there is no file at its path now, or another one.
        """
        if self._identity is None or file_at(self.path) != self._identity:
            raise StoreError(
                f"{self.path} was moved, removed or replaced while it was in use; put it back, or "
                "start again with what is there"
            )

    def open(self) -> sqlite3.Connection:
        """Open it to write it.

        Raises:
            StoreError: what `check` raises, or it is not nftsync's, or cannot be written.
        """
        self.check()
        connection = open_store(self.path)
        try:
            self.check()
        except StoreError:
            connection.close()
            raise
        return connection
