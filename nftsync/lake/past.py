"""The removal guard's view of a lake."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.storage import Lake
from nftsync.pull.guard import is_held
from nftsync.records import CONTENT_COLUMNS, METADATA, Removals
from nftsync.store.database import over_keys
from nftsync.store.history import DAY, Change, FirstRead, Part, Rename, changes_since
from nftsync.times import now, shifted

_METADATA = set(CONTENT_COLUMNS[METADATA])


class GuardInput(msgspec.Struct, kw_only=True):
    """A bucket's report to the removal guard.

    Attributes:
        waiting: the removals that reads showed.
        changes: other changes of this run.
        first_reads: holdings that first reads showed.
        last_reads: the time of the previous read of each wallet with changes or removals.
    """

    waiting: list[Removals] = []
    changes: list[Change] = []
    first_reads: list[Change] = []
    last_reads: dict[str, str | None] = {}


def guard_input(
    connection: sqlite3.Connection,
    last: tuple[int, int],
    waiting: list[Removals],
    *,
    first_run: bool,
) -> GuardInput:
    """Return a bucket's report after its reads.

    `last` has the last change number and state number before this run; `waiting` has the removals
    of the reads. A first run has nothing to compare with.
    """
    if first_run:
        return GuardInput(waiting=waiting)
    changes = changes_since(connection, last[0] + 1)
    wallets = {change.wallet for change in changes} | {read.wallet_id for read in waiting}
    last_reads = over_keys(
        connection,
        "SELECT wallet_id, max(last_read_at) FROM json_each(?1) JOIN wallets ON wallet_id = value"
        " JOIN wallet_state_rows USING (wallet_no) WHERE wallet_state_rows.state_id <= ?2"
        " GROUP BY wallet_id",
        wallets,
        last[1],
    )
    return GuardInput(
        waiting=waiting,
        changes=[change._replace(at="") for change in changes],
        first_reads=changes_since(connection, last[0] + 1, baseline=True),
        last_reads=dict(last_reads),
    )


def _counted(column: pa.Array) -> Iterator[tuple[str, int]]:
    counts = pc.value_counts(column)
    yield from zip(*(counts.field(x).to_pylist() for x in ("values", "counts")), strict=True)


class LakeHistory:
    """A lake's changes of the last 24 hours, and all pending removals."""

    def __init__(
        self,
        lake: Lake,
        run: LakeRun,
        buckets: Iterable[GuardInput],
        runs: dict[int, str],
        groups: Mapping[str, str],
    ) -> None:
        """Combine the buckets' reports; other rows are read when needed.

        `runs` has the start time of each run, and `groups` the groups that this run sets.
        """
        self._lake = lake
        self._run = run
        self.at = now()
        self._since = max(shifted(self.at, -DAY), run.approved_at)
        self._runs = runs
        self._set_groups = groups
        self._last_reads: dict[str, str | None] = {}
        self._new: list[Change] = []
        self._new_first_reads: list[Change] = []
        self.waiting: list[Removals] = []
        for report in buckets:
            self._new += report.changes
            self._new_first_reads += report.first_reads
            self._last_reads |= report.last_reads
            self.waiting += report.waiting
        self._changes: list[Change] | None = None

    def _rows(self, name: str, where: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        return self._lake.rows(name, self._run.start, where, columns)

    @property
    def _recent(self) -> str:
        return f"observed_at > '{self._since}'"

    def count_losses(self) -> tuple[int, int]:
        """Count all changes, which include the losses, and their wallets."""
        changes = self.changes()
        return len(changes), len({change.wallet for change in changes})

    def changes(self) -> list[Change]:
        """Return all changes except first reads, oldest first."""
        if self._changes is None:
            columns = "change_id", "wallet_id", "token_id", "old_amount", "new_amount"
            rows = self._rows(
                "balance_changes", f"{self._recent} AND baseline = 0", *columns, "observed_at"
            )
            self._changes = [
                Change(wallet, self._groups.get(wallet), token, *amounts)
                for _, wallet, token, *amounts in sorted(rows)
            ]
            self._changes += self._new
        return self._changes

    def first_reads(self, tokens: Collection[str]) -> Iterator[FirstRead]:
        """Yield holdings of tokens from first reads, except in the lake's first run."""
        first = min(self._runs, default=0)
        columns = "wallet_id", "token_id", "new_amount", "run_id"
        for wallet, token, amount, run in self._rows(
            "balance_changes", f"{self._recent} AND baseline = 1 AND run_id > {first}", *columns
        ):
            if run in self._runs and token in tokens:
                yield FirstRead(wallet, token, amount, self._runs[run])
        for new in self._new_first_reads:
            if new.after is not None and new.token in tokens:
                yield FirstRead(new.wallet, new.token, new.after, self._run.started_at)

    def last_read(self, wallet: str, at: str) -> str | None:
        """Return the time of a wallet's previous read; None (unknown) for stored changes."""
        return None if at else self._last_reads.get(wallet)

    def new_wallets(self) -> Collection[str]:
        """Return wallets whose first read showed at least one balance."""
        return self._new_wallets.keys()

    def count_balances(self, more: Counter[Part]) -> Counter[Part]:
        """Count the balances of each part; new wallets have their first read's."""
        counts = Counter({Part(x, is_new=False): count for x, count in self._listed.items()})
        for part, count in more.items():
            counts[Part(part.group, is_new=False)] += count
        for group, count in self._new_wallets.values():
            counts[Part(group, is_new=False)] -= count
            counts[Part(group, is_new=True)] += count
        return counts

    @cached_property
    def _groups(self) -> dict[str, str | None]:
        rows = self._rows("wallets", "true", "wallet_id", "wallet_group")
        return {wallet: self._set_groups.get(wallet, group) for wallet, group in rows}

    @cached_property
    def _listed(self) -> Counter[str | None]:
        """The number of holdings of tracked wallets by group, with this run's changes."""
        untracked = {row[0] for row in self._rows("wallets", "tracked = 0", "wallet_id")}
        listed: Counter[str | None] = Counter()
        start, is_listed = self._run.start, "held_since IS NOT NULL"
        for batch in self._lake.stored("balances", start, is_listed, ["wallet_id"]):
            for wallet, count in _counted(batch.column("wallet_id")):
                if wallet not in untracked:
                    listed[self._groups.get(wallet)] += count
        for change in (*self._new, *self._new_first_reads):
            if change.wallet not in untracked:
                listed[change.group] += is_held(change.after) - is_held(change.before)
        return listed

    @cached_property
    def _new_wallets(self) -> dict[str, tuple[str | None, int]]:
        first_reads = [
            (wallet, self._groups.get(wallet), amount)
            for wallet, amount in self._rows(
                "balance_changes", f"{self._recent} AND baseline = 1", "wallet_id", "new_amount"
            )
        ]
        first_reads += [(x.wallet, x.group, x.after) for x in self._new_first_reads]
        wallets: dict[str, tuple[str | None, int]] = {}
        for wallet, group, amount in first_reads:
            _, count = wallets.get(wallet, (group, 0))
            wallets[wallet] = group, count + is_held(amount)
        return wallets

    def emptied(self) -> set[str]:
        """Return the tokens whose metadata became empty."""
        before: dict[str, dict[str, Any]] = {}
        after: dict[str, dict[str, Any]] = {}
        rows = self._rows("token_changes", self._recent, "change_id", "token_id", "before", "after")
        for _, token, old, new in sorted(rows):
            old, new = msgspec.json.decode(old), msgspec.json.decode(new)
            before[token] = old | before.get(token, {})
            after[token] = after.get(token, {}) | new
        return {
            token
            for token, columns in before.items()
            if any(columns[name] is not None for name in _METADATA & columns.keys())
            and all(after[token][name] is None for name in _METADATA & columns.keys())
        }

    def renames(self, waiting: Mapping[str, tuple[str | None, str, str]]) -> Iterator[Rename]:
        """Return pending renames; earlier renames lack the contract."""
        return (Rename(token, *names) for token, names in waiting.items())

    def tokens(self) -> int:
        """Count the tokens."""
        return self._lake.count("tokens", self._run.start)
