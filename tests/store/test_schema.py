"""New and older databases come to the same tables, and sqlite-utils can tell what was applied."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import sqlite_utils
from sqlite_utils.migrations import Migrations

from nftsync import __version__
from nftsync.store import schema
from nftsync.store.schema import open_store

SET = "nftsync"


def tables(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return {(name, " ".join(sql.replace('"', "").split())) for name, sql in rows}


def first_version(path: Path) -> None:
    """A database as the first version left it: made by sqlite-utils, with one migration."""
    migrations = Migrations(SET)
    statements = schema._MIGRATIONS["first_tables"]

    @migrations(name="first_tables")
    def _first(database: sqlite_utils.Database) -> None:
        for statement in statements.split(";\n"):
            database.execute(statement)

    with closing(sqlite3.connect(path)) as connection:
        migrations.apply(sqlite_utils.Database(connection))
        connection.execute("INSERT INTO wallets (wallet_id, first_seen_at) VALUES ('w', 't')")
        connection.commit()


def test_an_older_database_becomes_like_a_new_one_and_leaves_a_copy(tmp_path: Path) -> None:
    older, new = tmp_path / "older.db", tmp_path / "new.db"
    first_version(older)
    with closing(open_store(older)) as one, closing(open_store(new)) as other:
        assert tables(one) == tables(other)
        assert one.execute("SELECT wallet_id FROM wallets").fetchall() == [("w",)]
    with closing(sqlite3.connect(tmp_path / f"older.db.before-{__version__}")) as copy:
        assert copy.execute("SELECT name FROM _sqlite_migrations").fetchall() == [("first_tables",)]
        assert copy.execute("SELECT wallet_id FROM wallets").fetchall() == [("w",)]


def test_sqlite_utils_sees_what_was_applied(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "nftsync.db")) as connection:
        applied = Migrations(SET).applied(sqlite_utils.Database(connection))
        assert [each.name for each in applied] == list(schema._MIGRATIONS)


def test_opening_twice_applies_nothing_twice(tmp_path: Path) -> None:
    open_store(tmp_path / "nftsync.db").close()
    with closing(open_store(tmp_path / "nftsync.db")) as connection:
        (count,) = connection.execute("SELECT count(*) FROM _sqlite_migrations").fetchone()
        assert count == len(schema._MIGRATIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["nftsync.db"]


def test_a_new_database_needs_no_slow_import(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from nftsync.store.schema import open_store;"
        " open_store(Path(sys.argv[1])).close();"
        " sys.exit(bool({'sqlite_utils', 'pandas'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "nftsync.db")]
    assert subprocess.run(command, check=False).returncode == 0
