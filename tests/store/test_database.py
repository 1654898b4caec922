"""The database file: its schema, its writers in several processes, and its write-ahead log."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
import sqlite_utils
from sqlite_utils.migrations import Migrations

from nftsync import __version__, frames
from nftsync.errors import NewerDatabase, StoreError
from nftsync.store.checkpoints import LONG_LOG, Checkpoints, log_bytes
from nftsync.store.database import connect_reader, connect_writer, damage, log_of
from nftsync.store.mirror import Mirror
from nftsync.store.schema import open_store
from tests.kit.waiting import wait_until
from tests.kit.worlds import Outcome
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
    """Return the SQL, without comments, and the columns of all objects."""
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
    """A later process finds them, and imports no slow module."""
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
    assert [file.name for file in tmp_path.iterdir()] == ["nftsync.db"]


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


def test_a_newer_database_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "nftsync.db"
    with closing(open_store(path)) as connection:
        connection.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
            " VALUES ('nftsync', 'of_2030', '2030')"
        )
    for use in (open_store, frames.holdings):
        with pytest.raises(NewerDatabase, match="update nftsync"):
            use(path)
    assert [file.name for file in tmp_path.iterdir()] == ["nftsync.db"]


# Other processes ---------------------------------------------------------------------------------


MEGABYTE = 1024 * 1024


def test_a_second_connection_keeps_the_locks_of_this_process(tmp_path: Path) -> None:
    """Closing any file descriptor of a database drops all locks that its process holds on it.

    The last connection of another process would then remove the write-ahead log in use
    (https://sqlite.org/howtocorrupt.html, section 2.2).
    """
    path = tmp_path / "nftsync.db"
    query = "SELECT count(*) FROM wallets"
    code = f"import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute({query!r}).fetchone()"
    with Mirror(path) as first:
        with Mirror(path):
            pass
        log = path.with_name("nftsync.db-wal")
        before = log.stat().st_ino
        subprocess.run([sys.executable, "-c", code, str(path)], check=True)
        assert log.exists(), "the write-ahead log was removed while it was in use"
        assert log.stat().st_ino == before
        with first.transaction() as transaction:
            transaction.connection.execute(
                "INSERT INTO wallets (wallet_id, first_seen_at) VALUES ('x', 'y')"
            )


@pytest.mark.parametrize("existing", [True, False])
def test_a_new_file_is_its_owners_alone_and_an_old_one_keeps_its_mode(
    tmp_path: Path, existing: bool
) -> None:
    path = tmp_path / "deep" / "nftsync.db"
    if existing:
        path.parent.mkdir()
        path.touch()
        path.chmod(0o640)
    with Mirror(path):
        assert path.stat().st_mode & 0o777 == (0o640 if existing else 0o600)
    assert [x.name for x in path.parent.iterdir()] == ["nftsync.db"]


# The log ----------------------------------------------------------------------------------------


def log_salts(database: Path) -> bytes:
    """Return the part of the log's header that changes with each restart of the log."""
    real = database.resolve()  # SQLite puts it beside the file, not beside a link
    return real.with_name(f"{real.name}-wal").read_bytes()[16:24]


@pytest.mark.parametrize("linked", [False, True])
def test_a_long_log_is_checkpointed_and_restarts(tmp_path: Path, linked: bool) -> None:
    database = tmp_path / "nftsync.db"
    if linked:
        (tmp_path / "disk").mkdir()
        database.symlink_to(tmp_path / "disk" / "real.db")
    with closing(connect_writer(database)) as writer:
        writer.execute("CREATE TABLE padding (content BLOB)")
        checkpoints = Checkpoints(database, writer, rows=8)
        for times in (1, 2):  # the second time over an existing log
            for _ in range(8):
                writer.execute("INSERT INTO padding VALUES (zeroblob(?))", (MEGABYTE,))
                checkpoints.after_commit()
            salts = log_salts(database)

            def restarted(salts: bytes = salts) -> bool:
                checkpoints.after_commit()
                writer.execute("PRAGMA user_version = 1")
                return log_salts(database) != salts

            wait_until(restarted)
            assert database.stat().st_size > times * 8 * MEGABYTE
        checkpoints.close()
        assert writer.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_on_a_small_disk_the_log_leaves_the_database_its_room(small_disk: Path) -> None:
    """If another file fills the disk, the log does not take the space that becomes free."""
    path, ballast = small_disk / "nftsync.db", small_disk / "ballast"
    with Mirror(path) as mirror, Mirror(path) as other:
        with mirror.transaction() as transaction:
            transaction.connection.execute("CREATE TABLE padding (content BLOB)")
            transaction.connection.executemany("INSERT INTO padding VALUES (?)", [(b"",)] * 100)

        def rewrite(mirror: Mirror) -> None:
            with mirror.transaction() as transaction:
                transaction.connection.execute("UPDATE padding SET content = randomblob(2000)")

        for _ in range(60):  # together 15 MB
            rewrite(mirror)
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(b"\0" * 4096) == 4096:
                pass
        with pytest.raises(StoreError, match="no room left"), other.transaction() as transaction:
            transaction.connection.execute("INSERT INTO padding VALUES (zeroblob(3000000))")
        os.truncate(ballast, ballast.stat().st_size - 600_000)
        for _ in range(30):
            rewrite(other)
        assert other.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_reader_that_keeps_the_log_growing_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = tmp_path / "nftsync.db"
    with closing(connect_writer(database)) as writer, closing(connect_reader(database)) as reader:
        writer.execute("CREATE TABLE padding (content BLOB)")
        checkpoints = Checkpoints(database, writer, rows=1, long_log=2 * MEGABYTE)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM padding").fetchone()

        def warnings() -> int:
            writer.execute("INSERT INTO padding VALUES (zeroblob(?))", (MEGABYTE,))
            checkpoints.after_commit()
            return sum("reads an old state" in record.message for record in caplog.records)

        wait_until(lambda: warnings() == 2)  # and not each time
        assert log_bytes(database) < 12 * MEGABYTE
        reader.execute("COMMIT")
        checkpoints.close()


def test_status_names_a_log_that_grew_long(tmp_path: Path, command: Callable[..., Outcome]) -> None:
    with Mirror(tmp_path / "nftsync.db") as mirror:
        with mirror.transaction() as transaction:
            transaction.connection.execute("CREATE TABLE padding (content BLOB)")
        os.truncate(log_of(tmp_path / "nftsync.db"), LONG_LOG)  # behind its end: a hole
        text = command("status", "-d", tmp_path / "nftsync.db").out
    assert re.search("^log  .*reads an old state; stop that program$", text, re.MULTILINE)
    assert "reads an old state" not in command("status", "-d", tmp_path / "nftsync.db").out
