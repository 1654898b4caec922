"""The removal guard's view of a lake: what buckets report, and the changes of the last 24 hours."""

from __future__ import annotations

import hashlib
import sqlite3
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from nftsync.exact_sum import is_zero
from nftsync.lake.storage import Lake, Versions
from nftsync.pull.removal_guard import Change, FirstRead, Part, Rename
from nftsync.records import CONTENT_COLUMNS, Removals
from nftsync.store import removals
from nftsync.times import now, shifted

DAY = timedelta(hours=24)
_METADATA = set(CONTENT_COLUMNS[removals.NAME : CONTENT_COLUMNS.index("extra")])


class Waiting(NamedTuple):
    """`Removals` as they are sent, and when the wallet was last read before."""

    wallet: int
    group: str | None
    last_read: str | None
    balances: list[int]
    before: list[str]
    after: dict[int, str]
    gained: dict[int, tuple[str | None, str]]
    emptied: list[int]
    renamed: dict[int, tuple[str | None, str, str]]


class NewChange(NamedTuple):
    """A change that a read of this run made, and when the wallet was last read before."""

    wallet: int
    group: str | None
    token: int
    before: str | None
    after: str | None
    is_first_read: bool
    last_read: str | None


class Known(msgspec.Struct, kw_only=True):
    """What a bucket reports to the removal guard, by numbers that are the same in all buckets.

    Attributes:
        waiting: the removals of reads.
        changes: what the other reads of this run changed.
        listed: how many balances the tracked wallets of each group have.
    """

    waiting: list[Waiting] = []
    changes: list[NewChange] = []
    listed: list[tuple[str | None, int]] = []


def _number_of(key: str) -> int:
    """Return a number for an id, the same everywhere."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()) >> 1


class _Numbers:
    """The numbers that wallets or tokens have everywhere, by those of a mirror."""

    def __init__(self, connection: sqlite3.Connection, table: str, number: str, key: str) -> None:
        self._execute = connection.execute
        self._query = f"SELECT {key} FROM {table} WHERE {number} = ?"
        self._known: dict[int, int] = {}

    def __call__(self, number: int) -> int:
        if number not in self._known:
            row = self._execute(self._query, (number,)).fetchone()
            self._known[number] = _number_of(row[0]) if row else 0
        return self._known[number]


def last_numbers(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the last change and the last state of a bucket, before it is read."""
    change, state = connection.execute(
        "SELECT (SELECT coalesce(max(change_id), 0) FROM balance_change_rows),"
        " (SELECT coalesce(max(state_id), 0) FROM wallet_state_rows)"
    ).fetchone()
    return int(change), int(state)


def of_all_buckets(
    connection: sqlite3.Connection, last: tuple[int, int], waiting: Iterable[Removals]
) -> Known:
    """Return what a bucket reports, by numbers that are the same in all buckets.

    Args:
        connection: the bucket's, after it was read.
        last: its last change and state, before.
        waiting: the removals of its reads.
    """
    wallet = _Numbers(connection, "wallets", "wallet_no", "wallet_id")
    token = _Numbers(connection, "tokens", "token_no", "token_id")
    changes = connection.execute(
        "SELECT c.wallet_no, w.wallet_group, c.token_no, c.old_amount, c.new_amount, c.baseline,"
        " (SELECT max(last_read_at) FROM wallet_state_rows s"
        " WHERE s.wallet_no = c.wallet_no AND s.state_id <= ?2)"
        " FROM balance_change_rows c JOIN wallets w USING (wallet_no) WHERE c.change_id > ?1",
        last,
    )
    return Known(
        waiting=_sent(connection, wallet, token, waiting),
        changes=[
            NewChange(wallet(number), group, token(of), before, after, bool(first), last_read)
            for number, group, of, before, after, first, last_read in changes
        ],
        listed=[(group, n) for (group, _), n in removals.listed(connection, last[0] + 1).items()],
    )


