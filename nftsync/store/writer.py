"""Writing to a database beside others that write it, move its files or fill the disk."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from nftsync.errors import NftsyncError, StoreError
from nftsync.store.checkpoints import ROWS_BEFORE_CHECKPOINT, Checkpoints
from nftsync.store.database import (
    BUSY_SECONDS,
    begin_immediate,
    create_private_file,
    explained,
    kind_of,
)
from nftsync.store.files_in_use import FilesInUse, identity_of, refuse_other_file
from nftsync.store.schema import open_store

#: Gap between two transactions; without gaps, a sync starves the inbox.
WRITE_GAP_SECONDS = 0.01


class Writer:
    """Connection for write transactions, used by one thread at a time.

    Opens, creates or migrates the database. After `close`, the next use opens it again if its files
    are still in place. Each writer has its own longest `wait` for the write lock, and a `gap` after
    its transactions for other writers, in seconds. A power cut may undo `NORMAL` commits since the
    last checkpoint. Only frequent writers can check the size. `lock_seconds` is the time that the
    last transaction held the write lock.
    """

    def __init__(
        self,
        path: Path,
        *,
        wait: float = BUSY_SECONDS,
        gap: float = WRITE_GAP_SECONDS,
        synchronous: Literal["NORMAL", "FULL"] = "NORMAL",
        checkpoint_rows: int = ROWS_BEFORE_CHECKPOINT,
        checks_size: bool = False,
    ) -> None:
        with explained(path):
            create_private_file(path)
            self._files = FilesInUse(path)
        self.path = path
        self.lock_seconds = 0.0
        self._wait = wait
        self._gap = gap
        self._synchronous = synchronous
        self._checkpoint_rows = checkpoint_rows
        self._checks_size = checks_size
        self._free_at = 0.0
        self._was_full = False
        self._opened: tuple[sqlite3.Connection, Checkpoints] | None = None
        self._open()

    @property
    def connection(self) -> sqlite3.Connection:
        """The open connection; StoreError if the database cannot be opened."""
        return self._open()[0]

    def _open(self) -> tuple[sqlite3.Connection, Checkpoints]:
        if self._opened is None:
            self._files.check()
            connection = open_store(self.path)
            try:
                self._files.opened()
                with explained(self.path):
                    connection.execute(f"PRAGMA synchronous = {self._synchronous}")
                    connection.execute(f"PRAGMA busy_timeout = {self._wait * 1000:.0f}")
                    rows = self._checkpoint_rows
                    self._opened = connection, Checkpoints(self.path, connection, rows=rows)
            except BaseException:
                connection.close()
                self._files.closed()
                raise
        return self._opened

    def check_files(self) -> None:
        """Raise StoreError if the files were moved or replaced, or the size shows a truncation."""
        self._files.check(self._opened[0] if self._opened and self._checks_size else None)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run a block in a write transaction, which an exception rolls back.

        StoreError: it cannot be opened, or its files were moved; sqlite3.Error: any other failure.
        """
        if self._gap:
            time.sleep(max(0.0, self._free_at - time.monotonic()))
        connection, checkpoints = self._open()
        if self._was_full:
            checkpoints.empty_log()  # first, or the log fills the freed room
        begin_immediate(connection, self._wait)
        began = time.monotonic()
        try:
            with connection:
                self.check_files()
                yield connection
            self._was_full = False
        except sqlite3.Error as error:
            self._was_full = kind_of(error) == sqlite3.SQLITE_FULL
            raise
        finally:
            ended = time.monotonic()
            self._free_at = ended + self._gap
            self.lock_seconds = ended - began
        self._files.check()  # if they were moved, the commit is lost

    def checkpoint(self) -> None:
        if self._opened is not None:
            self._opened[1].after_commit()

    def close(self) -> None:
        if self._opened is not None:
            connection, checkpoints = self._opened
            self._opened = None
            checkpoints.close()
            try:
                self._files.check()
            except StoreError:
                # SQLite would apply a moved file's log to the new file at its path.
                checkpoints.empty_log()
            with suppress(sqlite3.Error):
                connection.close()
            self._files.closed()


def keep_running(
    database: Path,
    stopped: threading.Event,
    work: Callable[[], bool | None],
    on_error: Callable[[NftsyncError], None],
    *,
    due: Callable[[int | None], float],
    retried: type[NftsyncError] = StoreError,
) -> None:
    """Call `work` again and again until stopped, but never with another file at the path.

    `work` returns False if it failed; errors of the class `retried` are passed to `on_error`. `due`
    returns the seconds until the next call, given the failures in a row, or None at first.
    """
    identity = identity_of(database)
    failures = None
    while not stopped.wait(due(failures)):
        try:
            refuse_other_file(database, identity)
            failed = work() is False
        except retried as error:
            on_error(error)
            failed = True
        failures = (failures or 0) + 1 if failed else 0
