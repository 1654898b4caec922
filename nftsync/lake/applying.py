"""Step 2 of a run: reads become a bucket's rows and logged changes.

It asks nobody: from the version that the run begins at, the reads that were handed over and the
decision on removals, it works out the same rows however often it is made.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from nftsync.lake.order import Order, Report, hand_over, report_of
from nftsync.lake.past import last_numbers
from nftsync.lake.reading import mirror_to_read, plan_of, reads_of
from nftsync.lake.rows import TABLES, bucket_of, from_mirror
from nftsync.pull.removal_guard import RemovalGuard
from nftsync.records import Applied, WalletRead
from nftsync.store import removals
from nftsync.store.database import over_keys
from nftsync.store.mirror import Mirror
from nftsync.store.runs import Counts
from nftsync.store.wallets import forget_answers, register

#: Tokens that are handed over together.
_TOKENS_AT_ONCE = 50
#: A row of `tokens`, and the greatest number of a read of this run that showed it.
Seen: TypeAlias = tuple[tuple[Any, ...], int]

_pack = msgspec.msgpack.encode
_TOKENS = TABLES["tokens"]
_VOUCHED = (
    "SELECT t.token_id, max(w.sequence) FROM json_each(?) k"
    " JOIN wallets w ON w.wallet_id = k.value JOIN balance_rows b USING (wallet_no)"
    " JOIN tokens t USING (token_no) GROUP BY t.token_no"
)
_SEEN = (
    _TOKENS.select.replace(
        " FROM tokens t",
        ", bucket_of(t.token_id) AS target FROM json_each(?) k"
        " JOIN tokens t ON t.token_id = k.value",
    )
    + " ORDER BY target"
)
_CHANGED = "SELECT token_id, changed_sequence FROM tokens WHERE changed_sequence > ?"


class ApplyReport(Report, kw_only=True):
    """What applying a bucket's reads came to.

    Attributes:
        counts: of balances.
        changed: wallets that were read well and whose balances changed.
        showed: the reads of other wallets that showed this bucket a changed token first: the
            bucket, and the sequence number of the read.
        held: wallets with removals held for review.
    """

    counts: Counts = msgspec.field(default_factory=Counts)
    changed: int = 0
    showed: list[tuple[int, int]] = msgspec.field(default_factory=list)
    held: list[str] = msgspec.field(default_factory=list)


class _Tally:
    """What became of reads; they themselves are not kept.

    Attributes:
        counts: of balances and tokens.
        changed: wallets that were read well and whose balances changed.
        showed: the sequence number by which others showed a changed token, by wallet.
        held: wallets with removals held for review.
        whole: wallets that vouch for all their tokens, as their lists were read whole.
        in_part: tokens that other lists showed, with the number of the newest of those reads.
    """

    def __init__(self, *, approval: bool) -> None:
        """Begin; the reads of an approval vouch only for what they change."""
        self._approval = approval
        self.counts = Counts()
        self.changed: set[str] = set()
        self.showed: dict[str, int] = {}
        self.held: set[str] = set()
        self.whole: set[str] = set()
        self.in_part: dict[str, int] = {}

    def add(self, all_applied: Iterable[Applied]) -> None:
        for applied in all_applied:
            read = applied.read
            if not isinstance(read, WalletRead) or applied.result in {"stale", "staged", "failed"}:
                continue
            self.counts = self.counts.with_applied([applied])
            if applied.result == "held":
                self.held.add(read.wallet_id)
            if applied.result == "ok" and not applied.changed_nothing:
                if applied._replace(tokens_changed=0).changed_nothing:
                    self.showed[read.wallet_id] = read.sequence
                else:
                    self.changed.add(read.wallet_id)
            if applied.result == "ok" and not self._approval:
                self.whole.add(read.wallet_id)
            elif applied.result != "unchanged":
                self._add_entries(read, held=applied.result == "held")

    def _add_entries(self, read: WalletRead, *, held: bool) -> None:
        """Note the tokens that a list showed in part: it says nothing of the wallet's others."""
        for token_id, _, content in read.entries:
            if content is not None and (not held or removals.has_metadata(content)):
                known = self.in_part.get(token_id, 0)
                self.in_part[token_id] = max(known, read.sequence)


