from __future__ import annotations

from itertools import combinations
from typing import Any

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from tests.kit.database import token_id, wallet_id
from tests.kit.held_frames import (
    CONTRACTS,
    Held,
    called,
    counted,
    folded,
    frame_of_held,
    holdings_of,
)

NEARLY_HEX = tuple(
    before + digits * 20 + after
    for before, after in [("0x", "Z"), ("A0x", ""), ("0x", "\n"), ("0x", "a")]
    for digits in ("ab", "AB")
)
ADDRESSES = (*CONTRACTS, *NEARLY_HEX)


def about(token: int) -> dict[str, Any]:
    return {"contract_address": ADDRESSES[token % len(ADDRESSES)]}


def expected(rows: list[Held]) -> list[list[object]]:
    wallets: dict[str, set[int]] = {}
    for wallet, token, _ in rows:
        name = about(token)["contract_address"]
        if name is not None:
            wallets.setdefault(folded(name), set()).add(wallet)
    found = []
    for a, b in combinations(sorted(wallets), 2):
        both = len(wallets[a] & wallets[b])
        if both:
            either = len(wallets[a] | wallets[b])
            sizes = (len(wallets[a]), len(wallets[b]))
            found.append([a, b, called(a), called(b), *sizes, both, both / either])
    return sorted(found, key=lambda row: (-row[6], row[0], row[1]))


@settings(max_examples=40)
@given(holdings_of(wallets=8, tokens=30, size=120), st.sets(st.integers(1, 8), max_size=2))
def test_agrees_with_the_definition(held: dict[tuple[int, int], str], out: set[int]) -> None:
    found = frames.overlap(
        frame_of_held(held, about), exclude=[wallet_id(number) for number in out]
    )
    assert found.to_numpy(dtype=object).tolist() == expected(counted(held, out))


def test_more_pairs_than_are_looked_at_together() -> None:
    """60 wallets that hold 400 contracts make 4.8 million of them."""
    contracts = [f"KT{number:04}" for number in range(400)]
    holders = [wallet_id(number) for number in range(60)]
    frame = pd.DataFrame(
        [(holder, contract, 1) for holder in holders for contract in contracts],
        columns=["wallet_id", "contract_address", "amount"],
    )
    few = frame[:400:100].assign(wallet_id=wallet_id(61))
    found = frames.overlap(pd.concat([frame, few]).assign(token_id=token_id(1)))
    assert list(zip(found["contract_a"], found["contract_b"], strict=True)) == [
        *combinations(contracts[::100], 2),
        *(pair for pair in combinations(contracts, 2) if not set(pair) <= set(contracts[::100])),
    ]
    assert found["both"].tolist() == [61] * 6 + [60] * (400 * 399 // 2 - 6)
