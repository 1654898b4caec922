"""Databases with a history, and generated frames of holdings."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from hypothesis import strategies as st

from tests.kit.database import Builder, at, token_id, wallet_id

CONTRACTS = ("0x" + "aB" * 20, "0x" + "cD" * 20, "KT1abc", None)
#: A wallet, a token, the amount afterwards, and the time in seconds.
Change = tuple[int, int, str | None, float]


def played(
    path: Path,
    changes: Iterable[Change],
    *,
    wallets: int = 4,
    tokens: int = 6,
    read_at: float = 0,
    **webhook: Any,
) -> Path:
    """Make a database of changes, and maybe a webhook; a first read only adds balances."""
    build = Builder(path)
    build.connection.execute("BEGIN")
    synced_at = at(read_at) if read_at else None
    for number in range(1, wallets + 1):
        group = ("cold", "hot", None)[number % 3]
        label = f"Wallet {number}"
        build.wallet(number, label=label, wallet_group=group, synced_at=synced_at)
    for number in range(1, tokens + 1):
        address = CONTRACTS[number % len(CONTRACTS)]
        build.token(number, contract_address=address, name=f"NFT {number}")
    amounts: dict[tuple[int, int], str | None] = {}
    first: dict[int, float] = {}
    for wallet, token, new, seen in changes:
        old = amounts.get((wallet, token))
        if old != new:
            is_first = first.setdefault(wallet, seen) == seen and old is None
            build.change(wallet, token, old, new, seen, baseline=int(is_first))
            amounts[wallet, token] = new
    for (wallet, token), amount in amounts.items():
        if amount is not None:
            build.balance(wallet, token, amount)
    if webhook:
        build.insert("webhooks", webhook_id="w", body=b"{}", **webhook)
    build.connection.execute("COMMIT")
    return build.close()


AMOUNTS = st.one_of(
    st.integers(0, 5), st.sampled_from([2**53, 2**53 + 1, 2**255, 2**256 - 1]), st.none()
)
#: Amounts by wallet (1 to 6) and token (1 to 8).
HELD = st.dictionaries(st.tuples(st.integers(1, 6), st.integers(1, 8)), AMOUNTS, max_size=30)


def frame_of(held: dict[tuple[int, int], int | None]) -> pd.DataFrame:
    """Return holdings; odd wallets spell hex addresses in lower case."""
    texts = ["wallet_id", "wallet_label", "token_id", "contract_address"]
    rows = []
    for (wallet, token), amount in held.items():
        address = CONTRACTS[token % len(CONTRACTS)]
        if address and address.startswith("0x") and wallet % 2:
            address = address.lower()
        rows.append((wallet_id(wallet), f"Wallet {wallet}", token_id(token), address, amount))
    frame = pd.DataFrame(rows, columns=[*texts, "amount"], dtype=object)
    return frame.astype(dict.fromkeys(texts, "str"))