def apply_bucket(order: Order, bucket: int) -> ApplyReport:
    """Apply a bucket's reads, unless that has been done, and hand over the tokens they showed.

    Raises:
        Overtaken: another run's worker has written the bucket.
        StoreError: the lake cannot be read or written.
    """
    lake, commit = order.lake, order.commit("apply", bucket)
    if (done := report_of(lake, commit, ApplyReport)) is not None:
        return done
    with mirror_to_read(order, bucket, order.applied_at) as mirror:
        connection = mirror.connection
        before = _removals(connection)
        changes, states = last_numbers(connection)
        tally = _apply(order, bucket, mirror)
        connection.execute("DELETE FROM balance_change_rows WHERE change_id <= ?", (changes,))
        _renumber(
            connection,
            ("balance_change_rows", "change_id", order.first_change[bucket], changes),
            ("wallet_state_rows", "state_id", order.first_state[bucket], states),
            ("wallets", "state_id", order.first_state[bucket], states),
        )

        def rows(name: str) -> Iterator[pa.RecordBatch]:
            return from_mirror(connection, name, bucket)

        counts = tally.counts
        lake.replace("wallets", rows("wallets"), commit)
        lake.replace("present_states", rows("present_states"), commit)
        if counts.balances_added or counts.balances_changed or counts.balances_removed:
            lake.replace("balances", rows("balances"), commit)
            lake.append("balance_changes", rows("balance_changes"), commit)
        if counts.tokens_added or counts.tokens_changed or counts.balances_removed:
            lake.replace("known_tokens", rows("known_tokens"), commit)
        if _removals(connection) != before:
            lake.replace("removals", rows("removals"), commit)
        if past := list(rows("past_states")):
            lake.append("past_states", past, commit)
        report = ApplyReport(
            counts=counts,
            changed=len(tally.changed),
            showed=[(bucket, x) for who, x in tally.showed.items() if who not in tally.changed],
            held=sorted(tally.held),
        )
        shown = _shown(connection, tally, order)
        return hand_over(lake, commit, shown, report)


def _apply(order: Order, bucket: int, mirror: Mirror) -> _Tally:
    tally = _Tally(approval=order.approval)
    run_id, at = order.run_id, order.applied_at
    plan = plan_of(order, bucket)
    if plan:
        with mirror.transaction(at) as transaction:
            register(transaction.connection, plan, at)
    with closing(RemovalGuard(order.limits)) as guard:
        for reads in reads_of(order, bucket):
            with mirror.transaction(at) as transaction:
                tally.add(guard.apply(transaction, run_id, reads))
                if order.approval:  # nobody has compared an answer with this
                    wallets = [x.wallet_id for x in reads if isinstance(x, WalletRead)]
                    forget_answers(transaction.connection, wallets)
        guard.decision = order.decision
        while guard:
            with mirror.transaction(at) as transaction:
                tally.add(guard.release(transaction, run_id, _ENTRIES))
    return tally


#: List entries that are applied together of what waited.
_ENTRIES = 5_000


def _removals(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return connection.execute(f"{TABLES['removals'].select} ORDER BY 1, 2").fetchall()


def _renumber(connection: sqlite3.Connection, *numbered: tuple[str, str, int, int]) -> None:
    """Give rows numbers that no other bucket gives.

    Args:
        connection: the bucket's.
        numbered: table, column, the first number to give, and the greatest that stays as it is.
    """
    for table, column, first, stays in numbered:
        # By way of negative ones, so that no number is there twice at any time.
        connection.execute(
            f"UPDATE {table} SET {column} = -({column} + ?) WHERE {column} > ?",
            (first - 1 - stays, stays),
        )
        connection.execute(f"UPDATE {table} SET {column} = -{column} WHERE {column} < 0")


def _shown(
    connection: sqlite3.Connection, tally: _Tally, order: Order
) -> Iterator[tuple[int, int, bytes]]:
    """The tokens that reads showed, by their buckets, a few at a time."""
    sequences = dict(over_keys(connection, _VOUCHED, tally.whole))
    changed = connection.execute(_CHANGED, (order.greatest_sequence,))
    for token_id, sequence in (*tally.in_part.items(), *changed):
        sequences[token_id] = max(sequence, sequences.get(token_id, 0))
    connection.create_function("bucket_of", 1, lambda key: bucket_of(key, order.buckets))
    rows = over_keys(connection, _SEEN, sequences)
    seen: list[Seen] = []
    last = 0
    for *row, target in rows:
        if seen and (target != last or len(seen) == _TOKENS_AT_ONCE):
            yield last, 0, _pack(seen)
            seen = []
        seen.append((tuple(row), sequences[row[0]]))
        last = target
    if seen:
        yield last, 0, _pack(seen)
