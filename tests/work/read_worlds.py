"""Reads of made-up wallets, as the reading side hands them over."""

from __future__ import annotations

import hashlib
from pathlib import Path

from nftsync.records import CONTENT_COLUMNS, Content, Entry, WalletRead
from nftsync.store.mirror import Mirror
from nftsync.times import now

NAMED: Content = ("organization", "0xabc", "1", "a name", *(None,) * 11)


def wallet_id(number: int) -> str:
    return f"0000000a-0000-4000-8000-{number:012x}"


def token_id(number: int) -> str:
    # Spread like real ones, so that indexes are met all over.
    return hashlib.sha256(str(number).encode()).hexdigest()[:8] + f"-0000-4000-8000-{number:012x}"


def entries(wallet: int, each: int, amount: str = "1", content: Content = NAMED) -> list[Entry]:
    return [(token_id(wallet * each + number), amount, content) for number in range(each)]


def with_field(column: str, value: str) -> Content:
    """The usual content of a token, and one field otherwise."""
    return tuple(
        value if name == column else usual
        for name, usual in zip(CONTENT_COLUMNS, NAMED, strict=True)
    )


def found(mirror: Mirror, number: int, listed: list[Entry]) -> WalletRead:
    """A read that found this list."""
    return WalletRead(
        wallet_id=wallet_id(number),
        ticket=mirror.tickets.take(),
        started_at=now(),
        outcome="ok",
        entries=listed,
        digest=hashlib.sha256(repr(listed).encode()).hexdigest(),
    )


def found_again(mirror: Mirror, number: int, listed: list[Entry]) -> WalletRead:
    """A read whose answer was the one that is already applied."""
    return WalletRead(
        wallet_id=wallet_id(number),
        ticket=mirror.tickets.take(),
        started_at=now(),
        outcome="unchanged",
        digest=hashlib.sha256(repr(listed).encode()).hexdigest(),
    )


def filled(path: Path, wallets: int, each: int) -> Mirror:
    """A mirror that has read so many wallets once."""
    mirror = Mirror(path, air=0.0)
    for first in range(0, wallets, 200):
        with mirror.transaction() as transaction:
            transaction.apply(
                [
                    found(mirror, number, entries(number, each))
                    for number in range(first, min(first + 200, wallets))
                ]
            )
    return mirror
