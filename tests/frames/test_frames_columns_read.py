"""Columns read from SQLite: the same as pyarrow makes of the rows, whatever they hold."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from frames_database import Builder, at
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import StoreError
from nftsync.frames._source import Source

KINDS = [pa.large_string(), pa.large_string(), pa.int64(), pa.int64(), pa.float64()]
QUERY = "SELECT full, holes, whole, gaps, parts FROM given ORDER BY rowid"

_texts = st.text(max_size=5) | st.sampled_from(["", "\0", "a\0b", "é", "\U0001f3a8", "1" * 300])
_integers = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)
_rows = st.lists(
    st.tuples(
        _texts,
        st.none() | _texts,
        _integers,
        st.none() | _integers,
        st.none() | st.floats(allow_nan=False),
    ),
    max_size=12,
)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as made:
        made.execute(
            "CREATE TABLE given"
            " (full TEXT, holes TEXT, whole INTEGER, gaps INTEGER, parts REAL) STRICT"
        )
        yield made


def read(connection: sqlite3.Connection) -> list[pa.Array]:
    with closing(connection.cursor()) as cursor:
        return Source(cursor).columns(QUERY, KINDS)


@given(rows=_rows, times=st.sampled_from([1, 1, 1, 400]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_columns_are_what_pyarrow_makes_of_the_rows(
    rows: list[tuple[object, ...]], times: int, connection: sqlite3.Connection
) -> None:
    connection.execute("DELETE FROM given")
    connection.executemany("INSERT INTO given VALUES (?, ?, ?, ?, ?)", rows * times)
    plain = connection.execute(QUERY).fetchall()
    expected = [pa.array([row[place] for row in plain], kind) for place, kind in enumerate(KINDS)]
    for column, wanted in zip(read(connection), expected, strict=True):
        column.validate(full=True)
        assert column.type == wanted.type
        assert column.equals(wanted)


def test_text_that_is_not_utf_8_is_an_error_that_says_so(build: Builder) -> None:
    for token in range(1, 4):
        build.token(token, name=f"token {token}")
    build.connection.execute("UPDATE tokens SET name = CAST(X'61FF' AS TEXT) WHERE token_no = 2")
    path: Path = build.close()
    with pytest.raises(StoreError, match="not UTF-8"):
        frames.tokens(path)
    assert frames.wallets(path).empty


def test_rows_are_text_after_columns_were_read(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO given VALUES ('é', NULL, 1, NULL, NULL)")
    with closing(connection.cursor()) as cursor:
        source = Source(cursor)
        assert source.columns("SELECT full FROM given", [pa.large_string()])[0].to_pylist() == ["é"]
        assert list(source.rows("SELECT full FROM given")) == [("é",)]
        with pytest.raises(sqlite3.OperationalError):
            source.columns("SELECT nothing", [pa.large_string()])
        assert list(source.rows("SELECT full FROM given")) == [("é",)]


def test_both_times_of_a_balance_are_read_whether_they_agree_or_not(build: Builder) -> None:
    times = [(at(5), at(5)), (at(5), at(9)), (None, at(9)), (at(9), at(9)), (None, at(5))]
    build.wallet(1)
    for token, (since, updated) in enumerate(times, start=1):
        build.token(token)
        build.balance(1, token, "1", held_since=since, updated_at=updated)
    found = frames.holdings(build.close())[["held_since", "balance_updated_at"]]
    expected = [
        (pd.NaT if since is None else pd.Timestamp(since), pd.Timestamp(updated))
        for since, updated in times
    ]
    assert list(found.itertuples(index=False, name=None)) == expected


@pytest.mark.parametrize("column", ["held_since", "updated_at"])
@pytest.mark.parametrize("written", ["soon", f"{at(1)}|{at(2)}", f"{at(1)}|", f"|{at(1)}"])
def test_a_time_of_a_balance_that_is_none_is_an_error(
    column: str, written: str, build: Builder
) -> None:
    build.wallet(1)
    build.token(1)
    build.balance(1, 1, "1", **{column: written})
    path = build.close()
    with pytest.raises(StoreError, match="a time that nftsync did not write"):
        frames.holdings(path)
