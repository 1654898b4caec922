"""Input of the removal guard in a lake: buckets' reports and the last 24 hours' changes."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec

from nftsync.exact_sum import is_zero
from nftsync.lake.storage import Lake, Versions
from nftsync.records import CONTENT_COLUMNS, METADATA, Removals
from nftsync.store.database import over_keys
from nftsync.store.history import DAY, Change, FirstRead, Part, Rename, changes_since, count_listed
from nftsync.times import now, shifted

_METADATA = set(CONTENT_COLUMNS[METADATA])


class Known(msgspec.Struct, kw_only=True):
    """What a bucket reports to the removal guard.

    Attributes:
        waiting: the removals of reads.
        changes: what the other reads of this run changed.
        first_reads: what first reads of this run showed.
        last_reads: when the wallets of all these were last read before.
        listed: how many balances the tracked wallets of each group have.
    """

    waiting: list[Removals] = []
    changes: list[Change] = []
    first_reads: list[Change] = []
    last_reads: dict[str, str | None] = {}
    listed: list[tuple[str | None, int]] = []


def last_numbers(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the last change and the last state of a bucket, before it is read."""
    change, state = connection.execute(
        "SELECT (SELECT coalesce(max(change_id), 0) FROM balance_change_rows),"
        " (SELECT coalesce(max(state_id), 0) FROM wallet_state_rows)"
    ).fetchone()
    return int(change), int(state)


def report_known(
    connection: sqlite3.Connection, last: tuple[int, int], waiting: list[Removals]
) -> Known:
    """Return what a bucket reports.

    Args:
        connection: the bucket's, after it was read.
        last: its last change and state, before.
        waiting: the removals of its reads.
    """
    changes = changes_since(connection, last[0] + 1)
    first_reads = changes_since(connection, last[0] + 1, baseline=True)
    wallets = {change.wallet for change in changes} | {read.wallet_id for read in waiting}
    last_reads = over_keys(
        connection,
        "SELECT wallet_id, max(last_read_at) FROM json_each(?1) JOIN wallets ON wallet_id = value"
        " JOIN wallet_state_rows USING (wallet_no) WHERE wallet_state_rows.state_id <= ?2"
        " GROUP BY wallet_id",
        wallets,
        last[1],
    )
    listed = count_listed(connection, last[0] + 1)
    return Known(
        waiting=waiting,
        changes=[change._replace(at="") for change in changes],
        first_reads=first_reads,
        last_reads=dict(last_reads),
        listed=[(part.group, count) for part, count in listed.items()],
    )


class PastOfLake:
    """The last 24 hours of a lake, and the removals that wait in all buckets."""

    def __init__(
        self,
        lake: Lake,
        start: Versions,
        buckets: Iterable[Known],
        *,
        approved_at: str,
        runs: dict[int, str],
        started_at: str,
    ) -> None:
        """Take what buckets reported; the rest is read when it is asked for.

        Args:
            lake: the lake.
            start: the version of each table that the run starts from.
            buckets: what they reported.
            approved_at: when the removals so far were approved; blank: never.
            runs: when each earlier run started.
            started_at: when this run started.
        """
        self._lake = lake
        self._start = start
        self.at = now()
        self._since = max(shifted(self.at, -DAY), approved_at)
        self._runs = runs
        self._listed: Counter[str | None] = Counter()
        self._last_reads: dict[str, str | None] = {}
        self._started_at = started_at
        self._new: list[Change] = []
        self._new_first_reads: list[Change] = []
        self.waiting: list[Removals] = []
        for known in buckets:
            for group, count in known.listed:
                self._listed[group] += count
            self._new += known.changes
            self._new_first_reads += known.first_reads
            self._last_reads |= known.last_reads
            self.waiting += known.waiting
        self._changes: list[Change] | None = None

    def _rows(self, name: str, where: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        if name in self._start:
            where = f"observed_at > '{self._since}' AND {where}" if name != "wallets" else where
            yield from self._lake.rows(name, self._start[name], where, columns)

    def count_losses(self) -> tuple[int, int]:
        """Count all changes, and their wallets."""
        changes = self.changes()
        return len(changes), len({change.wallet for change in changes})

    def changes(self) -> list[Change]:
        """Return the changes but those of first reads, oldest first."""
        if self._changes is None:
            columns = "change_id", "wallet_id", "token_id", "old_amount", "new_amount"
            rows = self._rows("balance_changes", "baseline = 0", *columns, "observed_at")
            self._changes = [
                Change(wallet, self._groups.get(wallet), token, *amounts)
                for _, wallet, token, *amounts in sorted(rows)
            ]
            self._changes += self._new
        return self._changes

    def first_reads(self, tokens: Collection[str]) -> Iterator[FirstRead]:
        """Return what first reads showed of tokens, except in the lake's first run."""
        first = min(self._runs, default=0)
        columns = "wallet_id", "token_id", "new_amount", "run_id"
        for wallet, token, amount, run in self._rows(
            "balance_changes", f"baseline = 1 AND run_id > {first}", *columns
        ):
            if run in self._runs and token in tokens:
                yield FirstRead(wallet, token, amount, self._runs[run])
        for new in self._new_first_reads:
            if new.after is not None and new.token in tokens:
                yield FirstRead(new.wallet, new.token, new.after, self._started_at)

    def last_read(self, wallet: str, at: str) -> str | None:
        """Return the last read of a wallet before this run; before stored changes it is unknown."""
        return None if at else self._last_reads.get(wallet)

    def new_wallets(self) -> Collection[str]:
        """Return the wallets that were first read, with at least one balance."""
        return self._new_wallets.keys()

    def count_balances(self, more: Counter[Part]) -> Counter[Part]:
        """Count the balances that each part held; new wallets held what they showed first."""
        held = Counter({Part(group, is_new=False): count for group, count in self._listed.items()})
        for part, count in more.items():
            held[Part(part.group, is_new=False)] += count
        for group, count in self._new_wallets.values():
            held[Part(group, is_new=False)] -= count
            held[Part(group, is_new=True)] += count
        return held

    @cached_property
    def _groups(self) -> dict[str, str | None]:
        return dict(self._rows("wallets", "true", "wallet_id", "wallet_group"))

    @cached_property
    def _new_wallets(self) -> dict[str, tuple[str | None, int]]:
        """The group of each new wallet, and how many balances its first read showed."""
        first_reads = [
            (wallet, self._groups.get(wallet), amount)
            for wallet, amount in self._rows(
                "balance_changes", "baseline = 1", "wallet_id", "new_amount"
            )
        ]
        first_reads += [(x.wallet, x.group, x.after) for x in self._new_first_reads]
        wallets: dict[str, tuple[str | None, int]] = {}
        for wallet, group, amount in first_reads:
            _, count = wallets.get(wallet, (group, 0))
            wallets[wallet] = group, count + (amount is not None and not is_zero(amount))
        return wallets

    def emptied(self) -> set[str]:
        """Return the tokens whose metadata was emptied."""
        before: dict[str, dict[str, Any]] = {}
        after: dict[str, dict[str, Any]] = {}
        rows = self._rows("token_changes", "true", "change_id", "token_id", "before", "after")
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
        """Return those that wait; of a lake's earlier ones the contract is not at hand."""
        return (Rename(token, *names) for token, names in waiting.items())

    def tokens(self) -> int:
        """Count the tokens."""
        return self._lake.count("tokens", self._start)
