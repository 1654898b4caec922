"""Second step of a run: apply staged reads to a bucket's rows, and add to the change feed.

The step depends only on the run's base versions, the staged reads and the decision on removals. So
a repeat writes the same rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, TypeAlias

import msgspec

from nftsync.lake.past import last_numbers
from nftsync.lake.reading import mirror_to_read, plan_of, reads_of
from nftsync.lake.rows import TABLES, bucket_of, from_mirror
from nftsync.lake.run_spec import RunSpec, StepReport, hand_over, report_of
from nftsync.pull.removal_guard import RemovalGuard
from nftsync.records import Applied, WalletRead
from nftsync.store import removals
from nftsync.store.database import over_keys
from nftsync.store.mirror import Mirror
from nftsync.store.runs import Counts
from nftsync.store.wallets import forget_answers, register

#: Tokens per staged row.
_TOKENS_AT_ONCE = 50
#: A row of `tokens`, and the greatest sequence number of a read in this run that showed it.
Seen: TypeAlias = tuple[tuple[Any, ...], int]

_pack = msgspec.msgpack.encode
_TOKENS = TABLES["tokens"]
_CONFIRMED = (
    "SELECT t.token_id, max(w.sequence) FROM json_each(?) k"
    " JOIN wallets w ON w.wallet_id = k.value JOIN balance_rows b USING (wallet_no)"
    " JOIN tokens t USING (token_no) GROUP BY t.token_no"
)
_SHOWN_ROWS = (
    _TOKENS.select.replace(
        " FROM tokens t",
        ", bucket_of(t.token_id) AS target FROM json_each(?) k"
        " JOIN tokens t ON t.token_id = k.value",
    )
    + " ORDER BY target"
)
_CHANGED = "SELECT token_id, changed_sequence FROM tokens WHERE changed_sequence > ?"


class ApplyReport(StepReport, kw_only=True):
    """Result of applying a bucket's reads.

    Attributes:
        counts: counts of balances.
        changed: the number of successfully read wallets whose balances changed.
        showed: bucket and sequence number of the reads that changed only tokens.
        held_wallets: wallets with removals held for review.
    """

    counts: Counts = msgspec.field(default_factory=Counts)
    changed: int = 0
    showed: list[tuple[int, int]] = msgspec.field(default_factory=list)
    held_wallets: list[str] = msgspec.field(default_factory=list, name="held")


class _Tally:
    """Results of applied reads.

    Attributes:
        changed: successfully read wallets whose balances changed.
        showed: sequence numbers of the reads that changed only tokens, by wallet.
        held: wallets with removals held for review.
        complete: wallets with complete lists, which confirm all their tokens.
        partial: the newest sequence number of the incomplete lists, by token that they showed.
    """

    def __init__(self, *, approval: bool) -> None:
        self._approval = approval
        self.counts = Counts()
        self.changed: set[str] = set()
        self.showed: dict[str, int] = {}
        self.held: set[str] = set()
        self.complete: set[str] = set()
        self.partial: dict[str, int] = {}

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
                self.complete.add(read.wallet_id)
            elif applied.result != "unchanged":
                self._add_entries(read, removals_held=applied.result == "held")

    def _add_entries(self, read: WalletRead, *, removals_held: bool) -> None:
        """Record the tokens of a partial list."""
        for token_id, _, content in read.entries:
            if content is not None and (not removals_held or removals.has_metadata(content)):
                newest = self.partial.get(token_id, 0)
                self.partial[token_id] = max(newest, read.sequence)


def apply_bucket(spec: RunSpec, bucket: int) -> ApplyReport:
    """Apply a bucket's reads unless that is done, and stage the tokens that they showed."""
    lake, commit = spec.lake, spec.commit("apply", bucket)
    if (done := report_of(lake, commit, ApplyReport)) is not None:
        return done
    with mirror_to_read(spec, bucket, spec.applied_at) as mirror:
        connection = mirror.connection
        before = _removals(connection)
        changes, states = last_numbers(connection)
        tally = _apply(spec, bucket, mirror)
        connection.execute("DELETE FROM balance_change_rows WHERE change_id <= ?", (changes,))
        renumber(connection, "balance_change_rows", "change_id", spec.first_change[bucket], changes)
        for table in ("wallet_state_rows", "wallets"):
            renumber(connection, table, "state_id", spec.first_state[bucket], states)
        rows = partial(from_mirror, connection, bucket=bucket)
        counts = tally.counts
        changed = ["wallets", "present_states"]
        if counts.balances_added or counts.balances_changed or counts.balances_removed:
            changed.append("balances")
            lake.append("balance_changes", rows("balance_changes"), commit)
        if counts.tokens_added or counts.tokens_changed or counts.balances_removed:
            changed.append("known_tokens")
        if _removals(connection) != before:
            changed.append("removals")
        for name in changed:
            lake.replace(name, rows(name), commit)
        if past := list(rows("past_states")):
            lake.append("past_states", past, commit)
        report = ApplyReport(
            counts=counts,
            changed=len(tally.changed),
            showed=[(bucket, x) for w, x in tally.showed.items() if w not in tally.changed],
            held_wallets=sorted(tally.held),
        )
        shown = _shown(connection, tally, spec)
        return hand_over(lake, commit, shown, report)


