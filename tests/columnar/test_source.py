"""Databases as sources of frames, which only read them."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
import sqlite_utils

from nftsync import frames
from nftsync.errors import InputError, StoreError
from tests.kit.database import small
from tests.kit.readers import READERS

#: Spans begin before the first read, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:the history begins:nftsync.NftsyncWarning")
AGELESS = READERS | {"freshness": lambda db: frames.freshness(db).drop(columns="age")}
every_reader = pytest.mark.parametrize("read", AGELESS.values(), ids=AGELESS)


@every_reader
def test_every_kind_of_source_gives_the_same_frame(read, small_database, monkeypatch):
    expected = read(small_database)
    assert len(expected) > 0
    pd.testing.assert_frame_equal(read(str(small_database)), expected)
    connection = sqlite3.connect(small_database)
    connection.row_factory = sqlite3.Row
    connection.text_factory = bytes
    pd.testing.assert_frame_equal(read(connection), expected)
    assert connection.row_factory is sqlite3.Row
    assert connection.text_factory is bytes
    assert not connection.in_transaction
    assert connection.execute("SELECT 1").fetchone().keys() == ["1"]
    database = sqlite_utils.Database(connection)
    connection.text_factory = str
    pd.testing.assert_frame_equal(read(database), expected)
    connection.close()
    monkeypatch.setenv("NFTSYNC_DATABASE", str(small_database))
    pd.testing.assert_frame_equal(read(None), expected)


def test_reads_within_the_callers_transaction_beside_its_cursors(small_database):
    connection, memory = sqlite3.connect(small_database), sqlite3.connect(":memory:")
    connection.backup(memory)
    pd.testing.assert_frame_equal(frames.holdings(memory), frames.holdings(small_database))
    memory.close()
    cursor = connection.execute("SELECT change_id FROM balance_changes ORDER BY change_id")
    assert cursor.fetchone() == (1,)
    frames.holdings(connection)
    assert cursor.fetchall() == [(n,) for n in range(2, 8)]
    connection.execute("UPDATE wallets SET label = 'not yet committed'")
    assert frames.wallets(connection)["label"][0] == "not yet committed"
    assert connection.in_transaction
    connection.rollback()
    assert frames.wallets(connection)["label"][0] == "Vault"
    connection.close()


@every_reader
def test_only_reads(read, small_database):
    before = small_database.read_bytes(), small_database.stat().st_mtime_ns
    read(small_database)
    assert (small_database.read_bytes(), small_database.stat().st_mtime_ns) == before

    harmless = {
        *(sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION),
        *(sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_RECURSIVE),
    }
    refused = []

    def authorize(action, first, second, *rest):
        reads_only = action == sqlite3.SQLITE_PRAGMA and second is None
        # SQLite makes json_each and the index tables on first use.
        index = (action, first) == (sqlite3.SQLITE_UPDATE, "sqlite_master")
        if action in harmless or reads_only or second == "json_each" or index:
            return sqlite3.SQLITE_OK
        refused.append((action, first, second))
        return sqlite3.SQLITE_DENY

    connection = sqlite3.connect(small_database)
    connection.set_authorizer(authorize)
    read(connection)
    connection.set_authorizer(None)
    assert connection.total_changes == 0
    connection.close()
    assert refused == []


def test_a_file_that_is_missing_or_not_an_nftsync_database(tmp_path):
    for read in READERS.values():
        with pytest.raises(StoreError, match=r"missing\.db"):
            read(tmp_path / "there" / "missing.db")
    assert not (tmp_path / "there").exists()
    other, text, empty = (tmp_path / f"{name}.db" for name in ("other", "text", "empty"))
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE holdings (a)")
    connection.commit()
    text.write_text("hello, this is no database at all" * 100)
    empty.touch()
    for db, problem in (
        *((db, r"other\.db is not an nftsync database") for db in (other, connection)),
        (text, r"text\.db is not a SQLite database"),
        (empty, r"empty\.db is empty"),
        (tmp_path, "."),
    ):
        with pytest.raises(StoreError, match=problem):
            frames.holdings(db)
    assert not connection.in_transaction
    connection.close()
    assert empty.stat().st_size == 0
    assert len(frames.holdings(small(tmp_path / "100% ?#é.db").close())) == 4


def test_a_closed_connection_and_another_threads(small_database):
    connection = sqlite3.connect(small_database)
    with ThreadPoolExecutor() as pool, pytest.raises(StoreError, match="thread"):
        pool.submit(frames.holdings, connection).result()
    connection.close()
    with pytest.raises(StoreError, match="closed"):
        frames.holdings(connection)


@pytest.mark.parametrize("wrong", [5, object(), b"x.db", set(), pd.DataFrame({"a": [1]})])
def test_an_argument_that_is_not_a_database(wrong):
    with pytest.raises(InputError, match=f"from type {type(wrong).__name__}; use a path"):
        frames.holdings(wrong)  # type: ignore[arg-type]


def test_a_commit_during_a_read_never_shows_half(build):
    build.wallet(1)
    build.token(1, name="0")
    build.balance(1, 1, "0")
    build.change(1, 1, None, "0", 0)
    turns = 0

    def rewrite(statement):
        nonlocal turns
        turns += 1
        build.connection.execute("BEGIN IMMEDIATE")
        build.connection.execute("UPDATE balance_rows SET amount = ?", (str(turns),))
        build.connection.execute("UPDATE tokens SET name = ?", (str(turns),))
        build.change(1, 1, None, str(turns), turns)
        build.connection.execute("COMMIT")

    connection = sqlite3.connect(build.path)
    connection.set_trace_callback(rewrite)  # before each statement
    for _ in range(3):
        (row,) = frames.holdings(connection).to_dict("records")
        assert row["name"] == row["amount_text"]
    assert turns > 9
    connection.close()
