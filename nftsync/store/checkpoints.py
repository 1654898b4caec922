"""Moving what the write-ahead log holds into the database, beside the mirror's transactions."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

__all__ = ["Checkpoints"]

#: So much in the write-ahead log is moved; 8,000 pages.
_MOST_BYTES = 32 * 1024 * 1024
#: Should the thread not keep up, the writer's commits move it all, as SQLite does it: 256 MB.
_MOST_PAGES = 64_000


class Checkpoints:
    """Checkpoints of a busy writer, most of their work done in a thread beside it.

    New tokens lie all over the index of their ids, so in a database of millions a checkpoint moves
    nearly as many pages as were written. It needs no write lock, yet the commit that sets it off
    waits for it, and for the disk. A log begins anew only when all of it has been moved, and the
    writer adds to it meanwhile: so a thread moves most, and the writer, between two transactions,
    the little that is left.
    """

    def __init__(self, path: Path, writer: sqlite3.Connection) -> None:
        """Take over the checkpoints of a writer.

        Args:
            path: the database.
            writer: the connection that writes it.
        """
        self._writer = writer
        self._log = path.with_name(f"{path.name}-wal")
        # Opened now, while this name is surely the database that the writer has opened.
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._thread: threading.Thread | None = None
        writer.execute(f"PRAGMA wal_autocheckpoint = {_MOST_PAGES}")
        # The log's size then tells how much is in it.
        writer.execute("PRAGMA journal_size_limit = 0")

    def after_commit(self) -> None:
        """Begin or complete a checkpoint where one is due."""
        if self._thread is None:
            if self._log_bytes() >= _MOST_BYTES:
                thread = threading.Thread(target=self._move_most, name="nftsync-checkpoint")
                with suppress(RuntimeError):  # no room for a thread: then SQLite does it, later
                    thread.start()
                    self._thread = thread
        elif not self._thread.is_alive():
            self._thread = None
            _checkpoint(self._writer)

    def close(self) -> None:
        """Wait for the thread; the writer's connection stays open."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._connection.close()

    def _log_bytes(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:  # it comes with the first write
            return 0

    def _move_most(self) -> None:
        _checkpoint(self._connection)
        _checkpoint(self._connection)  # what came during the first


def _checkpoint(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # what cannot be moved now is safe in the log, and tried again
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