def _apply(spec: RunSpec, bucket: int, mirror: Mirror) -> _Tally:
    tally = _Tally(approval=spec.approval)
    run_id, at = spec.run_id, spec.applied_at
    plan = plan_of(spec, bucket)
    if plan:
        with mirror.transaction(at) as transaction:
            register(transaction.connection, plan, at)
    with closing(RemovalGuard(spec.limits)) as guard:
        for reads in reads_of(spec, bucket):
            with mirror.transaction(at) as transaction:
                tally.add(guard.apply(transaction, run_id, reads))
                if spec.approval:  # stored digests belong to the rows before the approval
                    wallets = [x.wallet_id for x in reads if isinstance(x, WalletRead)]
                    forget_answers(transaction.connection, wallets)
        guard.decision = spec.decision
        while guard:
            with mirror.transaction(at) as transaction:
                tally.add(guard.release(transaction, run_id, _ENTRIES))
    return tally


#: List entries per transaction when the removal guard releases reads.
_ENTRIES = 5_000


def _removals(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return connection.execute(f"{TABLES['removals'].select} ORDER BY 1, 2").fetchall()


def renumber(
    connection: sqlite3.Connection, table: str, column: str, first: int, last_old: int
) -> None:
    """Replace numbers above `last_old` by this bucket's own, from `first` on."""
    # Negative numbers first, so that no number is used twice.
    connection.execute(
        f"UPDATE {table} SET {column} = -({column} + ?) WHERE {column} > ?",
        (first - 1 - last_old, last_old),
    )
    connection.execute(f"UPDATE {table} SET {column} = -{column} WHERE {column} < 0")


def _shown(
    connection: sqlite3.Connection, tally: _Tally, spec: RunSpec
) -> Iterator[tuple[int, int, bytes]]:
    """Yield the shown tokens by their buckets, a few at a time."""
    sequences = dict(over_keys(connection, _CONFIRMED, tally.complete))
    changed = connection.execute(_CHANGED, (spec.greatest_sequence,))
    for token_id, sequence in (*tally.partial.items(), *changed):
        sequences[token_id] = max(sequence, sequences.get(token_id, 0))
    connection.create_function("bucket_of", 1, lambda key: bucket_of(key, spec.buckets))
    by_target = groupby(over_keys(connection, _SHOWN_ROWS, sequences), itemgetter(-1))
    for target, rows in by_target:
        tokens = ((tuple(row[:-1]), sequences[row[0]]) for row in rows)
        while some := list(islice(tokens, _TOKENS_AT_ONCE)):
            yield target, 0, _pack(some)
