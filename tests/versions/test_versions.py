"""Databases of earlier versions: readers show all their rows; `migrate` upgrades them."""

import hashlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from inspect import signature
from itertools import cycle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sqlite_utils

import nftsync
from nftsync import frames
from nftsync.errors import EarlierDatabase, NewerDatabase, NftsyncWarning, StoreError
from nftsync.store.catalog import TABLES
from nftsync.store.schema import migrate, open_store
from tests.kit.worlds import dump
from tests.versions.make_databases import unpacked


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A database that an earlier version made, alone in a folder."""
    return unpacked("0.5.0", tmp_path / "earlier" / "nftsync.db")


@pytest.fixture(scope="session")
def today(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same database, upgraded."""
    path = unpacked("0.5.0", tmp_path_factory.mktemp("today") / "nftsync.db")
    migrate(path)
    return path


def query(database: Path, text: str) -> list[Any]:
    with closing(sqlite3.connect(f"file:{database}?immutable=1", uri=True)) as connection:
        return connection.execute(text).fetchall()


def files(database: Path) -> dict[str, str]:
    """The files of a database's folder, by their content."""
    paths = [*database.parent.iterdir()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@contextmanager
def untouched(database: Path) -> Iterator[None]:
    before = files(database)
    yield
    assert files(database) == before


#: Commands whose JSON must be the same before and after an upgrade.
LISTS = """holdings, holdings --wallet Treasury, holdings --as-of BETWEEN, changes, wallets, inbox,
    changes --since BETWEEN, collections, find Renamed, inbox list, evidence Treasury --at BETWEEN,
    removals, outbox"""


def test_a_list_is_that_of_the_upgraded_database_with_one_warning(earlier, today, command):
    # A time between the first sync and the second one.
    ((moment,),) = query(earlier, "SELECT max(observed_at) FROM balance_changes WHERE baseline")
    for name in LISTS.split(","):
        given = [*name.replace("BETWEEN", moment).split(), "--json"]
        with untouched(earlier):
            done = command(*given, "-d", earlier)
        expected = command(*given, "-d", today)
        assert (name, done.code, done.json) == (name, 0, expected.json)
        (told,) = (line for line in done.err.splitlines() if "earlier version" in line)
        assert "without records of unreadable metadata, headers of webhooks;" in told
        assert "`nftsync migrate`" in told
        assert "earlier version" not in expected.err, name


def test_fields_that_are_stored_are_no_news_after_an_upgrade(earlier):
    extra = '{"rank": 1, "metadata": {"rarity": null, "editionId": "3", "totalEdition": 99e99}}'
    with closing(sqlite3.connect(earlier)) as connection, connection:
        connection.execute("UPDATE tokens SET first_seen_at = '2020', extra = 'damaged'")
        connection.execute("UPDATE tokens SET extra = ? WHERE token_no = 1", (extra,))
        connection.execute("UPDATE webhooks SET received_at = '2021', body = X'7B2261223A317D'")
    migrate(earlier)
    rows = query(earlier, "SELECT field, type, documented_type, first_seen_at FROM new_fields")
    assert {*rows} == {
        ("metadata.editionId", "text", "integer", "2020"),
        ("metadata.rarity", "null", None, "2020"),
        ("metadata.totalEdition", "number", "integer", "2020"),
        ("token.rank", "integer", None, "2020"),
        ("webhook.a", "integer", None, "2021"),
    }


def test_the_status_counts_and_says_which_command_upgrades(earlier, command):
    with untouched(earlier):
        done = command("status", "--json", "-d", earlier)
        command("status", "--max-age", "36500d", "-d", earlier).says()
        command("status", "--max-age", "1s", "-d", earlier).says(code=1)
        checked = command("check", "-d", earlier).says(code=1)  # no provider
    counts = {
        "wallets": dict(query(earlier, "SELECT status, count(*) FROM wallets GROUP BY status")),
        "tokens": query(earlier, "SELECT count(*) FROM tokens")[0][0],
        "balances": query(earlier, "SELECT count(*) FROM balances")[0][0],
    }
    assert done.json.items() >= counts.items()
    done.says("nftsync migrate")
    assert re.search("^warning .* database: .*nftsync migrate.* upgrades it", checked.out, re.M)


def test_an_export_is_that_of_the_upgraded_database(earlier, today, tmp_path, command):
    """Byte for byte as CSV; the other formats have the same files."""
    for form in ("csv", "parquet", "xlsx"):
        old, new = tmp_path / f"old-{form}", tmp_path / f"new-{form}"
        with untouched(earlier):
            done = command("export", old, "--format", form, "-d", earlier)
        assert (done.code, "Traceback" in done.err) == (0, False)
        command("export", new, "--format", form, "-d", today).says()
        names = {path.name for path in new.iterdir()}
        assert {path.name for path in old.iterdir()} == names
        for name in names - {"manifest.json"} if form == "csv" else ():
            assert (old / name).read_bytes() == (new / name).read_bytes(), name


def test_copies_are_of_the_version_of_their_database(earlier, tmp_path, command):
    """So that the earlier version can use a copy."""
    with untouched(earlier):
        command("snapshot", tmp_path / "copy.db", "-d", earlier).says()
        command("backup", tmp_path / "backups", "-d", earlier).says()
    (backup,) = (tmp_path / "backups").glob("*.db")
    assert dump(tmp_path / "copy.db") == dump(backup) == dump(earlier)


#: Arguments of frames by the names of their parameters: the first and the last change.
NEEDED = {"start": "2026-11-28T18:52:42.442183Z", "end": "2026-11-28T18:52:53.044071Z"}
NEEDED |= {
    "text": "Renamed",
    "other": pd.DataFrame({"token_id": [f"{0:08}-0000-4000-8000-{0:012}"]}),
}
#: All public functions that read a database, except one that needs a table of prices.
READERS = {
    name: reader
    for name, reader in ((name, getattr(frames, name)) for name in frames.__all__)
    if {*list(signature(reader).parameters)[:1]} & {"db", "holdings"} and name != "value"
}


def read(name: str, db: object) -> tuple[pd.DataFrame, list[str]]:
    """Return a frame without columns that depend on the current time, and the warnings."""
    asked = {each: NEEDED[each] for each in signature(READERS[name]).parameters if each in NEEDED}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        # The tokens of these databases have no traits.
        warnings.filterwarnings("ignore", "no traits: ", NftsyncWarning)
        frame = READERS[name](db, **asked)
    assert {each.category for each in told} <= {EarlierDatabase}
    return frame.drop(columns=["age", "bucket"], errors="ignore"), [str(x.message) for x in told]


def test_frames_equal_the_upgraded_database_s(earlier, today, subtests):
    assert {"holdings", "changes", "tokens", "diff", "find", "concentration", "runs"} <= {*READERS}
    connection = sqlite3.connect(f"file:{earlier}?immutable=1", uri=True)
    connection.row_factory = sqlite3.Row
    connection.text_factory = bytes
    with closing(connection), untouched(earlier):
        # A connection and sqlite-utils' object of it take turns, as each read upgrades a copy.
        connections = cycle((connection, sqlite_utils.Database(connection)))
        for name in READERS:
            with subtests.test(name):
                expected, nothing = read(name, today)
                assert nothing == []
                for db in (earlier, next(connections)):
                    frame, (notice,) = read(name, db)
                    pd.testing.assert_frame_equal(frame, expected)
                    assert str(earlier) in notice
                    assert "nftsync migrate" in notice
                assert connection.row_factory is sqlite3.Row
                assert connection.text_factory is bytes
                assert not connection.in_transaction
                assert connection.execute("SELECT name FROM sqlite_temp_schema").fetchall() == []


def test_the_callers_transaction_and_cursor_go_on(earlier):
    with closing(sqlite3.connect(earlier)) as connection:
        connection.execute("BEGIN")
        cursor = connection.execute("SELECT change_id FROM balance_changes ORDER BY change_id")
        assert cursor.fetchone() == (1,)
        frame, _ = read("wallets", connection)
        assert "Treasury" in set(frame["label"])
        assert cursor.fetchone() == (2,)
        connection.execute("UPDATE wallets SET label = 'not yet committed'")
        with pytest.raises(StoreError, match="commit it or roll it back"):
            frames.wallets(connection)
        assert connection.in_transaction
        labels = connection.execute("SELECT DISTINCT label FROM wallets").fetchall()
        assert labels == [("not yet committed",)]
        connection.rollback()
        frame, _ = read("wallets", connection)
        assert "Treasury" in set(frame["label"])


def test_a_log_that_a_killed_process_left_is_read_and_kept(earlier, tmp_path):
    left = tmp_path / "left"
    left.mkdir()
    with closing(sqlite3.connect(earlier)) as writer:
        writer.execute("UPDATE wallets SET label = 'in the log'")
        writer.commit()
        for suffix in ("", "-wal"):
            shutil.copy(f"{earlier}{suffix}", left)
    path = left / earlier.name
    before = files(path)
    assert len(before) == 2
    frame, _ = read("wallets", path)
    assert set(frame["label"]) == {"in the log"}
    assert {name: files(path)[name] for name in before} == before


def test_a_change_feed_that_waits_for_more_needs_an_upgraded_database(earlier, command):
    """A temporary copy would never show later rows."""
    with untouched(earlier):
        done = command("changes", "--follow", "-d", earlier)
    done.tells("upgrade it first, with `nftsync migrate`", code=1)


def test_without_room_for_the_temporary_copy_the_folder_is_named(earlier, small_disk):
    with closing(sqlite3.connect(earlier)) as connection:
        connection.execute(
            "INSERT INTO resources (resource_type, resource_id, body, fetched_at)"
            " VALUES ('Other', 'x', hex(zeroblob(30000000)), '')"
        )
        connection.commit()
    with untouched(earlier):
        done = subprocess.run(
            [sys.executable, "-m", "nftsync", "holdings", "-d", str(earlier)],
            env=os.environ | {"SQLITE_TMPDIR": str(small_disk)},  # SQLite asks when it starts
            capture_output=True,
            text=True,
        )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "SQLITE_TMPDIR" in done.stderr
    assert "nftsync migrate" in done.stderr


def shape(database: Path) -> dict[str, Any]:
    """Return the SQL without comments, the columns, and the migrations."""
    rows = query(
        database,
        "SELECT name, sql FROM sqlite_schema"
        " WHERE sql IS NOT NULL AND name NOT LIKE 'tokens!_fts!_%' ESCAPE '!'",
    )
    return {
        name: (
            "".join(re.sub(r"--.*", "", sql).replace('"', "").split()),
            query(database, f"SELECT * FROM pragma_table_xinfo('{name}')"),
        )
        for name, sql in rows
    }


def migrations(database: Path) -> list[str]:
    return [name for (name,) in query(database, "SELECT name FROM _sqlite_migrations ORDER BY id")]


def test_migrate_keeps_all_rows_and_leaves_a_copy(earlier, tmp_path, command):
    """The tables become like those of a new database."""
    columns: dict[str, list[str]] = {}
    for table, column in query(
        earlier,
        "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_xinfo(m.name) c"
        " WHERE m.type IN ('table', 'view')",
    ):
        if table in TABLES and column in TABLES[table].columns:
            columns.setdefault(table, []).append(column)
    selects = [f"SELECT {', '.join(names)} FROM {table}" for table, names in columns.items()]
    before, whole = [sorted(map(repr, query(earlier, x))) for x in selects], dump(earlier)
    applied = migrations(earlier)
    done = command("migrate", "-d", earlier)
    copy = earlier.with_name(f"nftsync.db.before-{nftsync.__version__}")
    assert (done.code, done.out, done.err.count("\n"), str(copy) in done.err) == (0, "", 1, True)
    assert {*files(earlier)} == {earlier.name, copy.name}
    assert dump(copy) == whole
    assert [sorted(map(repr, query(earlier, x))) for x in selects] == before
    new = tmp_path / "new.db"
    open_store(new).close()
    assert shape(earlier) == shape(new)
    assert migrations(earlier)[: len(applied)] == applied
    assert migrations(earlier)[len(applied) :] == migrations(new)[1:]
    assert query(earlier, "SELECT 1 FROM tokens_fts WHERE tokens_fts MATCH 'renamed'")
    command("migrate", "-d", earlier).says("is up to date")
    command("verify", "--sample", 0, "-d", earlier).says("All ")
    command("wallets", "label", "Treasury", "House", "-d", earlier).says()
    assert query(earlier, "SELECT count(*) FROM holdings WHERE wallet_label = 'House'") != [(0,)]


def test_migrate_refuses_what_is_no_database_of_ours(tmp_path, command):
    text, empty, newer = tmp_path / "text.db", tmp_path / "empty.db", tmp_path / "newer.db"
    text.write_text("no database" * 1_000)
    empty.touch()
    open_store(newer).close()
    with closing(sqlite3.connect(newer)) as connection, connection:
        connection.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
            " VALUES ('nftsync', 'of_2030', '2030')"
        )
    with untouched(newer):
        for path, problem in {
            tmp_path / "none.db": "there is no database",
            text: "is not a SQLite database",
            empty: "is empty",
            newer: "was written by a newer nftsync",
        }.items():
            assert command("migrate", "-d", path).tells(problem, code=1).err.count("\n") == 1
        for use in (open_store, frames.holdings):
            with pytest.raises(NewerDatabase, match="update nftsync"):
                use(newer)


