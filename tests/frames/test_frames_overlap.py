from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from frames_database import token_id, wallet_id
from held_frames import CONTRACTS, Held, counted, frame_of_held, holdings_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nftsync.frames._columns import contract_groups, contract_key
from nftsync.frames._concentration import overlap_by

NEARLY_HEX = tuple(
    before + digits * 20 + after
    for before, after in [("0x", "Z"), ("A0x", ""), ("0x", "\n"), ("0x", "a")]
    for digits in ("ab", "AB")
)


def about(token: int) -> dict[str, Any]:
    return {"contract_address": CONTRACTS[token % len(CONTRACTS)]}


def expected(rows: list[Held]) -> list[list[object]]:
    names: dict[str, str] = {}
    wallets: dict[str, set[int]] = {}
    for wallet, token, _ in rows:
        name = about(token)["contract_address"]
        if name is not None:
            shown = names.setdefault(contract_key(name), name)
            wallets.setdefault(shown, set()).add(wallet)
    found = []
    for a, b in combinations(sorted(wallets), 2):
        both = len(wallets[a] & wallets[b])
        if both:
            either = len(wallets[a] | wallets[b])
            found.append([a, b, len(wallets[a]), len(wallets[b]), both, both / either])
    return sorted(found, key=lambda row: (-row[4], row[0], row[1]))


@settings(deadline=None)
@given(
    holdings_of(wallets=8, tokens=30, size=120),
    st.sets(st.integers(1, 8), max_size=2),
    st.sampled_from([1, 2, 5, 1 << 22]),
)
def test_agrees_with_the_definition(
    held: dict[tuple[int, int], str], out: set[int], at_once: int
) -> None:
    """However few pairs are looked at together."""
    frame = frame_of_held(held, about)
    found = overlap_by(frame, [wallet_id(number) for number in out], at_once)
    assert found.to_numpy(dtype=object).tolist() == expected(counted(held, out))


@pytest.mark.parametrize("at_once", [100, 1 << 22])
def test_many_contracts_that_few_wallets_hold(at_once: int) -> None:
    """Sparse and dense parts are counted differently, with the same result."""
    rng = np.random.default_rng(4)
    wallet = np.concatenate([rng.integers(0, 400, 1_500), np.full(300, 500), np.full(300, 501)])
    contract = np.concatenate([rng.integers(0, 900, 1_500), np.arange(300), np.arange(300)])
    frame = pd.DataFrame(
        {
            "wallet_id": [wallet_id(number) for number in wallet.tolist()],
            "token_id": [token_id(number) for number in range(len(wallet))],
            "contract_address": [f"KT{number:04}" for number in contract.tolist()],
            "amount": np.ones(len(wallet), dtype=np.int64),
        }
    )
    held: dict[str, set[str]] = {}
    for name, holder in zip(frame["contract_address"], frame["wallet_id"], strict=True):
        held.setdefault(name, set()).add(holder)
    pairs = {
        (a, b): len(held[a] & held[b])
        for a, b in combinations(sorted(held), 2)
        if held[a] & held[b]
    }
    found = overlap_by(frame, (), at_once)
    assert len(pairs) > 40_000
    assert (
        dict(
            zip(
                zip(found["contract_a"], found["contract_b"], strict=True),
                found["both"],
                strict=True,
            )
        )
        == pairs
    )
    order = list(zip(-found["both"], found["contract_a"], found["contract_b"], strict=True))
    assert order == sorted(order)


def test_one_contract_makes_more_pairs_than_are_looked_at_together() -> None:
    held = {(wallet, token): "1" for wallet in range(1, 30) for token in (4, 5, 6)}
    names = {4: "a", 5: "b", 6: "c"}
    frame = frame_of_held(held, lambda token: {"contract_address": names.get(token)})
    assert overlap_by(frame, (), 10).to_numpy(dtype=object).tolist() == [
        ["a", "b", 29, 29, 29, 1.0],
        ["a", "c", 29, 29, 29, 1.0],
        ["b", "c", 29, 29, 29, 1.0],
    ]


@example([*CONTRACTS, *NEARLY_HEX])
@given(st.lists(st.sampled_from([*CONTRACTS, *NEARLY_HEX]) | st.text() | st.none()))
def test_contracts_are_numbered_by_what_their_spellings_have_in_common(
    addresses: list[str | None],
) -> None:
    numbers, spellings = contract_groups(pa.array(addresses, pa.large_string()))
    first: dict[str, str] = {}
    for address in addresses:
        if address is not None:
            first.setdefault(contract_key(address), address)
    assert spellings.to_pylist() == [*first.values(), None]
    keys = list(first)
    assert numbers.tolist() == [
        len(keys) if address is None else keys.index(contract_key(address)) for address in addresses
    ]
