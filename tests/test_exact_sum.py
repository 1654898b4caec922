"""Amounts are summed exactly in SQL: in SQLite and in DuckDB; in Datasette, see the docs' tests."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import exact_sum

UINT256 = 2**256 - 1

#: Amounts in a database, and texts that are not amounts.
AMOUNTS = st.lists(
    st.none()
    | st.integers(0, UINT256).map(str)
    | st.just(str(UINT256))
    | st.text("0123456789", max_size=101)
    | st.sampled_from(
        ["", "1.5", "-1", " 1", "1_000", "1e3", "٣", "0x10", "NaN", "9" * 100, "9" * 101, "9" * 999]
    )
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    max_size=8,
)


def total(amounts: list[str | None]) -> str | None:
    """The exact sum of the amounts that frames have as numbers, as text; None of nothing."""
    numbers = [int(a) for a in amounts if a is not None and re.fullmatch("[0-9]{1,100}", a)]
    return str(sum(numbers)) if numbers else None


@pytest.fixture(scope="module")
def memory() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        exact_sum.register(connection)
        connection.execute("CREATE TABLE held (place INTEGER PRIMARY KEY, amount TEXT) STRICT")
        yield connection


def hold(connection: sqlite3.Connection, amounts: list[str | None]) -> None:
    connection.execute("DELETE FROM held")
    connection.executemany("INSERT INTO held VALUES (?, ?)", enumerate(amounts))


@given(AMOUNTS, st.integers(0, 3))
def test_sums_are_exact_and_skip_other_texts(memory, amounts, before):
    hold(memory, amounts)
    assert memory.execute("SELECT exact_sum(amount) FROM held").fetchone() == (total(amounts),)
    rows = memory.execute(
        "SELECT exact_sum(amount) OVER (ORDER BY place ROWS BETWEEN"
        f" {before} PRECEDING AND CURRENT ROW) FROM held ORDER BY place"
    ).fetchall()
    windows = [amounts[max(0, place - before) : place + 1] for place in range(len(amounts))]
    assert [row[0] for row in rows] == [total(window) for window in windows]


@given(AMOUNTS)
def test_keys_sort_as_the_numbers_do(memory, amounts):
    hold(memory, amounts)
    rows = memory.execute(
        "SELECT amount FROM held WHERE amount_key(amount) IS NOT NULL ORDER BY amount_key(amount)"
    ).fetchall()
    expected = [a for a in amounts if a is not None and re.fullmatch("[0-9]{1,999}", a)]
    assert [int(row[0]) for row in rows] == sorted(map(int, expected))


@given(
    st.text(st.sampled_from("09-a\0\u0662 "), max_size=4) | st.integers(98, 102).map("7".__mul__)
)
def test_the_condition_finds_amounts_without_a_sum(memory, text):
    query = f"SELECT {exact_sum.NOT_EXACT} FROM (SELECT ? AS amount)"
    assert bool(memory.execute(query, (text,)).fetchone()[0]) == (exact_sum.exact(text) is None)


def test_other_values_of_sqlite_are_no_amounts(memory):
    query = "SELECT exact_sum(column1) FROM (VALUES (NULL), (1.5), (x'31'), ('x'))"
    assert memory.execute(query).fetchone() == (None,)
    query = "SELECT exact_sum(column1), max(amount_key(column1)) FROM (VALUES (7), ('35'), (-9))"
    assert memory.execute(query).fetchone() == ("33", "00235")
    assert exact_sum.amount_key("1" * 1_000) is None
    assert exact_sum.amount_key(1.5) is None


#: The sum of docs/use/sql.md: the cast would round 1.5, so other texts must not reach it.
IN_DUCKDB = "sum(CASE WHEN regexp_full_match(amount, '[0-9]{1,100}') THEN amount::BIGNUM END)"


@given(AMOUNTS)
@settings(max_examples=30)
def test_duckdb_sums_a_file_exactly(tmp_path_factory, amounts):
    path = tmp_path_factory.getbasetemp() / "amounts.parquet"
    table = pa.table({"amount": pa.array(amounts, pa.string())})
    pq.write_table(table, path)
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT {IN_DUCKDB}::VARCHAR FROM '{path}'").fetchone()
    assert found == (total(amounts),)
