"""The removal guard.

A faulty provider may answer 200 with lists that are empty, cut short or full of zeros; a wallet
that sells all its tokens looks the same. So reads with removals wait, and the guard decides on them
together, from plain data: each database reports its last 24 hours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeAlias

import msgspec

from nftsync.exact_sum import exact, is_zero
from nftsync.movements import Movement, explain_losses
from nftsync.records import OnRemovals, Read, Removals
from nftsync.store.day_report import Change, DayReport, Part

#: Removals from this many wallets count, however few they are.
_MANY_WALLETS = 20
#: If this many tokens of a contract get the same name, the names count as removed.
_MANY_TOKENS = 20

#: A wallet and a token.
_Key: TypeAlias = tuple[str, str]
#: A measure of an amount.
_Size: TypeAlias = Callable[[str | None], int]


@dataclass(frozen=True)
class RemovalLimits:
    """Removals allowed within 24 hours without a review.

    Attributes:
        share: the share of the holdings of a group or the whole database, from 0 to 1.
        rows: fewer balances than this, from fewer than 20 wallets, may always be removed.
    """

    share: float = 0.5
    rows: int = 100

    def exceeded(self, rows: int, of: int, wallets: int = 0) -> bool:
        """Return whether removals of some rows, in some wallets, are too many."""
        many = rows >= self.rows or wallets >= _MANY_WALLETS
        return many and self.share < 1 and rows > self.share * of


class Decision(msgspec.Struct, frozen=True):
    """The removals to hold for review: all balances, the balances of groups, metadata."""

    all_balances: bool = False
    groups: frozenset[str] = frozenset()
    metadata: bool = False

    def holds(self, removals: Removals) -> bool:
        balances = self.all_balances or removals.group in self.groups
        metadata = removals.emptied or removals.renamed
        return bool((removals.lost and balances) or (metadata and self.metadata))

    def by_effect(self, waiting: Iterable[tuple[Read, Removals]]) -> dict[OnRemovals, list[Read]]:
        """Return the reads to apply as they are, and those whose removals to hold for review."""
        groups: dict[OnRemovals, list[Read]] = {"apply": [], "hold": []}
        for read, removals in waiting:
            groups["hold" if self.holds(removals) else "apply"].append(read)
        return groups


def lost_tokens(limits: RemovalLimits, reports: Collection[DayReport]) -> set[str]:
    """Return the tokens whose changes `decide` needs: none if few balances are lost."""
    rows = sum(report.rows for report in reports)
    wallets = sum(report.wallets for report in reports)
    if not any(read.lost for read in _waiting(reports)) or not limits.exceeded(rows, 0, wallets):
        return set()
    return set().union(*(report.lost for report in reports))


def needs_metadata(reports: Collection[DayReport]) -> bool:
    return any(read.emptied or read.renamed for read in _waiting(reports))


def decide(limits: RemovalLimits, reports: Collection[DayReport]) -> Decision:
    """Decide on the removals that wait in the reports of all databases."""
    decision = Decision()
    if lost_tokens(limits, reports):
        decision = _decide_on_balances(limits, reports)
    tokens = sum(report.tokens for report in reports)
    many = needs_metadata(reports) and limits.exceeded(len(_emptied(reports)), tokens)
    return msgspec.structs.replace(decision, metadata=many)


def _waiting(reports: Iterable[DayReport]) -> Iterable[Removals]:
    return chain.from_iterable(report.waiting for report in reports)


def _emptied(reports: Collection[DayReport]) -> set[str]:
    """Return tokens without metadata, and tokens of a contract whose names became the same."""
    emptied = set().union(*(report.emptied for report in reports))
    emptied.update(*(read.emptied for read in _waiting(reports)))
    renamed = {token: names for report in reports for token, names in report.renamed.items()}
    renamed |= {token: names for read in _waiting(reports) for token, names in read.renamed.items()}
    by_name: dict[tuple[str | None, str], dict[str, str]] = {}
    for token, (contract, before, after) in renamed.items():
        by_name.setdefault((contract, after), {})[token] = before
    for names in by_name.values():
        if len(names) >= _MANY_TOKENS and 2 * len(set(names.values())) > len(names):
            emptied |= names.keys()
    return emptied


# Balances --------------------------------------------------------------------------------------


def is_positive(amount: str | None) -> bool:
    return amount is not None and not is_zero(amount)


def _number(amount: str | None) -> int:
    return exact(amount) or 0


def _listing(amount: str | None) -> int:
    """Return 1 for an amount that is not a number."""
    return int(amount is not None and exact(amount) is None)


_SIZES: tuple[_Size, _Size] = (_number, _listing)


def _is_lost(number: int, listing: int, after: str | None) -> bool:
    """Return whether less than half of an amount is left."""
    left = _number(after)
    return 2 * left < number or (listing > 0 and not (left or _listing(after)))


def _decide_on_balances(limits: RemovalLimits, reports: Collection[DayReport]) -> Decision:
    new = set().union(*(report.new_wallets for report in reports))
    first, after, net = _changed_balances(reports)
    losses: dict[Part, Counter[str]] = {}
    holdings: Counter[Part] = Counter()
    for report in reports:
        holdings.update(report.holdings)
    for key, change in first.items():
        part = change.group, change.wallet in new
        number, listing = (size(change.before) + net[size][key] for size in _SIZES)
        holdings[part] += (number > 0 or listing > 0) - is_positive(change.before)
        if _is_lost(number, listing, after[key]):
            losses.setdefault(part, Counter())[change.wallet] += 1
    for read in _waiting(reports):
        unchanged = sum((read.wallet_id, token) not in first for token in read.lost)
        if unchanged:
            part = read.group, read.wallet_id in new
            losses.setdefault(part, Counter())[read.wallet_id] += unchanged

    parts = holdings.keys() | losses.keys()
    is_too_much = partial(_is_too_much, limits, losses, holdings)
    groups = {group for group, _ in losses if group is not None}
    held = (x for x in groups if is_too_much([part for part in parts if part[0] == x]))
    return Decision(all_balances=is_too_much(parts), groups=frozenset(held))


def _is_too_much(
    limits: RemovalLimits,
    losses: Mapping[Part, Counter[str]],
    holdings: Counter[Part],
    parts: Collection[Part],
) -> bool:
    for some in (parts, [(group, is_new) for group, is_new in parts if not is_new]):
        lost = [losses[part] for part in some if part in losses]
        rows, wallets = sum(x.total() for x in lost), sum(map(len, lost))
        if limits.exceeded(rows, sum(holdings[part] for part in some), wallets):
            return True
    return False


def _changed_balances(
    reports: Collection[DayReport],
) -> tuple[dict[_Key, Change], dict[_Key, str | None], dict[_Size, Counter[_Key]]]:
    """Return each balance's first change of the day, its latest amount, and its net transfers.

    Of the losses in waiting reads, only losses of tokens with a gain or an earlier change.
    """
    first: dict[_Key, Change] = {}
    after: dict[_Key, str | None] = {}

    def note(changes: Iterable[Change]) -> None:
        for change in changes:
            key = change.wallet, change.token
            first.setdefault(key, change)
            after[key] = change.after

    all_stored = [change for report in reports for change in report.changes]
    first_reads = [change for change in all_stored if change.is_first_read]
    stored = [change for change in all_stored if not change.is_first_read]
    note(stored)
    gained = {
        change.token
        for change in all_stored
        if any(size(change.after) > size(change.before) for size in _SIZES)
    }.union(*(read.gained for read in _waiting(reports)))
    waiting = [
        change
        for change in _waiting_changes(reports)
        if change.token in gained or (change.wallet, change.token) in first
    ]
    note(waiting)
    lost = {
        change.token
        for key, change in first.items()
        if _is_lost(_number(change.before), _listing(change.before), after[key])
    }.union(*(read.lost for read in _waiting(reports)))
    some = [x for x in chain(stored, waiting, first_reads) if x.token in lost and x.token in gained]
    return first, after, {size: _transfers(some, size) for size in _SIZES}


def _waiting_changes(reports: Collection[DayReport]) -> Iterator[Change]:
    now = max(report.at for report in reports)
    last_reads = {wallet: at for report in reports for wallet, at in report.last_reads.items()}
    for read in _waiting(reports):
        since = last_reads.get(read.wallet_id)
        # An amount that is no number any more is lost and gained.
        amounts: dict[str, tuple[str | None, str | None]] = {**read.lost, **read.gained}
        for token, (before, after) in amounts.items():
            yield Change(read.wallet_id, read.group, token, before, after, since, now)


def _transfers(changes: Iterable[Change], size: _Size) -> Counter[_Key]:
    """Return the net amount of possible transfers into balances, except into first reads."""
    by_token: dict[str, list[Change]] = {}
    for change in changes:
        if size(change.before) != size(change.after):
            by_token.setdefault(change.token, []).append(change)
    net: Counter[_Key] = Counter()
    for token, some in by_token.items():
        flows = explain_losses(
            [Movement(x.wallet, size(x.after) - size(x.before), x.since, x.at) for x in some]
        )
        for flow in flows:
            net[some[flow.loss].wallet, token] -= flow.amount
            if not some[flow.gain].is_first_read:  # its wallet had no earlier amount
                net[some[flow.gain].wallet, token] += flow.amount
    return net