def _sent(
    connection: sqlite3.Connection, wallet: _Numbers, token: _Numbers, waiting: Iterable[Removals]
) -> list[Waiting]:
    last_read = "SELECT max(last_read_at) FROM wallet_state_rows WHERE wallet_no = ?"
    return [
        Waiting(
            wallet(x.wallet_no),
            x.group,
            connection.execute(last_read, (x.wallet_no,)).fetchone()[0],
            list(map(token, x.balances)),
            x.before,
            {token(number): amount for number, amount in x.after.items()},
            {token(number): amounts for number, amounts in x.gained.items()},
            list(map(token, x.emptied)),
            {token(number): names for number, names in x.renamed.items()},
        )
        for x in waiting
    ]


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
        self._now = now()
        self._since = max(shifted(self._now, -DAY), approved_at)
        self._runs = runs
        self._listed: Counter[str | None] = Counter()
        self._last_reads: dict[int, str | None] = {}
        self._started_at = started_at
        self._new: list[NewChange] = []
        self.waiting: list[Removals] = []
        for known in buckets:
            for group, count in known.listed:
                self._listed[group] += count
            self._new += known.changes
            self._last_reads.update((new.wallet, new.last_read) for new in known.changes)
            for sent in known.waiting:
                self._last_reads[sent.wallet] = sent.last_read
                self.waiting.append(
                    Removals(
                        sent.wallet,
                        sent.group,
                        array("q", sent.balances),
                        sent.before,
                        sent.after,
                        sent.gained,
                        array("q", sent.emptied),
                        sent.renamed,
                    )
                )
        self._changes: list[Change] | None = None

    def _rows(self, name: str, where: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        if name in self._start:
            where = f"observed_at > '{self._since}' AND {where}" if name != "wallets" else where
            for batch in self._lake.batches(name, self._start[name], where, columns):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

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
                Change(_number_of(wallet), self._groups.get(wallet), _number_of(token), *amounts)
                for _, wallet, token, *amounts in sorted(rows)
            ]
            self._changes += [
                Change(new.wallet, new.group, new.token, new.before, new.after, self._now)
                for new in self._new
                if not new.is_first_read
            ]
        return self._changes

    def first_reads(self, tokens: Collection[int]) -> Iterator[FirstRead]:
        """Return what first reads showed of tokens, except in the lake's first run."""
        first = min(self._runs, default=0)
        columns = "wallet_id", "token_id", "new_amount", "run_id"
        for wallet, token, amount, run in self._rows(
            "balance_changes", f"baseline = 1 AND run_id > {first}", *columns
        ):
            if run in self._runs and (number := _number_of(token)) in tokens:
                yield FirstRead(_number_of(wallet), number, amount, self._runs[run])
        for new in self._new:
            if new.is_first_read and new.after is not None and new.token in tokens:
                yield FirstRead(new.wallet, new.token, new.after, self._started_at)

    def last_read(self, wallet: int, at: str | None) -> str | None:
        """Return the last read of a wallet before this run; before stored changes it is unknown."""
        return self._last_reads.get(wallet) if at in {None, self._now} else None

    def new_wallets(self) -> Collection[int]:
        """Return the wallets that were first read, with at least one balance."""
        return self._new_wallets.keys()

    def held(self, more: Counter[Part]) -> Counter[Part]:
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
    def _new_wallets(self) -> dict[int, tuple[str | None, int]]:
        """The group of each new wallet, and how many balances its first read showed."""
        first_reads = [
            (_number_of(wallet), self._groups.get(wallet), amount)
            for wallet, amount in self._rows(
                "balance_changes", "baseline = 1", "wallet_id", "new_amount"
            )
        ]
        first_reads += [(x.wallet, x.group, x.after) for x in self._new if x.is_first_read]
        wallets: dict[int, tuple[str | None, int]] = {}
        for wallet, group, amount in first_reads:
            _, count = wallets.get(wallet, (group, 0))
            wallets[wallet] = group, count + (amount is not None and not is_zero(amount))
        return wallets

    def emptied(self) -> set[int]:
        """Return the tokens whose metadata was emptied."""
        before: dict[int, dict[str, Any]] = {}
        after: dict[int, dict[str, Any]] = {}
        rows = self._rows("token_changes", "true", "change_id", "token_id", "before", "after")
        for _, token, old, new in sorted(rows):
            number = _number_of(token)
            old, new = msgspec.json.decode(old), msgspec.json.decode(new)
            before[number] = old | before.get(number, {})
            after[number] = after.get(number, {}) | new
        return {
            number
            for number, columns in before.items()
            if any(columns[name] is not None for name in _METADATA & columns.keys())
            and all(after[number][name] is None for name in _METADATA & columns.keys())
        }

    def renames(self, waiting: Mapping[int, tuple[str | None, str, str]]) -> Iterator[Rename]:
        """Return those that wait; of a lake's earlier ones the contract is not at hand."""
        return (Rename(token, *names) for token, names in waiting.items())

    def tokens(self) -> int:
        """Count the tokens."""
        return self._lake.count("tokens", self._start)

    def now(self) -> str:
        """Return the current time."""
        return self._now