def test_spellings_of_an_address_become_one_with_their_names_and_entries(tmp_path):
    path = unpacked("0.5.0", tmp_path / "nftsync.db")
    digits = "da" * 31
    padded, plain, other = f"0x00{digits}", f"0x{digits}", f"0x0{digits}"
    with closing(sqlite3.connect(path)) as connection, connection:
        before = connection.execute("SELECT * FROM contracts ORDER BY contract").fetchall()
        number, indexed = connection.execute(
            "SELECT max(token_no), indexed_token_no FROM tokens, mirror_state"
        ).fetchone()
        assert number == indexed
        tokens = connection.execute("SELECT token_no FROM tokens LIMIT 12").fetchall()
        for place, (token,) in enumerate(tokens):
            connection.execute(
                "UPDATE tokens SET contract_address = ?, name = ? WHERE token_no = ?",
                ((padded, plain)[place % 2], f"Kite #{place}", token),
            )
        for address, label in ((padded, "Ours"), (plain, None)):
            connection.execute(
                "INSERT INTO contracts (contract, contract_address, given_name) VALUES (?, ?, ?)",
                (address, address, label),
            )
        for address in (padded, other):
            connection.execute(
                "INSERT INTO hidden (contract, source, hidden_at) VALUES (?, 'given', '')",
                (address,),
            )
    migrate(path)
    new = query(path, "SELECT contract, given_name, guessed_name FROM contracts")
    assert (plain, "Ours", "Kite") in new
    assert len(new) == len(before) + 1
    assert query(path, "SELECT contract FROM hidden WHERE hidden_at = ''") == [(plain,)]
    count = "SELECT count(*) FROM {} WHERE contract = '" + plain + "'"
    assert [query(path, count.format(x)) for x in ("tokens", "sampled_tokens")] == [[(12,)]] * 2
    assert set(frames.holdings(path, contract=other, hidden=True)["collection"]) == {"Ours"}


