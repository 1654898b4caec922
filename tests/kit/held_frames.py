"""Frames of holdings for tests of analyses, random or written by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pandas as pd
from hypothesis import strategies as st

from tests.kit.database import token_id, wallet_id

HEX = ("0x" + "ab" * 20, "0x" + "AB" * 20, "0x" + "aB" * 20, "0X" + "AB" * 20)
#: A Starknet address as wallets and explorers write it, and a package of Sui.
LONG = ("0x00da" + "7f" * 30, "0xDA" + "7f" * 30, "0x" + "0" * 62 + "02", "0x2")
CONTRACTS = (*HEX, *LONG, "0x" + "cd" * 20, "KT1abc", "kt1abc", "0x" + "ab" * 19, "", None)


def folded(address: str) -> str:
    """Return the one spelling of a contract."""
    if not re.fullmatch("0[xX][0-9a-fA-F]{1,64}", address):
        return address
    return address.lower() if len(address) == 42 else hex(int(address, 16))


def called(address: str) -> str:
    """Return the name of a contract without a name."""
    key = folded(address)
    return key if len(key) <= 20 else f"{key[:6]}…{key[-4:]}"


def exact_amount(text: str) -> int | None:
    """Return the amount that a text of 1 to 100 ASCII digits has, or None."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 100 else None


#: A holding: the number of the wallet, the number of the token, the amount as sent.
Held = tuple[int, int, str]

_AMOUNTS = st.one_of(
    st.integers(0, 3).map(str),
    st.integers(0, 2**256 - 1).map(str),
    st.integers(2**256 - 4, 2**256 - 1).map(str),
    st.sampled_from(["", "1.5", "-1", "0" * 101, "1" + "0" * 100, "1" + "0" * 99, "007", "many"]),
)


def holdings_of(
    wallets: int = 12, tokens: int = 12, size: int = 60
) -> st.SearchStrategy[dict[tuple[int, int], str]]:
    """Amounts by wallet and token."""
    pairs = st.tuples(st.integers(1, wallets), st.integers(1, tokens))
    return st.dictionaries(pairs, _AMOUNTS, max_size=size)


def frame_of_held(
    held: dict[tuple[int, int], str], about: Callable[[int], dict[str, Any]]
) -> pd.DataFrame:
    """Return a frame with the columns of the analyses, typed as by `frames.holdings`."""
    rows = [
        {
            "wallet_id": wallet_id(wallet),
            "token_id": token_id(token),
            "amount": exact_amount(amount),
            "amount_text": amount,
            **about(token),
        }
        for (wallet, token), amount in held.items()
    ]
    columns = ["wallet_id", "token_id", "amount", "amount_text", *about(1)]
    numbers = {"edition_id", "total_edition"}
    kinds = {name: "Int64" if name in numbers else "str" for name in columns if name != "amount"}
    return pd.DataFrame(rows, columns=columns, dtype=object).astype(kinds)


def counted(held: dict[tuple[int, int], str], exclude: set[int]) -> list[Held]:
    """Return the amounts that are holdings by definition."""
    return [
        (wallet, token, amount)
        for (wallet, token), amount in held.items()
        if wallet not in exclude and (amount.strip("0") or not amount)
    ]


def shown(frame: pd.DataFrame) -> list[list[object]]:
    """Return the rows as lists; None for missing values."""
    rows = frame.astype(object).where(frame.notna(), None).to_numpy(dtype=object)
    return [list(row) for row in rows]


def measures(amounts: list[int]) -> list[int | float | None]:
    """Return the measures `amount` to `nakamoto` of a group, computed in fractions."""
    if not amounts:
        return [0, None, None, None, None, None]
    x, total, n = sorted(amounts), sum(amounts), len(amounts)
    shares = [Fraction(amount, total) for amount in reversed(x)]
    weighted = sum(i * amount for i, amount in enumerate(x, start=1))
    gini = Fraction(2 * weighted, n * total) - Fraction(n + 1, n)
    nakamoto = next(k for k in range(1, n + 1) if sum(shares[:k]) > Fraction(1, 2))
    figures = (shares[0], sum(shares[:10]), sum(share * share for share in shares), gini)
    return [total, *map(float, figures), nakamoto]
