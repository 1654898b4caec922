"""Wallets that transfer tokens, and reads of them that a mirror applies."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nftsync.records import WalletRead
from nftsync.store.mirror import Mirror
from tests.kit.database import at, token_id, wallet_id

#: A wallet without reads.
OUTSIDE = 0


class Moved(NamedTuple):
    """A transfer."""

    sender: int
    receiver: int
    token: int
    amount: int


class Observed(NamedTuple):
    """A change that a read shows."""

    wallet: int
    token: int
    amount: int


class Step(NamedTuple):
    """Transfers in their order, and then reads of wallets in their order."""

    moved: Sequence[Moved]
    reads: Sequence[int]


@dataclass
class World:
    """A database, and the changes that its reads show.

    Attributes:
        path: the database.
        truth: the transfers, in order.
        observed: the changes that reads show.
    """

    path: Path
    truth: list[Moved] = field(default_factory=list)
    observed: list[Observed] = field(default_factory=list)
    _clock: int = 0
    _held: Counter[tuple[int, int]] = field(default_factory=Counter)
    _shown: dict[int, dict[int, int]] = field(default_factory=dict)

    def play(self, held: dict[tuple[int, int], int], steps: Iterable[Step]) -> World:
        """Play steps from the first holdings."""
        self._held.update(held)
        with Mirror(self.path, write_gap=0.0) as mirror:
            for step in steps:
                for moved in step.moved:
                    self._move(moved)
                for wallet in step.reads:
                    self._observe(mirror, wallet)
        return self

    def _move(self, moved: Moved) -> None:
        self._clock += 1
        available = moved.amount
        if moved.sender != OUTSIDE:
            available = min(available, self._held[moved.sender, moved.token])
            self._held[moved.sender, moved.token] -= available
        if available:
            self._held[moved.receiver, moved.token] += available
            self.truth.append(moved._replace(amount=available))

    def _observe(self, mirror: Mirror, wallet: int) -> None:
        """Read a wallet at one tick, and store the read at the next."""
        started, self._clock = at(self._clock + 1), self._clock + 2
        stored = at(self._clock)
        amounts = {
            token: amount
            for (holder, token), amount in self._held.items()
            if holder == wallet and amount
        }
        read = WalletRead(
            wallet_id=wallet_id(wallet),
            sequence=mirror.numbers.take(),
            started_at=started,
            outcome="ok",
            entries=[(token_id(token), str(amount), None) for token, amount in amounts.items()],
            digest=repr(amounts),
        )
        with mirror.transaction(stored) as transaction:
            transaction.apply([read])
        if wallet in self._shown:
            before = self._shown[wallet]
            for token in sorted(before.keys() | amounts.keys()):
                size = amounts.get(token, 0) - before.get(token, 0)
                if size:
                    self.observed.append(Observed(wallet, token, size))
        self._shown[wallet] = amounts


WALLETS, TOKENS = (1, 2, 3, 4), (1, 2)


def held_at_first(rng: random.Random) -> dict[tuple[int, int], int]:
    """Return the holdings before the first read: some tokens have one copy, others many."""
    held = {}
    for token in TOKENS:
        for wallet in rng.sample(WALLETS, rng.randint(1, 3)):
            held[wallet, token] = rng.choice((1, 1, 2, 5))
    return held


def history(seed: int) -> tuple[dict[tuple[int, int], int], list[Step]]:
    """Return any transfers, some with the outside, and reads of any wallets after them."""
    rng = random.Random(seed)
    steps = [Step([], rng.sample(WALLETS, rng.randint(2, 4)))]
    for _ in range(rng.randint(1, 7)):
        moved = []
        for _ in range(rng.choice((1, 1, 1, 2))):
            sender, receiver = rng.sample((*WALLETS, *WALLETS, OUTSIDE), 2)
            while sender == receiver:
                sender, receiver = rng.sample((*WALLETS, *WALLETS, OUTSIDE), 2)
            moved.append(Moved(sender, receiver, rng.choice(TOKENS), rng.choice((1, 1, 2))))
        steps.append(Step(moved, rng.sample(WALLETS, rng.randint(0, 4))))
    return held_at_first(rng), steps
