"""Databases with a history, and generated frames of holdings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from hypothesis import strategies as st

from nftsync import frames
from tests.kit.database import Builder, at, token_id, wallet_id

CONTRACTS = ("0x" + "aB" * 20, "0x" + "cD" * 20, "KT1abc", None)
GROUPS = ("cold", "hot", None)


@dataclass
class World:
    """A growing history."""

    build: Builder
    amounts: dict[tuple[int, int], str] = field(default_factory=dict)
    since: dict[tuple[int, int], float] = field(default_factory=dict)
    first: dict[int, float] = field(default_factory=dict)

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
        # A first read only adds balances.
        first = self.first.setdefault(wallet, seen) == seen and old is None
        self.build.change(wallet, token, old, new, seen, baseline=int(first))
        if not (old is not None and old.strip("0")):
            self.since[wallet, token] = seen
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


def log_of(path: Path) -> pd.DataFrame:
    """Return changes: `at`, `pair`, `held` (afterwards), `moved` (1, 0 or -1), `baseline`."""
    log = frames.changes(path)
    log["pair"] = log["wallet_id"] + log["token_id"]
    held = {name: log[f"{name}_amount_text"].fillna("0").ne("0") for name in ("old", "new")}
    moved = held["new"].astype(int) - held["old"].astype(int)
    return log.assign(at=log["observed_at"], held=held["new"], moved=moved)


def holdings_at(log: pd.DataFrame, plotted: str) -> int:
    """Return the number of holdings after all first reads and all changes up to a time."""
    before = log[log["baseline"] | (log["at"] <= pd.Timestamp(plotted, tz="UTC"))]
    return int(before["moved"].sum())


def played(path: Path, changes: Iterable[tuple[int, int, int, str | None]]) -> Path:
    """Make a database of changes: seconds since the last one, wallet, token, amount afterwards."""
    world, now = World.empty(path), 0
    for wait, wallet, token, amount in changes:
        now += wait
        world.change(wallet, token, amount, now)
    return world.close()


AMOUNTS = st.one_of(
    st.integers(0, 5), st.sampled_from([2**53, 2**53 + 1, 2**255, 2**256 - 1]), st.none()
)

#: Amounts by wallet (1 to 6) and token (1 to 8).
HELD = st.dictionaries(st.tuples(st.integers(1, 6), st.integers(1, 8)), AMOUNTS, max_size=30)


def spelled(token: int, wallet: int) -> str | None:
    """Return the contract of a token; odd wallets spell hex addresses in lower case."""
    address = CONTRACTS[token % len(CONTRACTS)]
    if address is None or not address.startswith("0x"):
        return address
    return address.lower() if wallet % 2 else address


def frame_of(held: dict[tuple[int, int], int | None]) -> pd.DataFrame:
    texts = ["wallet_id", "wallet_label", "token_id", "contract_address"]
    rows = [
        (wallet_id(wallet), f"Wallet {wallet}", token_id(token), spelled(token, wallet), amount)
        for (wallet, token), amount in held.items()
    ]
    frame = pd.DataFrame(rows, columns=[*texts, "amount"], dtype=object)
    return frame.astype(dict.fromkeys(texts, "str"))
