"""What an analysis takes for holdings, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from nftsync import frames
from nftsync.errors import InputError
from tests.kit.database import token_id, wallet_id

MOST = 2**256 - 1


def frame_of(amounts: Any, **columns: Any) -> pd.DataFrame:
    """A wallet and a token each, of one contract."""
    count = len(amounts)
    return pd.DataFrame(
        {
            "wallet_id": [wallet_id(number) for number in range(count)],
            "token_id": [token_id(number) for number in range(count)],
            "contract_address": "KT1",
            "amount": amounts,
            **columns,
        }
    )


def objects(*amounts: object) -> pd.Series:
    return pd.Series(amounts, dtype=object)


def amounts_of(frame: pd.DataFrame, **options: Any) -> list[tuple[int, int]]:
    """What counts of each wallet, in the order of their ids: how much, and how many unknown."""
    found = frames.concentration(frame, by="wallet_id", amounts="exact", **options)
    found = found.sort_values("wallet_id")
    assert {type(amount) for amount in found["amount"]} <= {int}
    return list(zip(found["amount"], found["unknown_amounts"], strict=True))


def test_balances_of_zero_are_dropped_by_amount_and_else_by_text() -> None:
    texts = ["0", str(MOST), "0" * 101, "1.5", "", None, "0"]
    frame = frame_of(objects(0, MOST, None, None, None, None, 5), amount_text=texts)
    assert amounts_of(frame) == [(MOST, 0), (0, 1), (0, 1), (0, 1), (5, 0)]


@pytest.mark.parametrize(
    ("given", "exact"),
    [
        (np.array([1, 0, 3]), [(1, 0), (3, 0)]),
        (np.array([1, 2**63], dtype=np.uint64), [(1, 0), (2**63, 0)]),
        (pd.array([1, None, 0], dtype="Int64"), [(1, 0), (0, 1)]),
        (pd.array([1, None], dtype=pd.ArrowDtype(pa.int64())), [(1, 0), (0, 1)]),
        (objects(MOST, np.int64(2), np.uint8(0)), [(MOST, 0), (2, 0)]),
        (objects(MOST, float("nan"), pd.NA, pd.NaT), [(MOST, 0), *[(0, 1)] * 3]),
        (objects(10**100 - 1), [(10**100 - 1, 0)]),
        (pd.Series([], dtype=float), []),
    ],
)
def test_integers_of_every_kind_are_taken_exactly(given: Any, exact: list[Any]) -> None:
    assert amounts_of(frame_of(given)) == exact


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ([1.0, None], "float64"),
        (["1", "2"], "str"),
        ([True, False], "bool"),
        *((objects(1, other), "mixed") for other in (2.0, Decimal(2), True, "2", np.True_)),
        (np.array([1, -1]), "negative"),
        (objects(10**100), "more than 100 digits"),
    ],
)
def test_amounts_that_may_have_been_something_else_are_refused(given: Any, names: str) -> None:
    with pytest.raises(InputError, match=rf"column 'amount'.*{names}.*whole numbers"):
        frames.concentration(frame_of(given))


@pytest.mark.parametrize("name", ["wallet_id", "token_id", "amount", "contract_address"])
def test_columns_and_ids_that_are_missing_or_stand_twice_are_named(name: str) -> None:
    frame = frame_of(objects(1, 2))
    with pytest.raises(InputError, match=rf"is named '{name}'.*frames\.holdings"):
        frames.concentration(frame.drop(columns=name))
    with pytest.raises(InputError, match=f"2 columns named '{name}'"):
        frames.concentration(pd.concat([frame, frame[[name]]], axis=1))
    if name.endswith("id"):
        frame.loc[1, name] = None
        with pytest.raises(InputError, match=f"a row of the frame has no {name}"):
            frames.concentration(frame)


def test_what_was_given_is_not_changed_whatever_its_index_and_more_columns() -> None:
    for amounts in (objects(1, 2, 0), np.array([1, 2, 0]), objects(1, 2, 3)):
        frame = frame_of(amounts, more=[1.5, 2.5, 3.5]).iloc[[1, 0, 2]]
        frame.index = pd.Index([7, 7, 1])
        before = frame.copy(deep=True)
        assert amounts_of(frame, exclude=wallet_id(2)) == [(1, 0), (2, 0)]
        pd.testing.assert_frame_equal(frame, before)


def test_excluded_wallets_match_whatever_their_case() -> None:
    frame = frame_of(objects(1, 2, 3))
    frame["wallet_id"] = frame["wallet_id"].str.upper()
    assert amounts_of(frame, exclude=[wallet_id(0), wallet_id(2).upper()]) == [(2, 0)]
    with pytest.raises(InputError, match="name wallets by id"):
        frames.concentration(frame, exclude=["0xdead"])


@pytest.mark.parametrize("function", [frames.concentration, frames.overlap, frames.editions])
def test_each_analysis_refuses_a_frame_of_something_else(
    function: Callable[[Any], pd.DataFrame], small_database: Path
) -> None:
    with pytest.raises(InputError, match=r"use a frame from frames\.holdings"):
        function(frames.wallets(small_database))


@pytest.mark.parametrize(
    "kind",
    [
        *("str", object, "category", pd.StringDtype("python"), pd.ArrowDtype(pa.string())),
    ],
)
def test_text_of_every_kind_and_nothing_else(kind: Any) -> None:
    frame = frame_of([1, 1], contract_address=pd.Series(["a", None], dtype=kind))
    found = frames.concentration(frame)["contract_address"]
    assert found.dropna().tolist() == ["a"]
    assert len(found) == 2
    for wrong in ([1, 2], [b"a", b"b"], ["a", 1], [["a"], ["b"]]):
        with pytest.raises(InputError, match="'contract_address' has values other than text"):
            frames.concentration(frame_of([1, 1], contract_address=wrong))


def test_integers_that_may_be_missing_and_nothing_else() -> None:
    for column in (
        pd.array([5, None], dtype="Int64"),
        pd.array([5, None], dtype=pd.ArrowDtype(pa.int64())),
        pd.Series([5, None], dtype=object),
        pd.Series([5, None], dtype=float),
        pd.Series([5.0, None], dtype=object),
    ):
        frame = frame_of([1, 1], name="A", edition_id=column, total_edition=[7, 7])
        found = frames.editions(frame).set_index("numbered")["lowest"]
        assert found[True] == 5
        assert found[False] is pd.NA
    for wrong in ("5", 5.5, True, 2**63, float("inf"), Decimal(5), pd.Timestamp(0)):
        frame = frame_of([1], name="A", edition_id=[wrong], total_edition=[7])
        with pytest.raises(InputError, match="'edition_id' has values other than 64-bit"):
            frames.editions(frame)
