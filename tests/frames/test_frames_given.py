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
from frames_database import token_id, wallet_id

from nftsync import frames
from nftsync.errors import InputError
from nftsync.frames._given import given_holdings, integer_column, text_column

MOST = 2**256 - 1


def frame_of(amounts: Any, **columns: Any) -> pd.DataFrame:
    count = len(amounts)
    return pd.DataFrame(
        {
            "wallet_id": [wallet_id(number) for number in range(count)],
            "token_id": [token_id(number) for number in range(count)],
            "amount": amounts,
            **columns,
        }
    )


def objects(*amounts: object) -> pd.Series:
    return pd.Series(amounts, dtype=object)


def test_balances_of_zero_are_dropped_by_amount_and_else_by_text() -> None:
    frame = frame_of(
        objects(0, MOST, None, None, None, None, 5),
        amount_text=["0", str(MOST), "0" * 101, "1.5", "", None, "0"],
    )
    found = given_holdings(frame)
    assert found["amount"].tolist() == [MOST, None, None, None, 5]
    assert found["wallet_id"].tolist() == [wallet_id(number) for number in (1, 3, 4, 5, 6)]
    assert found.index.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("given", "exact"),
    [
        (np.array([1, 0, 3]), [1, 3]),
        (np.array([1, 2**63], dtype=np.uint64), [1, 2**63]),
        (pd.array([1, None, 0], dtype="Int64"), [1, None]),
        (pd.array([1, None], dtype=pd.ArrowDtype(pa.int64())), [1, None]),
        (objects(MOST, np.int64(2), np.uint8(0)), [MOST, 2]),
        (objects(MOST, float("nan"), pd.NA, pd.NaT), [MOST, None, None, None]),
        (objects(10**100 - 1), [10**100 - 1]),
        (pd.Series([], dtype=float), []),
    ],
)
def test_integers_of_every_kind_are_taken_exactly(given: Any, exact: list[int | None]) -> None:
    found = given_holdings(frame_of(given))["amount"]
    assert found.dtype == object
    assert found.tolist() == exact
    assert {type(amount) for amount in found} <= {int, type(None)}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ([1.0, 2.0], "float64"),
        ([1.0, None], "float64"),
        (["1", "2"], "str"),
        ([True, False], "bool"),
        (objects(1, 2.0), "float"),
        (objects(1, Decimal(2)), "Decimal"),
        (objects(1, True), "bool"),
        (objects(1, "2"), "str"),
        (objects(1, np.float64(2)), "float64"),
        (objects(1, np.True_), "bool"),
        (objects(1, -1), "negative"),
        (np.array([1, -1]), "negative"),
        (objects(10**100), "more than 100 digits"),
    ],
)
def test_amounts_that_may_have_been_something_else_are_refused(given: Any, names: str) -> None:
    with pytest.raises(InputError, match=rf"column 'amount'.*{names}.*whole numbers"):
        given_holdings(frame_of(given))


@pytest.mark.parametrize("name", ["wallet_id", "token_id", "amount", "contract_address"])
def test_a_missing_column_is_named(name: str) -> None:
    frame = frame_of(objects(1), contract_address=["a"]).drop(columns=name)
    with pytest.raises(InputError, match=rf"has no '{name}'.*frames\.holdings"):
        given_holdings(frame, needs=("wallet_id", "token_id", "amount", "contract_address"))


def test_a_column_that_stands_twice_is_refused() -> None:
    frame = pd.concat([frame_of(objects(1)), frame_of(objects(1))], axis=1)
    with pytest.raises(InputError, match="2 columns named 'wallet_id'"):
        given_holdings(frame)


@pytest.mark.parametrize("name", ["wallet_id", "token_id"])
def test_a_missing_id_is_refused(name: str) -> None:
    frame = frame_of(objects(1, 2))
    frame.loc[1, name] = None
    with pytest.raises(InputError, match=f"a row of the given frame has no {name}"):
        given_holdings(frame)


def test_rows_in_any_order_with_any_index_and_more_columns() -> None:
    frame = frame_of(objects(1, 2, 3, 4), more=[1.5, 2.5, 3.5, 4.5])
    frame.index = pd.Index([7, 7, 1, 1])
    found = given_holdings(frame.iloc[[3, 1, 0]])
    assert found["amount"].tolist() == [4, 2, 1]
    assert found["more"].tolist() == [4.5, 2.5, 1.5]
    assert found.index.tolist() == [0, 1, 2]


@pytest.mark.parametrize("amounts", [objects(1, 2), objects(1, 0), np.array([1, 2])])
def test_what_was_given_is_not_changed(amounts: Any) -> None:
    frame = frame_of(amounts)
    frame.index = pd.Index([5, 5])
    before = frame.copy(deep=True)
    found = given_holdings(frame, exclude=wallet_id(0))
    found.loc[:, "amount"] = 9
    found.loc[:, "wallet_id"] = "changed"
    pd.testing.assert_frame_equal(frame, before)


def test_excluded_wallets_match_whatever_their_case() -> None:
    frame = frame_of(objects(1, 2, 3))
    frame["wallet_id"] = frame["wallet_id"].str.upper()
    found = given_holdings(frame, [wallet_id(0), wallet_id(2).upper()])
    assert found["amount"].tolist() == [2]
    with pytest.raises(InputError, match="is not a wallet id"):
        given_holdings(frame, ["0xdead"])


@pytest.mark.parametrize("function", [frames.concentration, frames.overlap, frames.editions])
def test_each_analysis_refuses_a_frame_of_something_else(
    function: Callable[[Any], pd.DataFrame], small_database: Path
) -> None:
    with pytest.raises(InputError, match=r"give what frames\.holdings returns"):
        function(frames.wallets(small_database))


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["a", None], dtype="str"),
        pd.Series(["a", None], dtype=object),
        pd.Series(["a", float("nan")], dtype=object),
        pd.Series(["a", None], dtype="category"),
        pd.Series(["a", None], dtype=pd.StringDtype("python")),
        pd.Series(["a", None], dtype=pd.ArrowDtype(pa.string())),
        pd.Series(["a", None], dtype=pd.ArrowDtype(pa.string_view())),
    ],
)
def test_text_of_every_kind(column: pd.Series) -> None:
    assert text_column(pd.DataFrame({"name": column}), "name").to_pylist() == ["a", None]


@pytest.mark.parametrize("values", [[1, 2], [b"a", b"b"], ["a", 1], [["a"], ["b"]]])
def test_what_is_no_text_is_refused(values: list[Any]) -> None:
    with pytest.raises(InputError, match="'name' holds something else than text"):
        text_column(pd.DataFrame({"name": values}), "name")


@pytest.mark.parametrize(
    "column",
    [
        pd.array([5, None], dtype="Int64"),
        pd.array([5, None], dtype=pd.ArrowDtype(pa.int64())),
        pd.Series([5, None], dtype=object),
        pd.Series([5, None], dtype=float),
        pd.Series([5.0, None], dtype=object),
    ],
)
def test_integers_that_may_be_missing(column: Any) -> None:
    values, missing = integer_column(pd.DataFrame({"edition_id": column}), "edition_id")
    assert values.tolist() == [5, 0]
    assert missing.tolist() == [False, True]


@pytest.mark.parametrize(
    "values", [["5"], [5.5], [True], [2**63], [float("inf")], [Decimal(5)], [pd.Timestamp(0)]]
)
def test_what_is_no_machine_integer_is_refused(values: list[Any]) -> None:
    with pytest.raises(InputError, match="'edition_id' holds something else than 64-bit"):
        integer_column(pd.DataFrame({"edition_id": values}), "edition_id")
