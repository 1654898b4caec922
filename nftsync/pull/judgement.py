"""How much may vanish within 24 hours, and what of more than that is held back.

What a single list shows may be a sale, a fault or an attack; what tells is how much goes at once,
of whom, and whether another wallet has got it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import msgspec

from nftsync.records import Removals
from nftsync.store.removals import Vanished

__all__ = ["Past", "RemovalLimits", "Verdict", "judge"]

#: So many wallets are many, however little each of them held.
_MANY_WALLETS = 20


@dataclass(frozen=True)
class RemovalLimits:
    """How much may vanish within 24 hours.

    Attributes:
        share: of what a group of wallets or the whole mirror held, from 0 to 1: no limit.
        rows: so many balances, of fewer than 20 wallets, may always.
    """

    share: float = 0.5
    rows: int = 100


class Verdict(msgspec.Struct, frozen=True):
    """Of whom what is gone is held back.

    Attributes:
        all_balances: of everybody.
        groups: of the wallets of these groups.
        emptied: metadata that was emptied.
    """

    all_balances: bool = False
    groups: frozenset[str] = frozenset()
    emptied: bool = False

    def holds(self, of: Removals) -> bool:
        """Whether a read that shows this to be gone is held back."""
        balances = self.all_balances or of.group in self.groups
        return bool((of.balances and balances) or (of.emptied and self.emptied))


class Past(Protocol):
    """What was removed in the 24 hours before, and what there is; numbers as in `Removals`."""

    def vanished(self) -> Vanished:
        """How much was removed."""

    def removed(self) -> Iterable[tuple[int, str | None, int]]:
        """Each balance that was removed: wallet, its group, token."""

    def gained(self) -> dict[int, set[int]]:
        """The tokens that wallets got, or got more of: by whom."""

    def listed(self, gone: Counter[str | None]) -> Counter[str | None]:
        """What each group held at any time of them, as so many of it are gone since."""

    def tokens(self) -> int:
        """How many tokens are known."""


def judge(limits: RemovalLimits, past: Past, waiting: Collection[Removals]) -> Verdict:
    """Decide on what reads show to be gone, in view of what was removed within 24 hours."""
    if limits.share >= 1:
        return Verdict()
    gone = past.vanished()
    wallets = gone.wallets + sum(bool(each.balances) for each in waiting)
    balances = gone.balances + sum(len(each.balances) for each in waiting)
    verdict = Verdict()
    if _are_many(limits, balances, wallets):
        verdict = _judge_balances(limits, past, waiting)
    emptied = gone.emptied.union(*(each.emptied for each in waiting))
    most = max(limits.rows, limits.share * past.tokens())
    return msgspec.structs.replace(verdict, emptied=len(emptied) > most)


def _judge_balances(limits: RemovalLimits, past: Past, waiting: Collection[Removals]) -> Verdict:
    balances: Counter[str | None] = Counter()
    before: Counter[str | None] = Counter()
    wallets: dict[str | None, set[int]] = {}
    for wallet, group, waits in _vanished(past, waiting):
        balances[group] += 1
        before[group] += not waits
        wallets.setdefault(group, set()).add(wallet)
    held = past.listed(before)
    most = limits.share
    all_held = False
    if _are_many(limits, balances.total(), sum(map(len, wallets.values()))):
        all_held = balances.total() > most * held.total()
    groups = {
        group
        for group, number in balances.items()
        if group is not None
        and _are_many(limits, number, len(wallets[group]))
        and number > most * held[group]
    }
    return Verdict(all_held, frozenset(groups))


def _are_many(limits: RemovalLimits, balances: int, wallets: int) -> bool:
    return balances > limits.rows or wallets >= _MANY_WALLETS


def _vanished(past: Past, waiting: Collection[Removals]) -> Iterator[tuple[int, str | None, bool]]:
    """Each balance that is gone, but those whose token another wallet has got: they moved.

    Yields the number of the wallet that held it, its group, and whether the read waits.
    """
    gained = past.gained()
    for each in waiting:
        for token in each.gained:
            gained.setdefault(token, set()).add(each.wallet_no)
    lost: dict[int, dict[int, tuple[int, str | None, bool]]] = {}
    before = ((*row, False) for row in past.removed())
    now_gone = ((x.wallet_no, x.group, token, True) for x in waiting for token in x.balances)
    for wallet, group, token, waits in chain(before, now_gone):
        if token in gained:
            lost.setdefault(token, {})[wallet] = wallet, group, waits
        else:
            yield wallet, group, waits
    for token, losers in lost.items():
        gainers = gained[token]
        moved = 0 if losers.keys() == gainers and len(gainers) == 1 else len(gainers)
        # Who had it first has passed it on rather than who got it meanwhile.
        yield from sorted(losers.values(), key=lambda loser: loser[0] in gainers)[moved:]
