"""The second step of a run: what was read becomes a bucket's rows, and its changes are logged.

It asks nobody: from the version that the run begins at, the reads that were handed over and the
verdict on removals, it works out the same rows however often it is made.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from nftsync.lake.bucket import BALANCES, mirror_of
from nftsync.lake.order import Order, Report, hand_over, report_of
from nftsync.lake.reading import plan_of, reads_of
from nftsync.lake.rows import TABLES, bucket_of, from_mirror
from nftsync.pull.brake import RemovalBrake
from nftsync.records import Applied, WalletRead
from nftsync.store import removals
from nftsync.store.database import over_keys
from nftsync.store.mirror import Mirror
from nftsync.store.runs import Counts
from nftsync.store.wallets import register

__all__ = ["ApplyReport", "Seen", "apply_bucket"]

#: Tokens that are handed over together.
_TOKENS_AT_ONCE = 50
#: A row of `tokens`, and the greatest number of a read of this run that showed it.
Seen: TypeAlias = tuple[tuple[Any, ...], int]

_pack = msgspec.msgpack.encode
_TOKENS = TABLES["tokens"]
_VOUCHED = (
    "SELECT t.token_id, max(w.ticket) FROM json_each(?) k"
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
_CHANGED = "SELECT token_id, changed_ticket FROM tokens WHERE changed_ticket > ?"


class ApplyReport(Report, kw_only=True):
    """What applying a bucket's reads came to.

    Attributes:
        counts: of balances.
        changed: wallets that were read well and in which something changed.
        held: wallets of which something is held back.
    """

    counts: Counts = msgspec.field(default_factory=Counts)
    changed: int = 0
    held: list[str] = msgspec.field(default_factory=list)


class _Tally:
    """What became of reads; they themselves are not kept.

    Attributes:
        counts: of balances and tokens.
        changed: wallets that were read well and in which something changed.
        held: wallets of which something is held back.
        whole: wallets that vouch for all their tokens, as their lists were read whole.
        in_part: tokens that other lists showed, with the number of the newest of those reads.
    """

    def __init__(self) -> None:
        self.counts = Counts()
        self.changed: set[str] = set()
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
                self.changed.add(read.wallet_id)
            if applied.result == "ok":
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
    greatest = order.greatest_ticket
    with mirror_of(lake, order.start, bucket, BALANCES, greatest_ticket=greatest) as mirror:
        connection = mirror.connection
        before = _removals(connection)
        (states,) = connection.execute("SELECT max(state_id) FROM wallet_state_rows").fetchone()
        tally = _apply(order, bucket, mirror)
        _renumber(connection, states or 0, order.first_state[bucket], order.first_change[bucket])

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
        held, changed = sorted(tally.held), len(tally.changed)
        report = ApplyReport(counts=counts, changed=changed, held=held)
        shown = _shown(connection, tally, order)
        return hand_over(lake, commit, shown, report)


def _apply(order: Order, bucket: int, mirror: Mirror) -> _Tally:
    tally = _Tally()
    run_id, at = order.run_id, order.applied_at
    plan = plan_of(order, bucket)
    if plan:
        with mirror.transaction(at) as transaction:
            register(transaction.connection, plan, at)
    with ExitStack() as held:
        brake = None
        if order.limits is not None:
            brake = held.enter_context(closing(RemovalBrake(order.limits)))
        for reads in reads_of(order, bucket):
            with mirror.transaction(at) as transaction:
                if brake is None:
                    tally.add(transaction.apply(reads, run_id=run_id))
                else:
                    tally.add(brake.apply(transaction, run_id, reads))
        if brake is not None:
            brake.verdict = order.verdict
        while brake:
            with mirror.transaction(at) as transaction:
                tally.add(brake.release(transaction, run_id, _ENTRIES))
    with mirror.transaction(at) as transaction:
        if order.limits is None:
            removals.begin_anew(transaction.connection)
        else:
            removals.forget_old(transaction.connection, at)
    return tally


#: List entries that are applied together of what waited.
_ENTRIES = 5_000


def _removals(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return connection.execute(f"{TABLES['removals'].select} ORDER BY 1, 2").fetchall()


def _renumber(
    connection: sqlite3.Connection, states: int, first_state: int, first_change: int
) -> None:
    """Give changes and new states numbers that no other bucket gives."""
    # By way of negative ones, so that no number is there twice at any time.
    statements = [
        (f"UPDATE {table} SET {column} = -({column} + ?) WHERE {column} > ?", by, least)  # noqa: S608 - our own names
        for table, column, by, least in (
            ("balance_change_rows", "change_id", first_change - 1, 0),
            ("wallet_state_rows", "state_id", first_state - 1 - states, states),
            ("wallets", "state_id", first_state - 1 - states, states),
        )
    ]
    for statement, by, least in statements:
        connection.execute(statement, (by, least))
        table, column = statement.split()[1], statement.split()[3]
        connection.execute(f"UPDATE {table} SET {column} = -{column} WHERE {column} < 0")  # noqa: S608 - our own names


def _shown(
    connection: sqlite3.Connection, tally: _Tally, order: Order
) -> Iterator[tuple[int, int, bytes]]:
    """The tokens that reads showed, by their buckets, a few at a time."""
    tickets = dict(over_keys(connection, _VOUCHED, tally.whole))
    changed = connection.execute(_CHANGED, (order.greatest_ticket,))
    for token_id, ticket in (*tally.in_part.items(), *changed):
        tickets[token_id] = max(ticket, tickets.get(token_id, 0))
    connection.create_function("bucket_of", 1, lambda key: bucket_of(key, order.buckets))
    rows = over_keys(connection, _SEEN, tickets)
    seen: list[Seen] = []
    last = 0
    for *row, target in rows:
        if seen and (target != last or len(seen) == _TOKENS_AT_ONCE):
            yield last, 0, _pack(seen)
            seen = []
        seen.append((tuple(row), tickets[row[0]]))
        last = target
    if seen:
        yield last, 0, _pack(seen)
