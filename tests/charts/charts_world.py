"""Databases with a history, and the same history in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from frames.frames_database import Builder, at

CONTRACTS = ("0x" + "aB" * 20, "0x" + "cD" * 20, "KT1abc", None)
GROUPS = ("cold", "hot", None)


class Step(NamedTuple):
    """A change as it was stored; `held` and `first_read` tell whether the wallet holds the token
    after it, and whether its first read showed it."""

    time: str
    wallet: int
    token: int
    held: bool
    first_read: bool


@dataclass
class World:
    """A history that grows: in the database, and as steps."""

    build: Builder
    steps: list[Step] = field(default_factory=list)
    amounts: dict[tuple[int, int], str] = field(default_factory=dict)
    since: dict[tuple[int, int], float] = field(default_factory=dict)

    @classmethod
    def empty(cls, path: Path, wallets: int = 4, tokens: int = 6, read_at: float = 0) -> World:
        build = Builder(path)
        build.connection.execute("BEGIN")
        for number in range(1, wallets + 1):
            build.wallet(
                number,
                label=f"Wallet {number}",
                wallet_group=GROUPS[number % len(GROUPS)],
                synced_at=at(read_at) if read_at else None,
            )
        for number in range(1, tokens + 1):
            build.token(
                number, contract_address=CONTRACTS[number % len(CONTRACTS)], name=f"NFT {number}"
            )
        return cls(build)

    def change(self, wallet: int, token: int, new: str | None, seen: float) -> None:
        old = self.amounts.get((wallet, token))
        if old == new:
            return
        first = all(step.wallet != wallet or step.time == at(seen) for step in self.steps)
        self.build.change(wallet, token, old, new, seen, baseline=int(first))
        held = new is not None and new.strip("0") != ""
        if not (old is not None and old.strip("0")):
            self.since[wallet, token] = seen
        self.steps.append(Step(at(seen), wallet, token, held, first))
        if new is None:
            del self.amounts[wallet, token]
        else:
            self.amounts[wallet, token] = new

    def close(self, *webhooks: dict[str, Any]) -> Path:
        for number, webhook in enumerate(webhooks):
            self.build.insert("webhooks", webhook_id=f"w-{number}", body=b"{}", **webhook)
        for (wallet, token), amount in self.amounts.items():
            self.build.balance(wallet, token, amount, self.since[wallet, token])
        self.build.connection.execute("COMMIT")
        return self.build.close()

    def holdings_at(self, time: str) -> set[tuple[int, int]]:
        """Which wallets hold which tokens after all changes up to a time."""
        held: set[tuple[int, int]] = set()
        for step in self.steps:
            if step.time <= time:
                (held.add if step.held else held.discard)((step.wallet, step.token))
        return held


def shown_time(plotted: str) -> str:
    """A time on an axis, in the stored form."""
    return f"{plotted}Z"


def played(path: Path, changes: Iterable[tuple[int, int, int, str | None]]) -> World:
    """A world of changes: seconds since the last, wallet, token, amount afterwards."""
    world, now = World.empty(path), 0
    for wait, wallet, token, amount in changes:
        now += wait
        world.change(wallet, token, amount, now)
    return world


def texts_of(part: Any) -> Iterator[str]:
    """All text of a figure's JSON."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict | list):
        for each in part.values() if isinstance(part, dict) else part:
            yield from texts_of(each)
