"""A bucket's mirror in a run.

At first, the mirror lacks balances. Before reads that may change a wallet are applied, it gets
the wallet's balances, and all balances of the tokens that they list.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from nftsync.lake.rows import TABLES, chosen, from_mirror, rows_of, schema_of, to_mirror
from nftsync.lake.tally import Tally
from nftsync.pull.guard import RemovalLimits
from nftsync.pull.reads import Reader
from nftsync.pull.run import Sync
from nftsync.pull.waiting_reads import WaitingReads
from nftsync.records import Applied, OnRemovals, Read, Removals, WalletRead
from nftsync.store.database import over_keys
from nftsync.store.day_report import DAY
from nftsync.store.runs import Run
from nftsync.times import now, shifted

if TYPE_CHECKING:
    from nftsync.lake.run_spec import RunSpec
    from nftsync.lake.storage import DataFile
    from nftsync.store.mirror import Mirror, Transaction

_MISSING = "SELECT value FROM json_each(?) WHERE value NOT IN (SELECT token_id FROM tokens)"
#: Of a read whose removals are not known yet.
_UNKNOWN = Removals("", None, {}, {}, [], {})
#: Columns with the time of a change.
_TIMES = {"held_since", "first_seen_at", "updated_at", "observed_at"}


class Bucket:
    """Rows of a bucket in a mirror, and the data files that a run writes from it."""

    def __init__(self, spec: RunSpec, number: int, owners: Iterable[str] = ()) -> None:
        self.spec = spec
        self.number = number
        self._tokens: set[str] = set()
        self.owners = set(owners)

    @property
    def is_new(self) -> bool:
        """Whether the lake has no balances so far."""
        return not self.spec.start.get("balances")

    def fill(self, connection: sqlite3.Connection) -> None:
        """Load the rows that every run needs."""
        spec = self.spec
        for name in ("wallets", "present_states"):
            to_mirror(connection, name, self._rows(name))
        removals = list(self._rows("removals"))
        self._load_tokens(connection, _ids(removals))
        to_mirror(connection, "removals", removals)
        # Rows of no wallet: new numbers and times then follow all earlier ones.
        connection.execute(
            "INSERT INTO balance_change_rows"
            " (change_id, wallet_no, token_no, observed_at, baseline) VALUES (?, 0, 0, ?, 0)",
            (spec.greatest_change + 1, spec.not_before),
        )
        connection.execute(
            "INSERT INTO wallet_state_rows VALUES (?, 0, '', '', 0, '', NULL, ?)",
            (spec.greatest_state + 1, spec.not_before),
        )
        connection.execute(
            "UPDATE mirror_state SET greatest_sequence = ?", (spec.greatest_sequence,)
        )

    def load(self, mirror: Mirror, wallets: set[str], tokens: set[str]) -> None:
        """Load balances of wallets and tokens, and the wallets' changes of the last day."""
        wallets, tokens = wallets - self.owners, tokens - self._tokens
        if not self.is_new and (wallets or tokens):
            earlier = pa.array(self.owners, pa.string()), pa.array(self._tokens, pa.string())
            own, listed = pa.array(wallets, pa.string()), pa.array(tokens, pa.string())
            balances = []
            for batch in self._rows("balances"):
                wanted, loaded = (
                    pc.or_(
                        pc.is_in(batch.column("wallet_id"), value_set=of_wallets),
                        pc.is_in(batch.column("token_id"), value_set=of_tokens),
                    )
                    for of_wallets, of_tokens in ((own, listed), earlier)
                )
                balances.append(batch.filter(pc.and_not(wanted, loaded)))
            since = max(shifted(now(), -DAY), self.spec.approved_at)
            recent = self._rows("balance_changes", f"observed_at > '{since}' AND baseline = 0")
            changes = [chosen(batch, "wallet_id", own) for batch in recent]
            with mirror.transaction() as transaction:
                connection = transaction.connection
                self._load_tokens(connection, tokens | _ids(balances) | _ids(changes))
                to_mirror(connection, "balances", balances)
                to_mirror(connection, "balance_changes", changes)
        self.owners |= wallets
        self._tokens |= tokens

    def _load_tokens(self, connection: sqlite3.Connection, ids: set[str]) -> None:
        if missing := [row[0] for row in over_keys(connection, _MISSING, ids)]:
            some = pa.array(missing, pa.string())
            rows = (chosen(batch, "token_id", some) for batch in self._rows("known_tokens"))
            to_mirror(connection, "known_tokens", rows)

    def _rows(self, name: str, where: str = "true") -> Iterator[pa.RecordBatch]:
        return self.spec.lake.stored(name, self.spec.start, where, buckets=[self.number])

    def removals_changed(self, connection: sqlite3.Connection) -> bool:
        """Tell whether the mirror has other removals than the lake."""
        names = schema_of("removals").names[1:]
        before = {row for batch in self._rows("removals") for row in rows_of(batch, names)}
        return before != set(connection.execute(TABLES["removals"].select))

    # Writes --------------------------------------------------------------------------------------

    def write(self, connection: sqlite3.Connection, names: Sequence[str]) -> list[DataFile]:
        """Write tables into data files."""
        write, number = self.spec.lake.write_file, self.number
        return [write(name, number, self._new_rows(connection, name)) for name in names]

    def _new_rows(self, connection: sqlite3.Connection, name: str) -> Iterator[pa.RecordBatch]:
        """Yield a table's rows after the run; of a log, only the new rows."""
        rows = self.settled(from_mirror(connection, name, self.number))
        if name == "balances":
            owners = pa.array(self.owners, pa.string())
            others = (chosen(x, "wallet_id", owners, others=True) for x in self._rows(name))
            return chain(others, (chosen(batch, "wallet_id", owners) for batch in rows))
        if name == "known_tokens":
            ids = [row[0] for row in connection.execute("SELECT token_id FROM tokens")]
            some = pa.array(ids, pa.string())
            return chain((chosen(x, "token_id", some, others=True) for x in self._rows(name)), rows)
        if name == "balance_changes":
            first = self.spec.first_change[self.number]
            return (
                batch.filter(pc.greater_equal(batch.column("change_id"), first)) for batch in rows
            )
        return rows

    def settled(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give changes the run's time, and this bucket's numbers."""
        spec = self.spec
        numbers = {
            "change_id": (spec.greatest_change + 1, spec.first_change[self.number]),
            "state_id": (spec.greatest_state + 1, spec.first_state[self.number]),
        }
        at = spec.provisional_at
        for batch in batches:
            columns = []
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if name in _TIMES:
                    column = pc.if_else(pc.equal(column, at), spec.applied_at, column)
                elif name in numbers:
                    last, first = numbers[name]
                    own = pc.add(column, first - 1 - last)
                    column = pc.if_else(pc.greater(column, last), own, column)
                columns.append(column)
            yield pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _ids(batches: Iterable[pa.RecordBatch]) -> set[str]:
    return {token for batch in batches for token in batch.column("token_id").to_pylist()}


class _LoadingReads(WaitingReads):
    """Reads that wait until the mirror has the rows that they may change."""

    def __init__(self, bucket: Bucket, mirror: Mirror) -> None:
        super().__init__(RemovalLimits())
        self._bucket = bucket
        self._mirror = mirror
        self._wallets: set[str] = set()
        self._listed: set[str] = set()

    def add(self, read: Read, removals: Removals) -> None:
        """See `WaitingReads`."""
        super().add(read, removals)
        if isinstance(read, WalletRead):
            self._wallets.add(read.wallet_id)
            self._listed.update(entry[0] for entry in read.entries)

    def decide(self, connection: sqlite3.Connection) -> None:
        """Load the rows that the waiting reads may change."""
        del connection
        self._bucket.load(self._mirror, self._wallets, self._listed)
        self._wallets, self._listed = set(), set()


class BucketSync(Sync):
    """Policy of a bucket's sync: changing reads wait until the mirror has the rows that they need.

    Then only reads with removals wait, for the driver.

    Attributes:
        removing: the reads with removals.
    """

    def __init__(
        self, bucket: Bucket, mirror: Mirror, reader: Reader, run: Run, stopped: threading.Event
    ) -> None:
        super().__init__(mirror, reader, run, _LoadingReads(bucket, mirror), [stopped], False)
        self.tally = Tally()
        self.removing = WaitingReads(bucket.spec.limits)
        self._bucket = bucket

    def apply(
        self, transaction: Transaction, reads: Sequence[Read], removals: OnRemovals
    ) -> list[Applied]:
        """See `Policy`."""
        ready, changing = [], []
        for read in reads:
            if removals == "apply" or read.outcome in {"unchanged", "failed"}:
                ready.append(read)
            elif self._bucket.is_new and isinstance(read, WalletRead):
                self._bucket.owners.add(read.wallet_id)
                ready.append(read)
            else:
                changing.append(Applied(read, "staged", removals=_UNKNOWN))
        applied = super().apply(
            transaction, ready, "apply" if self.removing.limits is None else "stage"
        )
        self.tally.add(applied)
        for one in applied:
            if one.removals is not None and one.result == "staged":
                self.removing.add(one.read, one.removals)
        return [*(one._replace(removals=None) for one in applied), *changing]

    def close(self) -> None:
        """Drop all reads that wait."""
        self._waiting.close()
        self.removing.close()
