"""Reads that wait for a joint decision on their removals, in a temporary file to save memory."""

from __future__ import annotations

import sqlite3
import time
from tempfile import SpooledTemporaryFile, gettempdir

import msgspec

from nftsync.pull.guard import Decision, RemovalLimits, decide
from nftsync.pull.reads import Subject, subject_of, weight
from nftsync.records import Effort, Read, Removals
from nftsync.store.database import explained
from nftsync.store.history import LastDay
from nftsync.times import now

#: Bytes of reads in memory; beyond that, they go to an unnamed file.
_MAX_MEMORY = 16 * 1024 * 1024
_decoder: msgspec.msgpack.Decoder[Read] = msgspec.msgpack.Decoder(Read)


class WaitingReads:
    """Reads that wait for a joint decision; for one thread. Without limits, no read waits.

    A temporary file has the reads, to save memory.
    """

    def __init__(self, limits: RemovalLimits | None) -> None:
        """Start without reads."""
        self.limits = limits
        self.decision = Decision()
        self._file: SpooledTemporaryFile[bytes] | None = None
        self._end = 0
        #: Start and length of each read in the file, and its removals.
        self._waiting: dict[Subject, tuple[int, int, Removals]] = {}
        self._since = 0.0
        self._last_day = LastDay()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def subjects(self) -> list[Subject]:
        """The objects of the waiting reads."""
        return list(self._waiting)

    @property
    def waited(self) -> float:
        """Seconds since the first waiting read arrived."""
        return time.monotonic() - self._since if self._waiting else 0.0

    def add(self, read: Read, removals: Removals) -> None:
        """Let a read with removals wait; its requests no longer count."""
        if not self._waiting:
            self._since = time.monotonic()
        packed = msgspec.msgpack.encode(msgspec.structs.replace(read, effort=Effort()))
        with explained(gettempdir()):
            if self._file is None:
                self._file = SpooledTemporaryFile(_MAX_MEMORY)  # noqa: SIM115 - `close` closes it
            self._file.seek(self._end)
            self._file.write(packed)
            self._file.flush()
        self._waiting[subject_of(read)] = (self._end, len(packed), removals)
        self._end += len(packed)

    def take(self, entries: int) -> list[tuple[Read, Removals]]:
        """Take waiting reads of about `entries` entries, with their removals."""
        taken = []
        while self._file is not None and self._waiting and entries > 0:
            start, length, removals = self._waiting.pop(next(iter(self._waiting)))
            self._file.seek(start)
            read = _decoder.decode(self._file.read(length))
            taken.append((read, removals))
            entries -= weight(read)
        if not self._waiting:
            self.forget()
        return taken

    def decide(self, connection: sqlite3.Connection) -> None:
        """Decide on all waiting reads; call it outside a transaction, as it may take a second."""
        self._last_day.begin(connection, now())
        waiting = [removals for _, _, removals in self._waiting.values()]
        self.decision = decide(self.limits, self._last_day, waiting)

    def forget(self) -> None:
        """Drop all waiting reads."""
        self._waiting.clear()
        self._end = 0
        if self._file is not None:
            self._file.truncate(0)

    def close(self) -> None:
        """Drop all waiting reads, and close the file."""
        self.forget()
        if self._file is not None:
            self._file.close()
