"""The removal guard.

A faulty provider may answer 200 with lists that are empty, cut short or full of zeros; a wallet
that sells all its tokens looks the same. So reads with removals wait until their run ends, and the
guard decides on them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import msgspec

from nftsync.exact_sum import exact, is_zero
from nftsync.movements import Movement, explain_losses
from nftsync.records import OnRemovals, Read, Removals
from nftsync.store.history import Change, FirstRead, Part, Rename

#: Removals from this many wallets count, however few they are.
_MANY_WALLETS = 20
#: If this many tokens of a contract get the same name, the names count as removed.
_MANY_TOKENS = 20


@dataclass(frozen=True)
class RemovalLimits:
    """Removals allowed within 24 hours without a review.

    Attributes:
        share: the share of the holdings of a group or the whole database, from 0 to 1.
        rows: fewer balances than this, from fewer than 20 wallets, may always be removed.
    """

    share: float = 0.5
    rows: int = 100


class Decision(msgspec.Struct, frozen=True):
    """The removals to hold for review: all balances, the balances of groups, metadata."""

    all_balances: bool = False
    groups: frozenset[str] = frozenset()
    metadata: bool = False

    def holds(self, removals: Removals) -> bool:
        """Return whether to hold the removals of a read."""
        balances = self.all_balances or removals.group in self.groups
        metadata = removals.emptied or removals.renamed
        return bool((removals.balances and balances) or (metadata and self.metadata))

    def by_effect(self, waiting: Iterable[tuple[Read, Removals]]) -> dict[OnRemovals, list[Read]]:
        """Return the reads to apply as they are, and those whose removals to hold for review."""
        groups: dict[OnRemovals, list[Read]] = {"apply": [], "hold": []}
        for read, removals in waiting:
            groups["hold" if self.holds(removals) else "apply"].append(read)
        return groups


class History(Protocol):
    """Changes of the last 24 hours, and current holdings, of a database or lake; `at` is now."""

    at: str

    def count_losses(self) -> tuple[int, int]:
        """Count changes that lowered an amount, and their wallets; never too few."""

    def changes(self) -> list[Change]:
        """Return the changes, oldest first, without first reads."""

    def first_reads(self, tokens: Collection[str]) -> Iterable[FirstRead]:
        """Return first balances of tokens, except from the database's first run."""

    def last_read(self, wallet: str, at: str) -> str | None:
        """Return the start of a wallet's last read before a change; blank `at`: before now."""

    def new_wallets(self) -> Collection[str]:
        """Return wallets whose first read showed a balance."""

    def count_balances(self, more: Counter[Part]) -> Counter[Part]:
        """Count the current balances of each part, plus `more`."""

    def emptied(self) -> set[str]:
        """Return tokens whose metadata was emptied."""

    def renames(self, waiting: Mapping[str, tuple[str | None, str, str]]) -> Iterable[Rename]:
        """Return tokens with a new name, stored or in a waiting read."""

    def tokens(self) -> int:
        """Count the tokens."""


def decide(
    limits: RemovalLimits | None, history: History, waiting: Collection[Removals]
) -> Decision:
    """Decide on the removals of waiting reads; without limits, all are allowed."""
    if limits is None or limits.share >= 1 or not waiting:
        return Decision()
    decision = Decision()
    rows, wallets = history.count_losses()
    rows += sum(len(read.balances) for read in waiting)
    wallets += sum(bool(read.balances) for read in waiting)
    if any(read.balances for read in waiting) and _are_many(limits, rows, wallets):
        decision = _decide_on_balances(limits, history, waiting)
    emptied = {token for read in waiting for token in read.emptied}
    renamed = {token: names for read in waiting for token, names in read.renamed.items()}
    if not (emptied or renamed):
        return decision
    emptied |= history.emptied() | _common_names(history.renames(renamed))
    many = len(emptied) >= limits.rows and len(emptied) > limits.share * history.tokens()
    return msgspec.structs.replace(decision, metadata=many)


def _common_names(renames: Iterable[Rename]) -> set[str]:
    """Return tokens of a contract whose different names became the same."""
    names: dict[tuple[str | None, str], dict[str, str]] = {}
    for rename in renames:
        names.setdefault((rename.contract, rename.after), {})[rename.token] = rename.before
    return {
        token
        for before in names.values()
        if len(before) >= _MANY_TOKENS and 2 * len(set(before.values())) > len(before)
        for token in before
    }


def _are_many(limits: RemovalLimits, rows: int, wallets: int) -> bool:
    return rows >= limits.rows or wallets >= _MANY_WALLETS


@dataclass
class _Balance:
    """A balance that changed within 24 hours.

    `before` is the amount 24 hours ago, `after` the amount in the latest read, and `stored` the
    amount in the database. `moved` has the net amount of transfers: numbers, and a count of others.
    """

    group: str | None
    before: str | None
    after: str | None
    stored: str | None
    moved: list[int] = field(default_factory=lambda: [0, 0])

    @property
    def expected(self) -> tuple[int, int]:
        """The amount of 24 hours ago plus later transfers."""
        number, listing = _parts(self.before)
        return number + self.moved[0], listing + self.moved[1]

    @property
    def is_removed(self) -> bool:
        """Whether less than half of the expected amount is left."""
        number, listing = self.expected
        left, still_listed = _parts(self.after)
        return 2 * left < number or (listing > 0 and not (left or still_listed))