def test_messages_wait_after_the_upgrade_as_in_a_new_database(earlier, tmp_path):
    keys = ('["a","b"]', '["a"]', '["*"]', '["b"]', "[]", '["c","*"]') * 3
    new = tmp_path / "new.db"
    open_store(new).close()
    for path in (earlier, new):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executemany(
                "INSERT INTO messages (message_id, rule, destination, created_at, state, keys)"
                " VALUES (?, 'treasury', 'ops', '', iif(?1 % 5, 'pending', 'done'), ?)",
                enumerate(keys),
            )
    migrate(earlier)
    for rows in ("message_id, waits_for FROM messages", "* FROM message_keys"):
        expected = query(new, f"SELECT {rows}")
        assert query(earlier, f"SELECT {rows}") == expected != []


def test_a_database_from_before_the_first_version_for_users_is_refused(tmp_path, command):
    path = unpacked("0.4.0", tmp_path / "old" / "nftsync.db")
    before = files(path)
    for words in (
        "sync --base-url http://127.0.0.1:9",
        "holdings",
        "status",
        "migrate",
        "wallets add 0f0f0f0f-0000-4000-8000-00000000aaaa",
        f"snapshot {tmp_path}/copy.db",
        f"export {tmp_path}/files",
    ):
        done = command(*words.split(), "-d", path)
        done.tells("upgrade it first with nftsync 0.5", code=1)
        assert done.err.count("\n") == 1
    command("check", "-d", path).says("FAILED", "first with nftsync 0.5", code=1)
    with pytest.raises(StoreError, match=r"first with nftsync 0\.5"):
        frames.holdings(path)
    assert {name: files(path)[name] for name in before} == before
    assert {"nftsync.db", "nftsync.db.sync-lock"} >= {each.name for each in path.parent.iterdir()}
