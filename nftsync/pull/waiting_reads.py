"""Reads that wait for a joint decision on their removals, in a temporary file to save memory."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from tempfile import SpooledTemporaryFile, gettempdir
from typing import NamedTuple

import msgspec

from nftsync.pull.guard import Decision, RemovalLimits, decide
from nftsync.pull.reads import Read, Subject, subject_of, weight
from nftsync.records import Applied, Effort, OnRemovals, Removals
from nftsync.store.database import explained
from nftsync.store.history import LastDay
from nftsync.store.mirror import Transaction
from nftsync.times import now

#: Bytes of reads in memory; beyond that, they go to an unnamed file.
_MAX_MEMORY = 16 * 1024 * 1024


_decoder: msgspec.msgpack.Decoder[Read] = msgspec.msgpack.Decoder(Read)


class Place(NamedTuple):
    """A read's place in the file, in bytes."""

    start: int
    length: int


class ReadFile:
    """Reads in the order of their arrival, for one thread."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(_MAX_MEMORY)  # noqa: SIM115 - `close` closes it
        self._end = 0

    def add(self, read: Read) -> Place:
        """Add a read, and return its place."""
        packed = msgspec.msgpack.encode(read)
        with explained(gettempdir()):
            self._file.seek(self._end)
            self._file.write(packed)
            self._file.flush()
        place = Place(self._end, len(packed))
        self._end += len(packed)
        return place

    def read(self, place: Place) -> Read:
        """Return the read at a place."""
        self._file.seek(place.start)
        return _decoder.decode(self._file.read(place.length))

    def clear(self) -> None:
        """Drop all reads."""
        self._file.truncate(0)
        self._end = 0

    def close(self) -> None:
        """Drop all reads, and close the file."""
        self._file.close()


class _WaitingRead(NamedTuple):
    """A read's place in the file, and its removals."""

    place: Place
    removals: Removals


class RemovalGuard:
    """Reads that wait for a joint decision; for one thread. Without limits, no read waits."""

    def __init__(self, limits: RemovalLimits | None) -> None:
        """Start without reads."""
        self.limits = limits
        self._file = ReadFile()
        self._waiting: dict[Subject, _WaitingRead] = {}
        self._since = 0.0
        self.decision = Decision()
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

    def apply(self, transaction: Transaction, run_id: int, reads: Sequence[Read]) -> list[Applied]:
        """Apply reads; reads with removals wait in a temporary file, with the result `staged`."""
        how: OnRemovals = "apply" if self.limits is None else "stage"
        all_applied = transaction.apply(reads, run_id=run_id, removals=how)
        for applied in all_applied:
            if applied.result == "staged" and applied.removals is not None:
                self.add(applied.read, applied.removals)
        return all_applied

    def add(self, read: Read, removals: Removals) -> None:
        """Let a read with removals wait; its requests no longer count."""
        if not self._waiting:
            self._since = time.monotonic()
        place = self._file.add(msgspec.structs.replace(read, effort=Effort()))
        self._waiting[subject_of(read)] = _WaitingRead(place, removals)

    def take(self, entries: int) -> list[tuple[Read, Removals]]:
        """Take waiting reads of about `entries` entries, with their removals."""
        taken = []
        while self._waiting and entries > 0:
            waiting = self._waiting.pop(next(iter(self._waiting)))
            read = self._file.read(waiting.place)
            taken.append((read, waiting.removals))
            entries -= weight(read)
        if not self._waiting:
            self.forget()
        return taken

    def decide(self, connection: sqlite3.Connection) -> None:
        """Decide on all waiting reads; call it outside a transaction, as it may take a second."""
        self._last_day.begin(connection, now())
        waiting = [waiting.removals for waiting in self._waiting.values()]
        self.decision = decide(self.limits, self._last_day, waiting)

    def release(self, transaction: Transaction, run_id: int, entries: int) -> list[Applied]:
        """Apply waiting reads of about `entries` entries, whole or without held removals."""
        released: dict[OnRemovals, list[Read]] = {"apply": [], "hold": []}
        for read, removals in self.take(entries):
            released["hold" if self.decision.holds(removals) else "apply"].append(read)
        return [
            applied
            for how, reads in released.items()
            for applied in transaction.apply(reads, run_id=run_id, removals=how)
        ]

    def forget(self) -> None:
        """Drop all waiting reads."""
        self._waiting.clear()
        self._file.clear()

    def close(self) -> None:
        """Drop all waiting reads, and close the file."""
        self._file.close()
