"""The removal guard: reads that have removals wait, and are decided on together.

A provider with a fault may answer 200 with lists that are empty, cut short or full of zeros. One
wallet that sells all it has looks the same. So such reads wait until the run that made them ends.
Then the guard decides on all of them, and applies them, or holds their removals for review.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from tempfile import SpooledTemporaryFile, gettempdir
from typing import NamedTuple

import msgspec

from nftsync.pull.reads import Read, Subject, subject_of, weight
from nftsync.pull.removal_decision import (
    Change,
    Decision,
    FirstRead,
    Part,
    RemovalLimits,
    Rename,
    decide,
)
from nftsync.records import Applied, Effort, OnRemovals, Removals
from nftsync.store import removals
from nftsync.store.database import explained
from nftsync.store.mirror import Transaction
from nftsync.times import now

#: Waiting reads take this much memory at most, in bytes, and a file without a name beyond that.
_IN_MEMORY = 16 * 1024 * 1024
#: For so long, in seconds, the number of balances held 24 hours ago is not counted again.
_COUNTED_FOR = 600.0


_decoder: msgspec.msgpack.Decoder[Read] = msgspec.msgpack.Decoder(Read)


class _Waiting(NamedTuple):
    """Where a read lies, in bytes, and its removals."""

    start: int
    length: int
    removals: Removals


class RemovalGuard:
    """Reads that wait to be decided on together; used by one thread.

    Attributes:
        decision: the last one.
    """

    def __init__(self, limits: RemovalLimits) -> None:
        """Begin with none.

        Args:
            limits: how much may be removed.
        """
        self._limits = limits
        self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - `close` closes it
        self._waiting: dict[Subject, _Waiting] = {}
        self._end = 0
        self._since = 0.0
        self.decision = Decision()
        self._held: Counter[Part] = Counter()
        self._counted_at = -_COUNTED_FOR

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def subjects(self) -> list[Subject]:
        """Whose reads wait."""
        return list(self._waiting)

    @property
    def waited(self) -> float:
        """Seconds since the first of the waiting reads came."""
        return time.monotonic() - self._since if self._waiting else 0.0

    def apply(self, transaction: Transaction, run_id: int, reads: Sequence[Read]) -> list[Applied]:
        """Apply reads, but keep those that have removals: `staged`.

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
            # The requests have been counted.
            packed = msgspec.msgpack.encode(msgspec.structs.replace(applied.read, effort=Effort()))
            with explained(gettempdir()):
                self._file.seek(self._end)
                self._file.write(packed)
                self._file.flush()
            subject = subject_of(applied.read)
            self._waiting[subject] = _Waiting(self._end, len(packed), applied.removals)
            self._end += len(packed)

    def decide(self, connection: sqlite3.Connection) -> None:
        """Decide on all waiting reads, in view of the last 24 hours.

        Args:
            connection: in no transaction, as counting balances may take a second.
        """
        history = _Stored(connection, now(), self._count_held)
        waiting = [waiting.removals for waiting in self._waiting.values()]
        self.decision = decide(self._limits, history, waiting)

    def release(self, transaction: Transaction, run_id: int, entries: int) -> list[Applied]:
        """Apply the next reads that were decided on: as a whole, or without removals: `held`.

        Args:
            transaction: where.
            run_id: the run that made them.
            entries: about how many list entries at most.
        """
        released: dict[OnRemovals, list[Read]] = {"apply": [], "hold": []}
        while self._waiting and entries > 0:
            waiting = self._waiting.pop(next(iter(self._waiting)))
            self._file.seek(waiting.start)
            read = _decoder.decode(self._file.read(waiting.length))
            released["hold" if self.decision.holds(waiting.removals) else "apply"].append(read)
            entries -= weight(read)
        if not self._waiting:
            self.forget()
        return [
            applied
            for how, reads in released.items()
            for applied in transaction.apply(reads, run_id=run_id, removals=how)
        ]

    def forget(self) -> None:
        """Drop all waiting reads."""
        self._waiting.clear()
        self._file.truncate(0)
        self._end = 0

    def close(self) -> None:
        """Drop all waiting reads, for good."""
        self._file.close()

    def _count_held(
        self, connection: sqlite3.Connection, first: int, more: Counter[Part]
    ) -> Counter[Part]:
        if time.monotonic() - self._counted_at >= _COUNTED_FOR:
            listed = removals.listed(connection, first)
            self._held = Counter({Part(*key): count for key, count in listed.items()})
            self._held.update(more)
            self._counted_at = time.monotonic()
        return self._held.copy()


class _Stored:
    """The last 24 hours as a database has them."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        at: str,
        count_held: Callable[[sqlite3.Connection, int, Counter[Part]], Counter[Part]],
    ) -> None:
        self._connection = connection
        self._at = at
        self._count_held = count_held
        self._first = removals.first_change(connection, at)
        self._last_reads: dict[tuple[int, str | None], str | None] = {}

    def count_losses(self) -> tuple[int, int]:
        return removals.count_losses(self._connection, self._first)

    def changes(self) -> list[Change]:
        rows = self._connection.execute(
            "SELECT c.wallet_no, w.wallet_group, c.token_no, c.old_amount, c.new_amount,"
            " c.observed_at FROM balance_change_rows c JOIN wallets w USING (wallet_no)"
            " WHERE c.change_id >= ? AND NOT c.baseline ORDER BY c.change_id",
            (self._first,),
        )
        return [Change(*row) for row in rows]

    def first_reads(self, tokens: Collection[int]) -> Iterator[FirstRead]:
        rows = self._connection.execute(
            "SELECT c.wallet_no, c.token_no, c.new_amount, coalesce(r.started_at, c.observed_at)"
            " AS at FROM balance_change_rows c LEFT JOIN sync_runs r USING (run_id)"
            " WHERE c.change_id >= ? AND c.baseline AND c.new_amount IS NOT NULL AND at >"
            " (SELECT first_read_at FROM wallet_state_rows ORDER BY state_id LIMIT 1)",
            (self._first,),
        )
        return (FirstRead(*row) for row in rows if row[1] in tokens)

    def last_read(self, wallet: int, at: str | None) -> str | None:
        if (wallet, at) not in self._last_reads:
            row = self._connection.execute(
                "SELECT last_read_at FROM wallet_state_rows WHERE wallet_no = ?1"
                " AND (?2 IS NULL OR observed_at < ?2) ORDER BY state_id DESC LIMIT 1",
                (wallet, at),
            ).fetchone()
            self._last_reads[wallet, at] = row and row[0]
        return self._last_reads[wallet, at]

    def new_wallets(self) -> set[int]:
        return removals.new_wallets(self._connection, self._first)

    def held(self, more: Counter[Part]) -> Counter[Part]:
        return self._count_held(self._connection, self._first, more)

    def emptied(self) -> set[int]:
        return removals.emptied_since(self._connection, self._first_of_tokens)

    def renames(self, waiting: Mapping[int, tuple[str | None, str, str]]) -> Iterator[Rename]:
        for rename in removals.renamed_since(self._connection, self._first_of_tokens):
            if rename[0] not in waiting:
                yield Rename(*rename)
        for token, names in waiting.items():
            yield Rename(token, *names)

    @property
    def _first_of_tokens(self) -> int:
        return removals.first_change(self._connection, self._at, "token_change_rows")

    def tokens(self) -> int:
        query = "SELECT coalesce(max(token_no), 0) FROM tokens"
        (number,) = self._connection.execute(query).fetchone()
        return int(number)

    def now(self) -> str:
        return self._at
