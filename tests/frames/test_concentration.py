from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError
from tests.kit.database import wallet_id
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
        with pytest.raises(InputError, match="give the name of a column"):
            frames.concentration(frame_of_held({(1, 1): "1"}, about), by=by)  # type: ignore[arg-type]
    frame = frame_of_held({(1, 1): "1"}, about)
    frame["tags"] = [["a", "list"]]
    with pytest.raises(InputError, match="cannot group holdings by 'tags'"):
        frames.concentration(frame, by="tags")
