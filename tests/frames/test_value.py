"""Valuation with the user's prices."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nftsync
from nftsync import frames
from nftsync.errors import InputError
from tests.kit.database import Builder, token_id

ADDRESS = "0x" + "aB" * 20
PRICES = f"""\
contract,token_id,date,price,currency,source
{ADDRESS},,2026-01-31,1.10,EUR,appraisal
{ADDRESS},,2026-02-28,2.20,EUR,appraisal
,{token_id(2).upper()},2026-02-01,0.000000000000000001,ETH,
"""


@pytest.fixture
def holdings(tmp_path: Path) -> pd.DataFrame:
    """Two tokens of one contract, the second with the greatest amount, and one of another."""
    builder = Builder(tmp_path / "value.db")
    builder.wallet(1, label="Vault")
    for number, contract in ((1, ADDRESS), (2, ADDRESS), (3, "KT1")):
        builder.token(number, contract_address=contract)
    for number, amount in ((1, "3"), (2, str(2**256 - 1)), (3, "1")):
        builder.balance(1, number, amount)
    return frames.holdings(builder.close())


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.csv"
    path.write_text(PRICES)
    return path


def test_the_latest_price_up_to_the_date_counts_and_the_token_before_its_contract(
    holdings: pd.DataFrame, prices: Path
) -> None:
    with pytest.warns(nftsync.NftsyncWarning, match="1 of 3 holdings has no price at 2026-02-27"):
        frame = frames.value(holdings, prices, "2026-02-27")
    assert frame["price"].tolist() == [Decimal("1.10"), Decimal("1e-18"), None]
    assert frame["value"].tolist() == [Decimal("3.30"), Decimal(f"{2**256 - 1}e-18"), None]
    assert frame["currency"].tolist() == ["EUR", "ETH", None]
    assert frame["price_date"].tolist() == [date(2026, 1, 31), date(2026, 2, 1), None]
    assert frame["price_source"].tolist() == ["appraisal", None, None]
    table = pd.read_csv(prices, dtype={"price": str})
    for source in (prices, table):
        with pytest.warns(nftsync.NftsyncWarning):
            later = frames.value(holdings, source, date(2026, 2, 28))
        assert later["price"].tolist() == [Decimal("2.20"), Decimal("1e-18"), None]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("contract,date,price\nKT1,2026-01-01,1\n", "no column currency"),
        ("date,price,currency\n2026-01-01,1,EUR\n", "no column token_id or contract"),
        (
            "contract,date,price,currency\nKT1,2026-01-01,one,EUR\n",
            r"row 2 of the prices in \S+prices.csv, column price: 'one' is not a price",
        ),
        ("contract,date,price,currency\n\nKT1,2026-01-01,NaN,EUR\n", "row 3 of .+ is not a price"),
        ("contract,date,price,currency\nKT1,2026-01-01,-1,EUR\n", "is not a price"),
        ("contract,date,price,currency\nKT1,soon,1,EUR\n", "row 2 .+, column date: 'soon'"),
        (
            "contract,date,price,currency\nKT1,2026-01-01,1,\n",
            "row 2 .+, column currency: empty",
        ),
        (
            "contract,date,price,currency\n,2026-01-01,1,EUR\n",
            "row 2 .+ neither token_id nor contract",
        ),
        (
            "contract,date,price,currency\nKT1,2026-01-01,1,EUR\nKT1,2026-01-01,2,EUR\n",
            "prices.csv give KT1 two prices at 2026-01-01",
        ),
        ("", "cannot read the prices"),
    ],
)
def test_unusable_prices_are_named(
    holdings: pd.DataFrame, tmp_path: Path, table: str, text: str
) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(table)
    with pytest.raises(InputError, match=text):
        frames.value(holdings, path, "2026-03-01")


NAMED = "contract,date,price,currency\nSALT harbours,2026-01-01,7,EUR\n"


def test_a_collection_can_be_named_but_a_name_never_takes_the_place_of_an_address(
    holdings: pd.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / "named.csv"
    path.write_text(f"{NAMED}{ADDRESS},2026-01-02,8,EUR\n")
    # The second collection calls itself like the first one's address.
    names = ["Salt Harbours", "Salt Harbours", ADDRESS.lower()]
    named = holdings.assign(collection=names)
    with pytest.warns(nftsync.NftsyncWarning, match="1 of 3 holdings has no price"):
        assert frames.value(named, path, "2026-03-01")["price"].tolist() == [8, 8, None]
    path.write_text(NAMED)
    with pytest.raises(InputError, match="2 collections have this name; give the address instead"):
        frames.value(named.assign(collection="Salt Harbours"), path, "2026-03-01")
    path.write_text(f"{NAMED}{ADDRESS},2026-01-01,8,EUR\n")
    with pytest.raises(
        InputError, match=r"the prices give 0x\w+ two prices at 2026-01-01; keep one"
    ):
        frames.value(named, path, "2026-03-01")


@settings(max_examples=30)
@given(
    prices=st.lists(
        st.tuples(
            st.integers(0, 27), st.decimals(0, 10**12, places=18), st.sampled_from(["KT1", "KT2"])
        ),
        min_size=1,
        unique_by=lambda row: (row[0], row[2]),
    ),
    day=st.integers(0, 27),
    amounts=st.lists(st.integers(0, 2**256 - 1), min_size=2, max_size=4),
)
@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
def test_each_value_is_the_exact_product_of_the_latest_price_and_the_amount(
    prices: list[tuple[int, Decimal, str]], day: int, amounts: list[int]
) -> None:
    start = date(2026, 2, 1)
    contracts = [f"KT{1 + number % 2}" for number in range(len(amounts))]
    holdings = pd.DataFrame(
        {"token_id": "t", "contract": contracts, "amount": pd.Series(amounts, dtype=object)}
    )
    rows: list[dict[str, Any]] = [
        {"contract": contract, "date": start.replace(day=1 + n), "price": price, "currency": "EUR"}
        for n, price, contract in prices
    ]
    found = frames.value(holdings, pd.DataFrame(rows), start.replace(day=1 + day))["value"]
    for value, contract, amount in zip(found, contracts, amounts, strict=True):
        usable = [(n, price) for n, price, one in prices if one == contract and n <= day]
        expected = Fraction(max(usable)[1]) * amount if usable else None
        assert (None if value is None else Fraction(value)) == expected
