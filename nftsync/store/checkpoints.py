"""Moving what the write-ahead log holds into the database, beside the mirror's transactions."""

from __future__ import annotations

import sqlite3
import threading
import time
from bisect import bisect_left
from contextlib import suppress
from io import FileIO
from pathlib import Path

__all__ = ["Checkpoints", "checkpoint", "log_of", "move_most"]

#: So much in the write-ahead log is moved; 8,000 pages.
_MOST_BYTES = 32 * 1024 * 1024
#: How often the log is looked at, in seconds; a receiver commits hundreds of times in one.
_LOOK_EVERY = 0.1
#: Should the thread not keep up, the writer's commits move it all, as SQLite does it: 256 MB.
_MOST_PAGES = 64_000
#: The log's layout, in bytes: its head, each page's head, and where both keep their salts.
_HEAD, _FRAME_HEAD = 32, 24
_SALTS_IN_HEAD, _SALTS_IN_FRAME, _SALTS = 16, 8, 8


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
        self._log = log_of(path)
        # Opened now, while this name is surely the database that the writer has opened.
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._thread: threading.Thread | None = None
        self._looked_at = 0.0
        writer.execute(f"PRAGMA wal_autocheckpoint = {_MOST_PAGES}")
        self._page_bytes: int = writer.execute("PRAGMA page_size").fetchone()[0]

    def after_commit(self) -> None:
        """Begin or complete a checkpoint where one is due."""
        if self._thread is None:
            moment = time.monotonic()
            if moment - self._looked_at < _LOOK_EVERY:
                return
            self._looked_at = moment
            if self._log_bytes() >= _MOST_BYTES:
                thread = threading.Thread(target=self._move_most, name="nftsync-checkpoint")
                with suppress(RuntimeError):  # no room for a thread: then SQLite does it, later
                    thread.start()
                    self._thread = thread
        elif not self._thread.is_alive():
            self._thread = None
            with suppress(sqlite3.Error):  # what cannot be moved is safe in the log
                checkpoint(self._writer)

    def close(self) -> None:
        """Wait for the thread; the writer's connection stays open."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._connection.close()

    def _log_bytes(self) -> int:
        """How much has been written since the log began anew.

        Its file is not cut off then: to write over what is there takes half the time of making a
        file longer. What is left from before carries other salts than the log's head
        (https://sqlite.org/fileformat.html, section 4). Unlike the database's, this file's
        descriptors hold no locks that closing one would drop.
        """
        try:
            size = self._log.stat().st_size
            if size < _MOST_BYTES:
                return size
            with self._log.open("rb", buffering=0) as log:
                salts = _read(log, _SALTS_IN_HEAD)
                step = _FRAME_HEAD + self._page_bytes

                def is_old(frame: int) -> bool:
                    return _read(log, _HEAD + frame * step + _SALTS_IN_FRAME) != salts

                return step * bisect_left(range((size - _HEAD) // step), True, key=is_old)
        except OSError:  # it comes with the first write
            return 0

    def _move_most(self) -> None:
        with suppress(sqlite3.Error):  # what cannot be moved now is tried again
            move_most(self._connection)


def _read(log: FileIO, offset: int) -> bytes:
    log.seek(offset)
    return log.read(_SALTS)


def log_of(path: Path) -> Path:
    """Where the write-ahead log of a database is."""
    real = path.resolve()  # SQLite too puts it beside the file, not beside a link
    return real.with_name(f"{real.name}-wal")


def checkpoint(connection: sqlite3.Connection) -> None:
    """Move what the log holds, without waiting for anybody.

    Raises:
        sqlite3.Error: it cannot be moved now.
    """
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def move_most(connection: sqlite3.Connection) -> None:
    """Move what the log holds while another connection writes to it.

    Raises:
        sqlite3.Error: it cannot be moved now.
    """
    checkpoint(connection)
    checkpoint(connection)  # what came during the first
