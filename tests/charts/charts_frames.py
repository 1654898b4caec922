"""Frames of holdings, as hypothesis makes them."""

from __future__ import annotations

import pandas as pd
from charts_world import CONTRACTS
from frames.frames_database import token_id, wallet_id
from hypothesis import strategies as st

AMOUNTS = st.one_of(
    st.integers(0, 5), st.sampled_from([2**53, 2**53 + 1, 2**255, 2**256 - 1]), st.none()
)

#: Amounts by wallet (1 to 6) and token (1 to 8).
HELD = st.dictionaries(st.tuples(st.integers(1, 6), st.integers(1, 8)), AMOUNTS, max_size=30)


def spelled(token: int, wallet: int) -> str | None:
    """The contract of a token; hex addresses by some in lower case."""
    address = CONTRACTS[token % len(CONTRACTS)]
    if address is None or not address.startswith("0x"):
        return address
    return address.lower() if wallet % 2 else address


def frame_of(held: dict[tuple[int, int], int | None]) -> pd.DataFrame:
    pairs = list(held)
    return pd.DataFrame(
        {
            "wallet_id": pd.Series([wallet_id(wallet) for wallet, _ in pairs], dtype="str"),
            "wallet_label": pd.Series([f"Wallet {wallet}" for wallet, _ in pairs], dtype="str"),
            "token_id": pd.Series([token_id(token) for _, token in pairs], dtype="str"),
            "contract_address": pd.Series(
                [spelled(token, wallet) for wallet, token in pairs], dtype="str"
            ),
            "amount": pd.Series([held[pair] for pair in pairs], dtype=object),
        }
    )
