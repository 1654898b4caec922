"""Amounts are summed exactly in SQL: in SQLite, in Datasette and in DuckDB."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mirrored_site import CLEAN, Site

from nftsync import exact_sum, frames
from nftsync.reports.export import write_parquet

UINT256 = 2**256 - 1

#: What a database may hold as an amount, and what is none.
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


def number(amount: str | None) -> int | None:
    """An amount as frames have it."""
    return int(amount) if amount is not None and re.fullmatch("[0-9]{1,100}", amount) else None


def total(amounts: list[str | None]) -> str | None:
    """The exact sum, as text; None of nothing."""
    numbers = [found for amount in amounts if (found := number(amount)) is not None]
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


# SQLite -----------------------------------------------------------------------------------------


@given(AMOUNTS, st.integers(0, 3))
def test_the_sum_is_exact_also_of_a_window_and_passes_over_what_is_no_amount(
    memory: sqlite3.Connection, amounts: list[str | None], before: int
) -> None:
    hold(memory, amounts)
    assert memory.execute("SELECT exact_sum(amount) FROM held").fetchone() == (total(amounts),)
    rows = memory.execute(
        "SELECT exact_sum(amount) OVER (ORDER BY place ROWS BETWEEN"
        f" {before} PRECEDING AND CURRENT ROW) FROM held ORDER BY place"
    ).fetchall()
    windows = [amounts[max(0, place - before) : place + 1] for place in range(len(amounts))]
    assert [row[0] for row in rows] == [total(window) for window in windows]


@given(AMOUNTS)
def test_keys_sort_as_the_numbers_do(memory: sqlite3.Connection, amounts: list[str | None]) -> None:
    hold(memory, amounts)
    rows = memory.execute(
        "SELECT amount FROM held WHERE amount_key(amount) IS NOT NULL ORDER BY amount_key(amount)"
    ).fetchall()
    expected = [a for a in amounts if a is not None and re.fullmatch("[0-9]{1,999}", a)]
    assert [int(row[0]) for row in rows] == sorted(map(int, expected))


def test_other_values_of_sqlite_are_no_amounts(memory: sqlite3.Connection) -> None:
    query = "SELECT exact_sum(column1) FROM (VALUES (NULL), (1.5), (x'31'), ('x'))"
    assert memory.execute(query).fetchone() == (None,)
    query = "SELECT exact_sum(column1), max(amount_key(column1)) FROM (VALUES (7), ('35'), (-9))"
    assert memory.execute(query).fetchone() == ("33", "00235")
    assert exact_sum.amount_key("1" * 1_000) is None
    assert exact_sum.amount_key(1.5) is None


# Datasette --------------------------------------------------------------------------------------


@contextmanager
def datasette(database: Path) -> Iterator[str]:
    """Datasette in a process of its own, as its command starts it; yields its address."""
    with subprocess.Popen(
        [sys.executable, "-m", "datasette", "serve", str(database), "--port", "0"],
        cwd=database.parent,
        env=CLEAN,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stderr is not None
        said = iter(server.stderr.readline, "")
        found = (re.search(r"running on (http://127\.0\.0\.1:[0-9]+)", line) for line in said)
        try:
            yield next(match[1] for match in found if match)
        finally:
            server.terminate()
            server.communicate(timeout=30)


def test_datasette_follows_a_live_database_and_harms_nothing(site: Site) -> None:
    """By the entry point; while nftsync writes beside it, it sees each commit whole."""
    query = "SELECT wallet_id, exact_sum(amount) AS total FROM holdings GROUP BY wallet_id"
    parameters = urlencode({"sql": query, "_shape": "array"})
    wallet = site.ids[0]
    with datasette(site.database) as url:
        for amount in range(1, 4):
            for token in site.held(wallet):
                site.world.set_amount(wallet, token, str(amount * UINT256))
            site.sync()
            with urlopen(f"{url}/mirror.json?{parameters}", timeout=30) as answer:
                found = {row["wallet_id"]: row["total"] for row in json.load(answer)}
            sums = frames.holdings(site.database).groupby("wallet_id")["amount"].sum()
            assert found == {wallet_id: str(total) for wallet_id, total in sums.items()}
            assert found[wallet] == str(amount * UINT256 * 5)
    with closing(sqlite3.connect(site.database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# DuckDB -----------------------------------------------------------------------------------------

#: How docs/sql.md sums there: what is no amount must not reach the cast, which would round 1.5.
IN_DUCKDB = "sum(CASE WHEN regexp_full_match(amount, '[0-9]{1,100}') THEN amount::BIGNUM END)"


@given(AMOUNTS)
@settings(max_examples=30)
def test_duckdb_sums_exactly_what_a_file_holds(
    tmp_path_factory: pytest.TempPathFactory, amounts: list[str | None]
) -> None:
    path = tmp_path_factory.getbasetemp() / "amounts.parquet"
    with path.open("wb") as file:
        rows = [[(amount,) for amount in amounts]] if amounts else []
        write_parquet(file, {"amount": "amount"}, rows)
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT {IN_DUCKDB}::VARCHAR FROM '{path}'").fetchone()
    assert found == (total(amounts),)
