"""New and upgraded databases have the same tables, and sqlite-utils lists their migrations."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlite_utils
from sqlite_utils.migrations import Migrations

from nftsync import __version__
from nftsync.errors import NewerDatabase
from nftsync.store.database import damage
from nftsync.store.schema import open_store
from tests.versions.make_databases import unpacked

APPLIED = [
    "watch",
    "outbox_order",
    "partial_spans",
    "hex_addresses",
    "token_faults",
    "later_changes",
]


def shape(connection: sqlite3.Connection) -> dict[tuple[str, str], tuple[str, list[object]]]:
    """All objects with their SQL, without its comments, and with their columns in order."""
    rows = connection.execute(
        "SELECT type, name, sql FROM sqlite_schema"
        " WHERE sql IS NOT NULL AND name NOT LIKE 'tokens!_fts!_%' ESCAPE '!'"
    ).fetchall()
    columns = "SELECT * FROM pragma_table_xinfo(?)"
    return {
        (kind, name): (
            "".join(re.sub(r"--.*", "", sql).replace('"', "").split()),
            connection.execute(columns, (name,)).fetchall(),
        )
        for kind, name, sql in rows
    }


def applied(connection: sqlite3.Connection) -> list[str]:
    return [each.name for each in Migrations("nftsync").applied(sqlite_utils.Database(connection))]


def test_an_earlier_database_becomes_like_a_new_one_and_leaves_a_copy(tmp_path: Path) -> None:
    earlier, new = unpacked("0.5.0", tmp_path / "earlier.db"), tmp_path / "new.db"
    with closing(sqlite3.connect(earlier)) as connection:
        before = applied(connection)
    with closing(open_store(earlier)) as one, closing(open_store(new)) as other:
        assert shape(one) == shape(other)
        assert applied(other) == APPLIED
        assert applied(one) == [*before, *APPLIED[1:]]
        assert one.execute("SELECT 1 FROM tokens_fts WHERE tokens_fts MATCH 'renamed'").fetchall()
    with closing(sqlite3.connect(tmp_path / f"earlier.db.before-{__version__}")) as copy:
        assert applied(copy) == before


def test_of_processes_that_start_at_once_one_makes_the_tables(tmp_path: Path) -> None:
    """One that comes later finds them made, for which it needs no slow import."""
    path = tmp_path / "nftsync.db"
    code = (
        "import sys; from pathlib import Path; from nftsync.store.schema import open_store;"
        " open_store(Path(sys.argv[1])).close()"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(2)]
    assert [process.wait() for process in started] == [0, 0]
    code += "; assert not {'sqlite_utils', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    with closing(sqlite3.connect(path)) as connection:
        assert applied(connection) == APPLIED
    assert [found.name for found in tmp_path.iterdir()] == ["nftsync.db"]


def test_a_newer_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "nftsync.db"
    with closing(open_store(path)) as connection:
        connection.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name) VALUES ('nftsync', 'of_2030')"
        )
    with pytest.raises(NewerDatabase, match="update nftsync"):
        open_store(path)
    assert [found.name for found in tmp_path.iterdir()] == ["nftsync.db"]


def test_a_check_finds_a_lost_page(tmp_path: Path) -> None:
    """SQLite's integrity_check looks for them only if the newest table or view is a table."""
    path = tmp_path / "nftsync.db"
    with closing(open_store(path)) as connection:
        newest = (
            "SELECT type FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY rowid DESC"
        )
        assert connection.execute(newest).fetchone() == ("table",)
        connection.execute("CREATE TABLE lost (page)")
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute("DELETE FROM sqlite_schema WHERE name = 'lost'")
    assert "never used" in str(damage(path))
