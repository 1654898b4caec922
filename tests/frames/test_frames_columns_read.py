"""Columns read from SQLite: the same as pyarrow makes of the rows, whatever they hold."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from frames_database import Builder
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
