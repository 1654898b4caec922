"""The brake on mass removal: what reads show to be gone is judged together before it counts.

A provider with a fault may answer 200 with lists that are empty, cut short or full of zeros. One
wallet that sells all it has looks the same, so what tells is how much goes at once: reads that show
something to be gone wait (`apply` keeps them) until the run that made them ends, are then judged
together and with what was removed in the 24 hours before (`judge`), and are applied, or applied
without what they show to be gone (`release`).
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from tempfile import SpooledTemporaryFile, gettempdir
from typing import NamedTuple

import msgspec

from nftsync.pull.judgement import RemovalLimits, Verdict, judge
from nftsync.pull.reads import Read, Subject, subject_of, weight
from nftsync.records import Applied, Effort, OnRemovals, Removals
from nftsync.store import removals
from nftsync.store.database import explained
from nftsync.store.mirror import Transaction
from nftsync.times import now

__all__ = ["RemovalBrake"]

#: Reads that wait take this much memory at most, in bytes, and a file without a name beyond that.
_IN_MEMORY = 16 * 1024 * 1024
#: For so long, in seconds, what was held within 24 hours is taken for what it was.
_COUNTED_FOR = 600.0


_decoder: msgspec.msgpack.Decoder[Read] = msgspec.msgpack.Decoder(Read)


class _Waiting(NamedTuple):
    """Where a read lies, in bytes, and what it shows to be gone."""

    start: int
    length: int
    removals: Removals


class RemovalBrake:
    """Reads that wait to be judged together; used by one thread.

    Attributes:
        verdict: what the last judgement was.
    """

    def __init__(self, limits: RemovalLimits) -> None:
        """Begin with none.

        Args:
            limits: how much may vanish.
        """
        self._limits = limits
        self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - `close` closes it
        self._waiting: dict[Subject, _Waiting] = {}
        self._end = 0
        self._since = 0.0
        self.verdict = Verdict()
        self._held: Counter[str | None] = Counter()
        self._counted_at = -_COUNTED_FOR

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def subjects(self) -> list[Subject]:
        """Whose reads wait."""
        return list(self._waiting)

    @property
    def waited(self) -> float:
        """Seconds since the first of those that wait came."""
        return time.monotonic() - self._since if self._waiting else 0.0

    def apply(self, transaction: Transaction, run_id: int, reads: Sequence[Read]) -> list[Applied]:
        """Apply reads, but keep those that show something to be gone: `staged`.

        Raises:
            StoreError: there is no room for them among the temporary files.
        """
        all_applied = transaction.apply(reads, run_id=run_id, removals="stage")
        self._keep(all_applied)
        return all_applied

    def _keep(self, all_applied: Sequence[Applied]) -> None:
        for applied in all_applied:
            if applied.result != "staged" or applied.removals is None:
                continue
            if not self._waiting:
                self._since = time.monotonic()
            # What it cost has been counted.
            packed = msgspec.msgpack.encode(msgspec.structs.replace(applied.read, effort=Effort()))
            with explained(gettempdir()):
                self._file.seek(self._end)
                self._file.write(packed)
                self._file.flush()
            subject = subject_of(applied.read)
            self._waiting[subject] = _Waiting(self._end, len(packed), applied.removals)
            self._end += len(packed)

    def judge(self, connection: sqlite3.Connection) -> None:
        """Decide on all that wait, in view of what was removed within 24 hours.

        Args:
            connection: in no transaction, as counting what is listed may take a second.
        """
        past = _PastOfMirror(connection, now(), self._count_held)
        waiting = [each.removals for each in self._waiting.values()]
        self.verdict = judge(self._limits, past, waiting)

    def release(self, transaction: Transaction, run_id: int, entries: int) -> list[Applied]:
        """Apply the next reads that have been judged: wholly, or without what is gone: `held`.

        Args:
            transaction: where.
            run_id: the run that made them.
            entries: about how many list entries at most.
        """
        taken: dict[OnRemovals, list[Read]] = {"apply": [], "hold": []}
        while self._waiting and entries > 0:
            waiting = self._waiting.pop(next(iter(self._waiting)))
            self._file.seek(waiting.start)
            read = _decoder.decode(self._file.read(waiting.length))
            taken["hold" if self.verdict.holds(waiting.removals) else "apply"].append(read)
            entries -= weight(read)
        if not self._waiting:
            self.forget()
        return [
            applied
            for how, reads in taken.items()
            for applied in transaction.apply(reads, run_id=run_id, removals=how)
        ]

    def forget(self) -> None:
        """Drop all that wait."""
        self._waiting.clear()
        self._file.truncate(0)
        self._end = 0

    def close(self) -> None:
        """Drop all that wait, for good."""
        self._file.close()

    def _count_held(
        self, connection: sqlite3.Connection, gone: Counter[str | None]
    ) -> Counter[str | None]:
        """What was held at any time within 24 hours: what still is, and what is gone since."""
        if time.monotonic() - self._counted_at >= _COUNTED_FOR:
            self._held = removals.listed(connection) + gone
            self._counted_at = time.monotonic()
        return self._held


class _PastOfMirror:
    """The past as a mirror knows it."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        at: str,
        count_held: Callable[[sqlite3.Connection, Counter[str | None]], Counter[str | None]],
    ) -> None:
        self._connection = connection
        self._at = at
        self._count_held = count_held

    def vanished(self) -> removals.Vanished:
        return removals.vanished(self._connection, self._at)

    def removed(self) -> Iterable[tuple[int, str | None, int]]:
        return removals.removed(self._connection, self._at)

    def gained(self) -> dict[int, set[int]]:
        return removals.gained(self._connection, self._at)

    def listed(self, gone: Counter[str | None]) -> Counter[str | None]:
        return self._count_held(self._connection, gone)

    def tokens(self) -> int:
        query = "SELECT coalesce(max(token_no), 0) FROM tokens"
        (known,) = self._connection.execute(query).fetchone()
        return int(known)
