"""Tables read a stretch at a time: what reading row by row gives, whatever the texts hold."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
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
from nftsync.frames._source import Table, read_stretches

TEXT, INTEGER = pa.large_string(), pa.int64()
#: What stands between joined values and for missing ones, and what looks like both.
ODD = [
    "\x1f",
    "\x1e",
    "\x1e\x1f\x1e",
    "a\x1fb",
    "\x1f\x1f",
    "a\x1e",
    "",
    "\0",
    "a\0\x1e",
    "é🎨",
    "'",
]
COLUMNS = (("full", TEXT), ("holes", TEXT), ("gaps", INTEGER))

_texts = st.sampled_from(ODD) | st.text(max_size=4)
_rows = st.lists(
    st.tuples(
        st.integers(1, 6) | st.integers(-(2**63), 2**63 - 1),
        _texts,
        st.none() | _texts,
        st.none() | st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=12,
)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as made:
        made.execute(
            "CREATE TABLE given (major INTEGER, minor INTEGER, full TEXT NOT NULL, holes TEXT,"
            " gaps INTEGER, PRIMARY KEY (major, minor)) STRICT, WITHOUT ROWID"
        )
        yield made


def fill(connection: sqlite3.Connection, rows: list[tuple[object, ...]]) -> None:
    connection.execute("DELETE FROM given")
    connection.executemany(
        "INSERT INTO given VALUES (?, ?, ?, ?, ?)",
        ((row[0], place, *row[1:]) for place, row in enumerate(rows)),
    )


def read(
    connection: sqlite3.Connection, rows: int, first: int = -(2**63), last: int = 2**63 - 1
) -> list[tuple[object, ...]]:
    """The rows as stretches of so many give them."""
    table = Table("given", ("major", "minor"), COLUMNS, first, last)
    connection.text_factory = bytes
    try:
        with closing(connection.cursor()) as cursor:
            stretches = list(read_stretches(cursor, table, rows))
    finally:
        connection.text_factory = str
    for stretch in stretches:
        assert [column.type for column in stretch] == [INTEGER, INTEGER, TEXT, TEXT, INTEGER]
        for column in stretch:
            column.validate(full=True)
    return [
        row
        for stretch in stretches
        for row in zip(*(column.to_pylist() for column in stretch), strict=True)
    ]


def stored(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT * FROM given ORDER BY major, minor").fetchall()


@given(rows=_rows, size=st.integers(1, 5), low=st.integers(0, 7), high=st.integers(0, 7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_stretches_hold_what_the_rows_hold(
    rows: list[tuple[object, ...]], size: int, low: int, high: int, connection: sqlite3.Connection
) -> None:
    fill(connection, rows)
    expected = stored(connection)
    assert read(connection, size) == expected
    within = [row for row in expected if low <= int(str(row[0])) <= high]
    assert read(connection, size, low, high) == within


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("others", [[], ["x"], [None], [None, "x", None], ["", None]])
def test_what_marks_a_missing_value_is_told_from_one_that_is_there(
    text: str, others: list[str | None], connection: sqlite3.Connection
) -> None:
    for values in ([text, *others], [*others, text]):
        fill(connection, [(1, "x", value, None) for value in values])
        assert [row[3] for row in read(connection, 100)] == values


def test_a_number_with_more_rows_than_a_stretch_is_read_whole(
    connection: sqlite3.Connection,
) -> None:
    fill(connection, [(major, "x", None, 1) for major in (1, 1, 2, 2, 2, 2, 2, 3, 9, 9)])
    assert read(connection, 2) == stored(connection)


def test_rows_come_in_order_where_sqlite_is_told_to_reverse_them(
    connection: sqlite3.Connection,
) -> None:
    fill(connection, [(place // 3, str(place), None, place) for place in range(20)])
    connection.execute("PRAGMA reverse_unordered_selects = 1")
    assert read(connection, 4) == stored(connection)


def test_texts_too_long_to_be_joined_are_read_one_by_one(connection: sqlite3.Connection) -> None:
    fill(connection, [(place, "x" * 300, "y", None) for place in range(10)])
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000)
    assert read(connection, 5) == stored(connection)


def test_long_texts_are_no_longer_joined_once_a_stretch_has_shown_them(
    connection: sqlite3.Connection,
) -> None:
    """Joining them costs several times what fetching them does."""
    fill(connection, [(place, "x" * 2_000, None, 1) for place in range(350)])
    said: list[str] = []
    connection.set_trace_callback(said.append)
    assert read(connection, 50) == stored(connection)
    assert sum("group_concat" in statement for statement in said) == 1


def test_the_first_stretch_is_short_and_the_others_are_not(
    connection: sqlite3.Connection,
) -> None:
    fill(connection, [(place, "x", None, 1) for place in range(1_000)])
    said: list[str] = []
    connection.set_trace_callback(said.append)
    assert read(connection, 600) == stored(connection)
    assert sum("group_concat" in statement for statement in said) == 3


def test_texts_for_which_sqlite_has_no_memory_are_read_one_by_one(tmp_path: Path) -> None:
    """The limit is one of the whole process, so this takes one of its own."""
    path = tmp_path / "given.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE given (place INTEGER PRIMARY KEY, text TEXT) STRICT")
        texts = ["x"] * 200 + ["y" * 50_000] * 800
        connection.executemany("INSERT INTO given (text) VALUES (?)", zip(texts, strict=True))
        connection.commit()
    code = (
        "import sqlite3, sys, pyarrow as pa\n"
        "from nftsync.frames._source import Table, read_stretches\n"
        "connection = sqlite3.connect(sys.argv[1])\n"
        "connection.execute('PRAGMA hard_heap_limit = 20000000')\n"
        "connection.text_factory = bytes\n"
        "table = Table('given', ('place',), [('text', pa.large_string())])\n"
        "parts = list(read_stretches(connection.cursor(), table))\n"
        "print(sum(len(text) for part in parts for text in part[1].to_pylist()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (f"{200 + 800 * 50_000}\n", "")


@pytest.mark.parametrize("written", ["X'1F'", "X'1E'", "X'1E1F1E'", "X'611F62'", "X''"])
def test_odd_texts_of_tokens_reach_the_frame(written: str, build: Builder) -> None:
    names = [None, "x", None]
    for token, name in enumerate(names, start=1):
        build.token(token, name=name)
    build.connection.execute(f"UPDATE tokens SET name = CAST({written} AS TEXT) WHERE token_no = 2")
    expected = build.connection.execute("SELECT name FROM tokens ORDER BY token_no").fetchall()
    found = frames.tokens(build.close())["name"]
    assert [(None if value != value else value,) for value in found] == expected


@pytest.mark.parametrize("written", ["X'1FFF'", "X'C3'", "X'FF'"])
def test_text_that_is_not_utf_8_is_an_error_beside_others(written: str, build: Builder) -> None:
    for token in range(1, 5):
        build.token(token, name="\x1f" if token == 4 else "©")
    build.connection.execute(f"UPDATE tokens SET name = CAST({written} AS TEXT) WHERE token_no = 2")
    path: Path = build.close()
    with pytest.raises(StoreError, match="not UTF-8"):
        frames.tokens(path)
