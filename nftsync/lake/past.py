"""What went within a day, as each bucket knows it, and all together: what the brake is told."""

from __future__ import annotations

import hashlib
import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from nftsync.records import Removals
from nftsync.store import removals
from nftsync.times import now

__all__ = ["Known", "PastOfLake", "known_to", "of_all_buckets"]

#: `Removals`, as they are sent.
Waiting: TypeAlias = tuple[int, str | None, list[int], list[int], list[int]]


class Known(msgspec.Struct, kw_only=True):
    """What a bucket tells the brake, by numbers that are the same in all buckets.

    Attributes:
        waiting: what reads show to be gone, as `Removals` are.
        balances: how many balances were removed in the 24 hours before.
        wallets: of how many wallets.
        emptied: the tokens that were emptied then.
        removed: each balance that was removed then: wallet, group, token.
        gained: each token that was gained then, and by which wallet.
        listed: how many balances the tracked wallets of each group have.
    """

    waiting: list[Waiting] = []
    balances: int = 0
    wallets: int = 0
    emptied: list[int] = []
    removed: list[tuple[int, str | None, int]] = []
    gained: list[tuple[int, int]] = []
    listed: list[tuple[str | None, int]] = []


def _number_of(key: str) -> int:
    """A number for an id, the same everywhere."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()) >> 1


class _Numbers:
    """The numbers that wallets or tokens have everywhere, by those of a mirror."""

    def __init__(self, connection: sqlite3.Connection, table: str, number: str, key: str) -> None:
        self._execute = connection.execute
        self._query = f"SELECT {key} FROM {table} WHERE {number} = ?"  # noqa: S608 - our own names
        self._known: dict[int, int] = {}

    def __call__(self, number: int) -> int:
        if number not in self._known:
            row = self._execute(self._query, (number,)).fetchone()
            self._known[number] = _number_of(row[0]) if row else 0
        return self._known[number]


def _numbers(connection: sqlite3.Connection) -> tuple[_Numbers, _Numbers]:
    return (
        _Numbers(connection, "wallets", "wallet_no", "wallet_id"),
        _Numbers(connection, "tokens", "token_no", "token_id"),
    )


def known_to(connection: sqlite3.Connection) -> Known:
    """What is known before a run."""
    at = now()
    wallet, token = _numbers(connection)
    gone = removals.vanished(connection, at)
    gained = removals.gained(connection, at).items()
    return Known(
        balances=gone.balances,
        wallets=gone.wallets,
        emptied=list(map(token, gone.emptied)),
        removed=[
            (wallet(w), group, token(t)) for w, group, t in list(removals.removed(connection, at))
        ],
        gained=[(token(t), wallet(w)) for t, wallets in gained for w in wallets],
        listed=list(removals.listed(connection).items()),
    )


def of_all_buckets(connection: sqlite3.Connection, waiting: Iterable[Removals]) -> list[Waiting]:
    """What reads of a bucket show to be gone, by numbers that are the same in all buckets."""
    wallet, token = _numbers(connection)

    def tokens(numbers: Iterable[int]) -> list[int]:
        return [token(number) for number in numbers]

    return [
        (wallet(x.wallet_no), x.group, tokens(x.balances), tokens(x.emptied), tokens(x.gained))
        for x in waiting
    ]


class PastOfLake:
    """The past as all buckets know it, and what waits."""

    def __init__(self, buckets: Iterable[Known], tokens: int) -> None:
        self._buckets = list(buckets)
        self._tokens = tokens

    @property
    def waiting(self) -> list[Removals]:
        """What reads show to be gone."""
        return [
            Removals(wallet, group, *(array("q", numbers) for numbers in more))
            for each in self._buckets
            for wallet, group, *more in each.waiting
        ]

    def vanished(self) -> removals.Vanished:
        """How much was removed."""
        balances = sum(each.balances for each in self._buckets)
        wallets = sum(each.wallets for each in self._buckets)
        return removals.Vanished(balances, wallets, {x for y in self._buckets for x in y.emptied})

    def removed(self) -> list[tuple[int, str | None, int]]:
        """Each balance that was removed."""
        return [row for each in self._buckets for row in each.removed]

    def gained(self) -> dict[int, set[int]]:
        """The tokens that wallets got, by whom."""
        found: dict[int, set[int]] = {}
        for each in self._buckets:
            for token, wallet in each.gained:
                found.setdefault(token, set()).add(wallet)
        return found

    def listed(self, gone: Counter[str | None]) -> Counter[str | None]:
        """What each group held at any time of the day."""
        held = Counter(gone)
        for each in self._buckets:
            held.update(dict(each.listed))
        return held

    def tokens(self) -> int:
        """How many tokens are known."""
        return self._tokens
