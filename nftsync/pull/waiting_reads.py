"""Reads that wait for a joint decision on their removals, in a temporary file to save memory."""

from __future__ import annotations

import os
import sqlite3
import time
from tempfile import SpooledTemporaryFile, gettempdir

import msgspec

from nftsync.pull.guard import Decision, RemovalLimits, decide, lost_tokens, needs_metadata
from nftsync.pull.reads import Subject, subject_of, weight
from nftsync.records import Effort, Read, Removals
from nftsync.store.database import explained
from nftsync.store.day_report import DayReport, day_changes, day_counts, day_holdings, day_metadata
from nftsync.times import now

#: Bytes of reads in memory; beyond that, they go to an unnamed file.
_MAX_MEMORY = 16 * 1024 * 1024
#: Seconds between two counts of the balances of 24 hours ago.
_COUNTED_FOR = 600.0

_decoder: msgspec.msgpack.Decoder[Read] = msgspec.msgpack.Decoder(Read)


class WaitingReads:
    """Reads that wait for a joint decision; for one thread. Without limits, no read waits."""

    def __init__(self, limits: RemovalLimits | None) -> None:
        self.limits = limits
        self.decision = Decision()
        self._file: SpooledTemporaryFile[bytes] | None = None
        #: The start and the length of each read in the file, and its removals.
        self._reads: dict[Subject, tuple[int, int, Removals]] = {}
        self._since = 0.0
        self._holdings = DayReport()
        self._counted_at, self._approved = -_COUNTED_FOR, -1

    def __len__(self) -> int:
        return len(self._reads)

    @property
    def subjects(self) -> list[Subject]:
        return list(self._reads)

    @property
    def waited(self) -> float:
        """Seconds since the first waiting read arrived."""
        return time.monotonic() - self._since if self._reads else 0.0

    def add(self, read: Read, removals: Removals) -> None:
        """Let a read with removals wait; its requests no longer count."""
        if self._file is None:
            self._file = SpooledTemporaryFile(_MAX_MEMORY)  # noqa: SIM115 - `forget` closes it
            self._since = time.monotonic()
        packed = msgspec.msgpack.encode(msgspec.structs.replace(read, effort=Effort()))
        with explained(gettempdir()):
            start = self._file.seek(0, os.SEEK_END)
            self._file.write(packed)
            self._file.flush()
        self._reads[subject_of(read)] = start, len(packed), removals

    def take(self, entries: int) -> list[tuple[Read, Removals]]:
        taken = []
        while self._file and self._reads and entries > 0:
            start, length, removals = self._reads.pop(next(iter(self._reads)))
            self._file.seek(start)
            read = _decoder.decode(self._file.read(length))
            taken.append((read, removals))
            entries -= weight(read)
        if not self._reads:
            self.forget()
        return taken

    def decide(self, connection: sqlite3.Connection) -> None:
        """Decide on all waiting reads; call it outside a transaction, as it may take a second."""
        if self.limits is None or not self._reads:
            self.decision = Decision()
            return
        at = now()
        waiting = [removals for _, _, removals in self._reads.values()]
        reports = [day_counts(connection, at, waiting)]
        if lost := lost_tokens(self.limits, reports):
            reports += [day_changes(connection, at, waiting, lost), self._counted(connection, at)]
        if needs_metadata(reports):
            reports.append(day_metadata(connection, at))
        self.decision = decide(self.limits, reports)

    def _counted(self, connection: sqlite3.Connection, at: str) -> DayReport:
        query = "SELECT approved_balance_change FROM mirror_state"
        (approved,) = connection.execute(query).fetchone()
        if approved != self._approved or time.monotonic() - self._counted_at >= _COUNTED_FOR:
            self._holdings = day_holdings(connection, at)
            self._counted_at, self._approved = time.monotonic(), approved
        return self._holdings

    def forget(self) -> None:
        self._reads.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    close = forget
