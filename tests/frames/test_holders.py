"""Concentration of holders and overlap between contracts, against their definitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError
from tests.kit.database import token_id, wallet_id
from tests.kit.held_frames import (
    CONTRACTS,
    Held,
    called,
    counted,
    folded,
    frame_of_held,
    holdings_of,
    measures,
    shown,
)


def contract_of(token: int) -> str | None:
    return CONTRACTS[token % len(CONTRACTS)]


def about(token: int) -> dict[str, Any]:
    return {"contract_address": contract_of(token), "edition_id": token % 3 or None}


def known(amount: str) -> int | None:
    return int(amount) if amount.isascii() and amount.isdigit() and len(amount) <= 100 else None


def expected(rows: list[Held], group_of: Callable[[int], Any]) -> list[list[object]]:
    groups: dict[Any, list[Held]] = defaultdict(list)
    names: dict[Any, Any] = {}
    for row in rows:
        name = group_of(row[1])
        key = folded(name) if isinstance(name, str) else name
        names.setdefault(key, name)
        groups[key].append(row)
    found = []
    for key, held in groups.items():
        totals: dict[int, int] = defaultdict(int)
        for wallet, _, amount in held:
            if (value := known(amount)) is not None:
                totals[wallet] += value
        found.append(
            [
                names[key],
                len({token for _, token, _ in held}),
                len({wallet for wallet, _, _ in held}),
                *measures(list(totals.values())),
                sum(known(amount) is None for _, _, amount in held),
            ]
        )
    return sorted(found, key=lambda row: (-row[2], row[0] is None, row[0] or ""))


@settings(max_examples=40)
@given(holdings_of(), st.sets(st.integers(1, 12), max_size=3))
def test_agrees_with_the_definitions(held: dict[tuple[int, int], str], out: set[int]) -> None:
    frame = frames.concentration(
        frame_of_held(held, about), exclude=[wallet_id(number).upper() for number in out]
    )
    assert shown(frame) == [
        [name, *((None, None) if name is None else (folded(name), called(name))), *rest]
        for name, *rest in expected(counted(held, out), contract_of)
    ]


@settings(max_examples=30)
@given(holdings_of(wallets=40, tokens=2, size=80))
def test_agrees_where_groups_have_many_holders(held: dict[tuple[int, int], str]) -> None:
    frame = frames.concentration(frame_of_held(held, about), by="edition_id")
    assert shown(frame) == expected(counted(held, set()), lambda token: token % 3 or None)
    assert frame["edition_id"].dtype == "Int64"


@pytest.mark.parametrize(
    ("values", "ordered"),
    [
        ([3, 10, 2], [2, 3, 10]),
        (["b", 1, "a"], [1, "a", "b"]),
        (pd.Categorical(["y", "x", "y"], categories=["y", "x"]), ["y", "x"]),
        ([(1, 2), (0, 1), None], [(0, 1), (1, 2), None]),
    ],
)
def test_any_column_may_name_the_groups(values: Any, ordered: list[Any]) -> None:
    held = {(1, token): "1" for token in range(1, len(values) + 1)}
    frame = frame_of_held(held, about)
    frame["kind"] = pd.Series(values, index=frame.index)
    found = frames.concentration(frame, "kind")
    assert found["kind"].dtype == frame["kind"].dtype
    assert list(found["kind"]) == ordered
    assert int(found["tokens"].sum()) == len(values)


def test_what_cannot_name_groups_is_refused() -> None:
    for by in ("holders", "unknown_amounts", None, ["token_id"], 1):
        with pytest.raises(InputError, match="name a column of the frame"):
            frames.concentration(frame_of_held({(1, 1): "1"}, about), by=by)  # type: ignore[arg-type]
    frame = frame_of_held({(1, 1): "1"}, about)
    frame["tags"] = [["a", "list"]]
    with pytest.raises(InputError, match="cannot group holdings by 'tags'"):
        frames.concentration(frame, by="tags")


NEARLY_HEX = tuple(
    before + digits * 20 + after
    for before, after in [("0x", "Z"), ("A0x", ""), ("0x", "\n"), ("0x", "a")]
    for digits in ("ab", "AB")
)
ADDRESSES = (*CONTRACTS, *NEARLY_HEX)


def of_address(token: int) -> dict[str, Any]:
    return {"contract_address": ADDRESSES[token % len(ADDRESSES)]}


def in_common(rows: list[Held]) -> list[list[object]]:
    wallets: dict[str, set[int]] = {}
    for wallet, token, _ in rows:
        name = of_address(token)["contract_address"]
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
def test_overlap_agrees_with_the_definition(
    held: dict[tuple[int, int], str], out: set[int]
) -> None:
    found = frames.overlap(
        frame_of_held(held, of_address), exclude=[wallet_id(number) for number in out]
    )
    assert found.to_numpy(dtype=object).tolist() == in_common(counted(held, out))


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
