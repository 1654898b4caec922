"""Valuation with the user's prices."""

import warnings
from datetime import date
from decimal import Decimal
from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nftsync
from nftsync import frames
from nftsync.errors import InputError, StoreError
from tests.kit.database import at, token_id

ADDRESS = "0x" + "aB" * 20
PRICES = f"""\
contract,token_id,date,price,currency,source
{ADDRESS},,2026-01-31,1.10,EUR,appraisal
{ADDRESS},,2026-02-28,2.20,EUR,appraisal
,{token_id(2).upper()},2026-02-01,0.000000000000000001,ETH,
"""


@pytest.fixture
def holdings(build):
    """Two tokens of one contract, the second with the greatest amount, and one of another."""
    build.wallet(1, label="Vault")
    held = [(1, ADDRESS, "3"), (2, ADDRESS, str(2**256 - 1)), (3, "KT1", "1")]
    for number, contract, amount in held:
        build.token(number, contract_address=contract)
        build.balance(1, number, amount)
    return frames.holdings(build.path)


@pytest.fixture
def prices(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text(PRICES)
    return path


def test_the_latest_price_up_to_the_date_counts_and_the_token_before_its_contract(holdings, prices):
    with pytest.warns(nftsync.NftsyncWarning, match="1 of 3 holdings has no price at 2026-02-27"):
        frame = frames.value(holdings, prices, "2026-02-27")
    columns = ["price", "value", "currency", "price_date", "price_source"]
    assert frame[columns].to_dict("list") == {
        "price": [Decimal("1.10"), Decimal("1e-18"), None],
        "value": [Decimal("3.30"), Decimal(f"{2**256 - 1}e-18"), None],
        "currency": ["EUR", "ETH", None],
        "price_date": [date(2026, 1, 31), date(2026, 2, 1), None],
        "price_source": ["appraisal", None, None],
    }
    for source in (prices, pd.read_csv(prices, dtype={"price": str})):
        with pytest.warns(nftsync.NftsyncWarning):
            later = frames.value(holdings, source, date(2026, 2, 28))
        assert later["price"].tolist() == [Decimal("2.20"), Decimal("1e-18"), None]


HEAD = "contract,date,price,currency\n"
FULL = "contract,token_id,date,price,currency"
NO_PRICE = r"\S+prices.csv, line 3, column price: .+ is not a price; write 1234.56"
NO_HEADINGS = "the first line of the prices file .+ must be headings"
NOT_PRICES = "one|NaN|-1|1e999999999|1e-999999999|0e-9999|1_000|1 000|１２|1,234.56|1.234,56|120,50"
NOT_PRICES += f"|€5|5 EUR|1'000|0x10|1e|Infinity|{'1' * 61}|0.{'0' * 60}1"
NOT_DAYS = ("soon", "01.02.2026", "02/01/2026", "31.12.2026", "２０２６-01-01", "46053")
UNUSABLE = [
    ("contract,date,price\nKT1,2026-01-01,1\n", "'price'; currency is missing"),
    ("contract,source\nKT1,x\n", "'source'; date and price and currency is missing"),
    ("date,price,currency\n2026-01-01,1,EUR\n", "; token_id or contract is missing"),
    (f"{HEAD[:-1]},Contract\nKT1,2026-01-01,1,EUR,KT2\n", "or remove 'contract', 'Contract'"),
    *((f'{HEAD}\nKT1,2026-01-01,"{price}",EUR\n', NO_PRICE) for price in NOT_PRICES.split("|")),
    *((f"{HEAD}KT1,{day},1,EUR\n", "line 2, column date: '.+' is not") for day in NOT_DAYS),
    (f"{HEAD}KT1,2026-01-01,1,\n", "line 2, column currency: empty; write a code such as EUR"),
    # A decimal comma without quotes shifts the cells by one.
    (f"{FULL}\nKT1,,2020-01-01,120,50,EUR\n", "line 2: 'EUR' has no heading; .* has 5 headings"),
    (f"{FULL},source\nKT1,,2020-01-01,120,50,EUR\n", "line 2, column currency: '50'; write a code"),
    (f'{HEAD}KT1,2026-01-01,1,"E\nR"\n', "column currency: 'E.nR'"),
    (f"{HEAD},2026-01-01,1,EUR\n", "line 2 has neither token_id nor contract"),
    (
        f"token_id,{HEAD[9:]}{token_id(2).replace('-', '‐')},2026-01-01,1,EUR\n",
        r"line 2, column token_id: .+U\+2010",
    ),
    (
        f"{HEAD}KT1,2026-01-01,1,EUR\nKT1,2026-01-01,2,EUR\n",
        "prices.csv give KT1 two prices at 2026-01-01",
    ),
    ("KT1,2026-01-01,1,EUR\n", NO_HEADINGS),
    ("", NO_HEADINGS),
]


@pytest.mark.parametrize(("table", "text"), UNUSABLE)
def test_unusable_prices_are_named(holdings, prices, table, text):
    prices.write_text(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match=text):
            frames.value(holdings, prices, "2026-03-01")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
def test_prices_are_read_as_spreadsheets_write_them(holdings, prices, encoding, separator, end):
    """Also with headings in any spelling, other columns, blank cells and rows, and comments."""
    rows = [
        ["Contract-Address", "Token ID", "DATE", "price", "Currency", "Source", "Näme", "", ""],
        [f"  0x{ADDRESS[2:].upper()}", "", "2026-01-31 ", " 1.50", "eur", "", "x", "", ""],
        [""] * 9,
        ["# Kõln", *[""] * 8] if encoding != "cp1252" else [""] * 9,
        [ADDRESS, "", "2026-02-28", "1.5E+0", "EUR", '"two\nlines"', "", "", ""],
        ["", token_id(2).upper(), "2026-02-01", ".25", " Eur ", "é", "", "", ""],
    ]
    prices.write_bytes(end.join(separator.join(row) for row in rows).encode(encoding))
    frame = frames.value(holdings, prices, "2026-03-01")
    assert frame["price"].tolist() == [Decimal("1.5"), Decimal("0.25"), None]
    assert frame["currency"].tolist() == ["EUR", "EUR", None]
    assert frame["price_source"].tolist() == ["two\nlines", "é", None]


def test_a_frame_of_prices_has_the_rules_of_a_file(holdings):
    row = {"contract": f" {ADDRESS}", "date": "2026-01-01 ", "price": 1.5, "currency": "eur "}
    others = {"contract_address": "KT9", "note": None, "token_id": float("nan")}
    prices = pd.DataFrame([row | others, dict.fromkeys(row)], index=[7, 7])
    with pytest.warns(nftsync.NftsyncWarning, match="1 of 3"):
        frame = frames.value(holdings, prices.rename(columns={"date": "Date"}), "2026-03-01")
    assert frame["price"].tolist() == [Decimal("1.5")] * 2 + [None]
    assert frame["currency"].tolist() == ["EUR", "EUR", None]
    for change, problem in (
        ({"price": "1,5"}, "the prices, row 1, column price: '1,5' is not a price"),
        ({"price": True}, "column price: True is not a price"),
        ({"price": None}, "column price: '' is not a price"),
        ({"currency": 50}, "row 1, column currency: 50; write a code"),
        ({"date": pd.NaT}, "row 1, column date: '' is not a time"),
    ):
        with pytest.raises(InputError, match=problem):
            frames.value(holdings, pd.DataFrame([row, row | change]), "2026-03-01")
    with pytest.raises(InputError, match="each at most once. Rename or remove 'price', 'price'"):
        frames.value(holdings, pd.concat([prices, prices["price"]], axis=1))


def test_a_database_is_valued_like_its_holdings(holdings, prices, build, tmp_path):
    for db in (build.path, str(build.path)):
        with pytest.warns(nftsync.NftsyncWarning, match="1 of 3 holdings has no price"):
            expected, found = (frames.value(source, prices) for source in (holdings, db))
        pd.testing.assert_frame_equal(found, expected)
    with pytest.raises(StoreError, match="there is no database at .*none.db"):
        frames.value(tmp_path / "none.db", prices)


def test_a_database_is_valued_as_of_the_date_of_the_prices(build, prices):
    build.wallet(1)
    build.token(1, contract_address=ADDRESS)
    build.balance(1, 1, "5")
    build.change(1, 1, None, "3", 0, baseline=1)
    build.change(1, 1, "3", "5", 10)
    table = pd.read_csv(prices).assign(date="2020-01-01").iloc[:1]
    for moment, amount in ((at(5), 3), (at(10), 5)):
        assert frames.value(build.path, table, moment)["amount"].tolist() == [amount]


NAMED = "contract,date,price,currency\nSALT harbours,2026-01-01,7,EUR\n"


def test_a_collection_can_be_named_but_a_name_never_takes_the_place_of_an_address(holdings, prices):
    prices.write_text(f"{NAMED}{ADDRESS},2026-01-02,8,EUR\n")
    # The second collection calls itself like the first one's address.
    named = holdings.assign(collection=["Salt Harbours", "Salt Harbours", ADDRESS.lower()])
    with pytest.warns(nftsync.NftsyncWarning, match="1 of 3 holdings has no price"):
        assert frames.value(named, prices, "2026-03-01")["price"].tolist() == [8, 8, None]
    for held, table, text in (
        (named.assign(collection="Salt Harbours"), NAMED, "2 collections have this name; give the"),
        (
            named,
            f"{NAMED}{ADDRESS},2026-01-01,8,EUR\n",
            r"the prices give 0x\w+ two prices at 2026",
        ),
    ):
        prices.write_text(table)
        with pytest.raises(InputError, match=text):
            frames.value(held, prices, "2026-03-01")


@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
def test_an_unknown_name_is_a_warning_where_no_token_has_a_contract(build):
    build.wallet(1)
    build.token(1)
    build.balance(1, 1, "1")
    build.change(1, 1, None, "1", 1)
    row = {"contract": "x", "date": at(0)[:10], "price": "1", "currency": "EUR"}
    with pytest.warns(nftsync.NftsyncWarning, match="name 'x', which matches no known collection"):
        frames.statement(build.path, at(2), prices=pd.DataFrame([row]))


@settings(max_examples=30)
@given(
    prices=st.dictionaries(
        st.tuples(st.sampled_from(["KT1", "KT2"]), st.integers(0, 27)),
        st.decimals(0, 10**12, places=18),
        min_size=1,
    ),
    day=st.integers(0, 27),
    amounts=st.lists(st.integers(0, 2**256 - 1), min_size=2, max_size=4),
)
@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
def test_each_value_is_the_exact_product_of_the_latest_price_and_the_amount(prices, day, amounts):
    contracts = [f"KT{1 + number % 2}" for number in range(len(amounts))]
    holdings = pd.DataFrame(
        {"token_id": "t", "contract": contracts, "amount": pd.Series(amounts, dtype=object)}
    )
    rows = [
        {"contract": contract, "date": date(2026, 2, 1 + n), "price": price, "currency": "EUR"}
        for (contract, n), price in prices.items()
    ]
    found = frames.value(holdings, pd.DataFrame(rows), date(2026, 2, 1 + day))["value"]
    for value, contract, amount in zip(found, contracts, amounts, strict=True):
        usable = [n for one, n in prices if one == contract and n <= day]
        expected = Fraction(prices[contract, max(usable)]) * amount if usable else None
        assert (None if value is None else Fraction(value)) == expected
