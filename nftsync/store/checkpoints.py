"""Checkpoints of a busy writer's write-ahead log."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

from nftsync.store.database import log_of
from nftsync.threads import start_thread

_log = logging.getLogger("nftsync.store")

#: Changed rows between two checkpoints: some 60 MB of log in a database of millions of rows, where
#: most changes are on different pages, and 6 MB in a small one.
ROWS_BEFORE_CHECKPOINT = 32_000
_ROWS_ON_A_SMALL_DISK = 64
#: Bytes of a log that the warning calls long.
LONG_LOG = 256_000_000
_PAGE = 4_096
#: At 256 MB, SQLite checkpoints within the writer's commit, in case the thread does not keep up.
_MOST_PAGES = 64_000


class Checkpoints:
    """Checkpoints of a busy writer's log, mostly in a thread.

    SQLite's own checkpoint delays a commit, and restarts a log only after moving all of it. So a
    thread moves most pages, and the writer the rest, between two transactions.
    """

    def __init__(
        self,
        path: Path,
        writer: sqlite3.Connection,
        *,
        rows: int = ROWS_BEFORE_CHECKPOINT,
        long_log: int = LONG_LOG,
    ) -> None:
        self._writer = writer
        self._rows = rows
        self._log = log_of(path)
        # Opened now, while the path certainly leads to the writer's file.
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._thread: threading.Thread | None = None  # noqa: TID251 - only as a type
        self._moved = writer.total_changes
        self._long_log = long_log
        self._warned_at = long_log // 2
        writer.execute(f"PRAGMA wal_autocheckpoint = {_MOST_PAGES}")

    def after_commit(self) -> None:
        if self._thread is None:
            rows = self._writer.total_changes - self._moved
            if rows >= self._rows or (rows >= _ROWS_ON_A_SMALL_DISK and self._is_short_of_room()):
                self._moved = self._writer.total_changes
                with suppress(RuntimeError):  # no thread available: SQLite does it later
                    self._thread = start_thread("checkpoint", self._move_most)
        elif not self._thread.is_alive():
            self._thread = None
            _checkpoint(self._writer)

    def _is_short_of_room(self) -> bool:
        disk = os.statvfs(self._log)
        return disk.f_bavail * disk.f_frsize < self._log.stat().st_size

    def empty_log(self) -> None:
        """Move the whole log into the opened file, and truncate the log."""
        with suppress(sqlite3.Error):  # pages that cannot be moved now are safe in the log
            self._writer.execute("PRAGMA busy_timeout = 500")
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def close(self) -> None:
        """Wait for the thread; leave the writer's connection open."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._connection.close()

    def _move_most(self) -> None:
        _checkpoint(self._connection)
        left = _checkpoint(self._connection)  # with the pages that the first one missed
        if left < self._long_log:
            self._warned_at = self._long_log // 2
        elif left >= 2 * self._warned_at:
            self._warned_at = left
            _log.warning(
                "the database's log grows, because a program reads an old state; end it",
                extra={"log_bytes": left},
            )


def _checkpoint(connection: sqlite3.Connection) -> int:
    """Move the log into the database without waiting; return the bytes that stay in the log."""
    with suppress(sqlite3.Error):  # pages that cannot be moved now are safe in the log
        _, pages, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return int(pages - moved) * _PAGE
    return 0


def log_bytes(path: Path) -> int:
    """Return the size of the log's file, including room for reuse."""
    try:
        return log_of(path).stat().st_size
    except OSError:
        return 0