def _parts(amount: str | None) -> tuple[int, int]:
    number = exact(amount)
    return (number or 0, int(amount is not None and number is None))


def is_held(amount: str | None) -> bool:
    """Return whether a balance has an amount other than zero."""
    return amount is not None and not is_zero(amount)


def _decide_on_balances(
    limits: RemovalLimits, history: History, waiting: Collection[Removals]
) -> Decision:
    changes = history.changes()
    changed = _changed_balances(changes, waiting)
    _apply_transfers(history, changes, waiting, changed)
    new = history.new_wallets()
    losses: dict[Part, Counter[Hashable]] = {}
    more: Counter[Part] = Counter()
    moved: Counter[Part] = Counter()
    for (wallet, _), balance in changed.items():
        part = Part(balance.group, is_new=wallet in new)
        more[part] += is_held(balance.before) - is_held(balance.stored)
        moved[part] += any(x > 0 for x in balance.expected) - is_held(balance.before)
        if balance.is_removed:
            losses.setdefault(part, Counter())[wallet] += 1
    for read in waiting:
        only_now = sum((read.wallet_id, token) not in changed for token in read.balances)
        if only_now:
            part = Part(read.group, is_new=read.wallet_id in new)
            losses.setdefault(part, Counter())[read.wallet_id] += only_now
    balances = history.count_balances(more)
    balances.update(moved)

    parts = balances.keys() | losses.keys()
    groups = {part.group for part in losses if part.group is not None}
    return Decision(
        all_balances=_is_too_much(limits, losses, balances, parts),
        groups=frozenset(
            group
            for group in groups
            if _is_too_much(limits, losses, balances, [p for p in parts if p.group == group])
        ),
    )


def _is_too_much(
    limits: RemovalLimits,
    losses: Mapping[Part, Counter[Hashable]],
    balances: Counter[Part],
    parts: Collection[Part],
) -> bool:
    for some in (parts, [part for part in parts if not part.is_new]):
        lost = [losses[part] for part in some if part in losses]
        rows = sum(wallets.total() for wallets in lost)
        if rows > limits.share * sum(balances[part] for part in some) and _are_many(
            limits, rows, sum(map(len, lost))
        ):
            return True
    return False


def _changed_balances(
    changes: Iterable[Change], waiting: Collection[Removals]
) -> dict[tuple[Hashable, str], _Balance]:
    changed: dict[tuple[Hashable, str], _Balance] = {}
    for change in changes:
        key = change.wallet, change.token
        balance = changed.get(key)
        if balance is None:
            changed[key] = _Balance(change.group, change.before, change.after, change.after)
        else:
            balance.after = balance.stored = change.after
    for read in waiting:
        for change in _changes_in(read):
            key = change.wallet, change.token
            if change.token in read.gained:
                balance = _Balance(change.group, change.before, change.after, change.before)
                changed.setdefault(key, balance)
            if key in changed:
                changed[key].after = change.after
    return changed


def _changes_in(read: Removals) -> Iterator[Change]:
    """Yield a waiting read's changes of amounts; they have no time yet."""
    lost = zip(read.balances, read.before, strict=True)
    amounts: dict[str, tuple[str | None, str | None]] = {
        token: (before, read.after.get(token)) for token, before in lost
    }
    amounts |= read.gained
    for token, (before, after) in amounts.items():
        yield Change(read.wallet_id, read.group, token, before, after, "")


def _apply_transfers(
    history: History,
    changes: Collection[Change],
    waiting: Collection[Removals],
    changed: dict[tuple[Hashable, str], _Balance],
) -> None:
    lost = {token for (_, token), balance in changed.items() if balance.is_removed}
    lost.update(token for read in waiting for token in read.balances)
    first_reads = list(history.first_reads(lost))
    gained = {first.token for first in first_reads}
    gained |= {token for read in waiting for token in read.gained}
    for change in changes:
        before, after = _parts(change.before), _parts(change.after)
        if after[0] > before[0] or after[1] > before[1]:
            gained.add(change.token)
    gained &= lost
    movements: dict[tuple[str, int], list[Movement[str]]] = {}
    first_gains: dict[tuple[str, int], list[Movement[str]]] = {}
    for change in chain(changes, *map(_changes_in, waiting)):
        if change.token not in gained:
            continue
        _note_movements(movements, change, history.last_read(change.wallet, change.at), history.at)
        key = change.wallet, change.token
        if key not in changed:
            changed[key] = _Balance(change.group, change.before, change.after, change.before)
    for wallet, token, amount, at in first_reads:
        _note_movements(first_gains, Change(wallet, None, token, None, amount, at), None, at)
    for (token, kind), some in movements.items():
        gains = first_gains.get((token, kind), [])
        for flow in explain_losses([*some, *gains]):
            loss = some[flow.loss]
            changed[loss.wallet, token].moved[kind] -= flow.amount
            if flow.gain < len(some):  # a first read has no earlier amount
                gain = some[flow.gain]
                changed[gain.wallet, token].moved[kind] += flow.amount


def _note_movements(
    into: dict[tuple[str, int], list[Movement[str]]], change: Change, after: str | None, now: str
) -> None:
    parts = zip(_parts(change.before), _parts(change.after), strict=True)
    for kind, (old, new) in enumerate(parts):
        if old != new:
            movement = Movement(change.wallet, new - old, after, change.at or now)
            into.setdefault((change.token, kind), []).append(movement)
