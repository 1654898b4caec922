"""The mirror: the only writer of balances, tokens and their history.

A stale read changes nothing; a failed or incomplete read removes nothing.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from nftsync.records import (
    Applied,
    ObjectRead,
    OnRemovals,
    Read,
    SequenceNumbers,
    TokenRead,
    WalletRead,
)
from nftsync.store.balances import Batch
from nftsync.store.contracts import name_new_tokens
from nftsync.store.database import BUSY_SECONDS, explained
from nftsync.store.faults import note_new_fields
from nftsync.store.history import last_begin, last_observed
from nftsync.store.removals import reads_of_held
from nftsync.store.wallets import forget_answers
from nftsync.store.writer import WRITE_GAP_SECONDS, Writer
from nftsync.times import now

#: Target length of a write transaction, short enough for the inbox; some last twice as long.
_TARGET_SECONDS = 0.12
_FEWEST_ENTRIES = 200
_MOST_ENTRIES = 8_000


class BatchSize:
    """The size of the next write transaction in list entries, adapted to the target length."""

    def __init__(self) -> None:
        self.entries = 1_000

    def learn(self, entries_written: int, seconds: float) -> None:
        """Adapt the size to a transaction that held the write lock for some seconds."""
        # A much smaller one tells little.
        if entries_written > self.entries // 2:
            factor = min(2.0, max(0.5, _TARGET_SECONDS / max(seconds, 0.001)))
            self.entries = int(min(_MOST_ENTRIES, max(_FEWEST_ENTRIES, self.entries * factor)))


def _store_object(connection: sqlite3.Connection, read: ObjectRead) -> bool:
    """Store the response of a successful read unless it is stale; return whether it is new."""
    stored = connection.execute(
        "SELECT body, sequence FROM resources WHERE resource_type = ? AND resource_id = ?",
        (read.resource_type, read.resource_id),
    ).fetchone()
    body, sequence = stored or (None, -1)
    if sequence >= read.sequence:
        return False
    connection.execute(
        "INSERT INTO resources (resource_type, resource_id, body, fetched_at, sequence)"
        " VALUES (?, ?, ?, ?, ?) ON CONFLICT (resource_type, resource_id) DO UPDATE SET"
        " body = excluded.body, fetched_at = excluded.fetched_at, sequence = excluded.sequence",
        (read.resource_type, read.resource_id, read.body, read.started_at, read.sequence),
    )
    return bool(body != read.body)


#: New tokens per step of the full-text index: a tenth of a second in a database of millions.
_INDEX_STEP = 8_000


class Transaction:
    """An open write transaction of the mirror.

    `observed_at` is the time of all stored changes; it is never earlier than any stored time.
    """

    def __init__(self, connection: sqlite3.Connection, at: str, *, searchable: bool) -> None:
        self.connection = connection
        self._searchable = searchable
        self._clock = at
        self.observed_at = max(at, last_observed(connection) or "", last_begin(connection) or "")

    def apply(
        self, reads: Sequence[Read], *, run_id: int | None = None, removals: OnRemovals = "apply"
    ) -> list[Applied]:
        """Apply reads in the order of their sequence numbers, and return their results."""
        applied: list[Applied] = []
        ours: list[WalletRead | TokenRead] = []
        for read in sorted(reads, key=lambda read: read.sequence):
            if isinstance(read, ObjectRead):
                changed = read.outcome == "ok" and _store_object(self.connection, read)
                applied.append(Applied(read, read.outcome, objects_changed=changed))
            else:
                ours.append(read)
        # Also of reads that are not applied. Volatile fields are known.
        fields = ((read.volatile, one) for read in ours for one in read.new_fields)
        news = (x for volatile, x in fields if x.field.removeprefix("token.") not in volatile)
        note_new_fields(self.connection, news, self.observed_at)
        for group in _each_object_once(ours):
            batch = Batch(self.connection, self.observed_at, run_id, removals, self._clock)
            applied += batch.apply(group)
        return applied

    def index_tokens(self, most: int) -> bool:
        """Add tokens to the full-text index, and their contracts; return whether more are left."""
        if not self._searchable:
            return False
        execute = self.connection.execute
        (done,) = execute("SELECT indexed_token_no FROM mirror_state").fetchone()
        (newest,) = execute("SELECT coalesce(max(token_no), 0) FROM tokens").fetchone()
        until = min(newest, done + most)
        if done < until:
            execute(
                "INSERT INTO tokens_fts (rowid, name, description, creator_name)"
                " SELECT token_no, name, description, creator_name FROM tokens"
                " WHERE token_no > ? AND token_no <= ?",
                (done, until),
            )
            name_new_tokens(self.connection, done, until)
            execute("UPDATE mirror_state SET indexed_token_no = ?", (until,))
        return bool(until < newest)


class Mirror:
    """A database open for writing, by one thread at a time."""

    def __init__(
        self,
        path: Path,
        *,
        write_gap: float = WRITE_GAP_SECONDS,
        busy_seconds: float = BUSY_SECONDS,
        searchable: bool = True,
        at: str | None = None,
    ) -> None:
        """Open, create or migrate the database.

        `searchable` maintains the full-text index and the table of contracts. `at` is the time of
        all stored changes, by default that of each transaction.
        """
        self.path = path
        self._writer = Writer(path, wait=busy_seconds, gap=write_gap)
        self.connection = self._writer.connection
        self._searchable = searchable
        self._at = at
        try:
            with explained(path), self._writer.transaction() as connection:
                self.numbers, new = sequence_numbers(connection)
                if new:
                    offset = self.numbers.offset
                    connection.execute("UPDATE mirror_state SET sequence_offset = ?", (offset,))
        except BaseException:
            self._writer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._writer.close()

    @property
    def lock_seconds(self) -> float:
        """The time that the last transaction held the write lock."""
        return self._writer.lock_seconds

    def check_files(self) -> None:
        """Raise StoreError if the database was moved or replaced, so that commits are lost."""
        self._writer.check_files()

    @contextmanager
    def transaction(self, at: str | None = None) -> Iterator[Transaction]:
        """Run a block in one write transaction, which an exception rolls back.

        `at` is the time of the stored changes (None: the mirror's, or now), unless a stored time is
        later.
        """
        with explained(self.path):
            with self._writer.transaction() as connection:
                yield Transaction(connection, at or self._at or now(), searchable=self._searchable)
            self._writer.checkpoint()

    def accept_held(self, wallet_numbers: Sequence[int]) -> list[Applied]:
        """Apply the held removals of wallets (0: of tokens read by id), in one transaction."""
        applied: list[Applied] = []
        with self.transaction() as transaction:
            connection = transaction.connection
            by_run: dict[int | None, list[WalletRead | TokenRead]] = {}
            for number in wallet_numbers:
                for run_id, read in reads_of_held(connection, self.numbers, number):
                    by_run.setdefault(run_id, []).append(read)
            for run_id, reads in by_run.items():
                applied += transaction.apply(reads, run_id=run_id)
                wallets = [read.wallet_id for read in reads if isinstance(read, WalletRead)]
                forget_answers(connection, wallets)  # no response has been compared with this state
        return applied

    def index_tokens(self) -> None:
        """Add all new tokens to the full-text index, in short transactions."""
        more = True
        while more:
            with self.transaction() as transaction:
                more = transaction.index_tokens(_INDEX_STEP)


def sequence_numbers(connection: sqlite3.Connection) -> tuple[SequenceNumbers, bool]:
    """Return the sequence numbers of a database, and whether the caller must store their offset.

    The offset keeps a clock set back from making all reads stale.
    """
    offset, greatest = connection.execute(
        "SELECT sequence_offset, greatest_sequence FROM mirror_state"
    ).fetchone()
    monotonic = time.monotonic_ns()
    new = not offset or monotonic + offset <= greatest
    if new:
        offset = max(time.time_ns(), greatest + 1) - monotonic
    return SequenceNumbers(offset, greatest), new


def _each_object_once(
    reads: Sequence[WalletRead | TokenRead],
) -> Iterator[list[WalletRead | TokenRead]]:
    """Split reads so that no part has two reads of the same object."""
    part: dict[tuple[type, str], WalletRead | TokenRead] = {}
    for read in reads:
        key = type(read), read.wallet_id if isinstance(read, WalletRead) else read.token_id
        if key in part:
            yield list(part.values())
            part = {}
        part[key] = read
    if part:
        yield list(part.values())
