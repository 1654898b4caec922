"""Opening and writing the file beside others that use it, and moving its log into it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from nftsync.errors import StoreError
from nftsync.store.checkpoints import LONG_LOG, Checkpoints, log_bytes
from nftsync.store.database import connect_reader, connect_writer, log_of
from nftsync.store.mirror import Mirror
from tests.kit.waiting import wait_until
from tests.kit.worlds import Outcome

MEGABYTE = 1024 * 1024
OPEN_AND_CLOSE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM wallets").fetchone()
connection.close()
"""


def test_opening_it_again_keeps_the_locks_of_this_process(tmp_path: Path) -> None:
    """Closing any file descriptor of a database drops all locks that its process holds on it.

    Another process would then take itself for the only user, and remove the write-ahead log under
    those who read and write it (https://sqlite.org/howtocorrupt.html, section 2.2).
    """
    path = tmp_path / "nftsync.db"
    with Mirror(path) as first:
        with Mirror(path):
            pass
        log = path.with_name("nftsync.db-wal")
        before = log.stat().st_ino
        subprocess.run([sys.executable, "-c", OPEN_AND_CLOSE, str(path)], check=True)
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
    """What the log's head says, and says anew each time that the log begins anew."""
    real = database.resolve()  # SQLite puts it beside the file, not beside a link
    return real.with_name(f"{real.name}-wal").read_bytes()[16:24]


@pytest.mark.parametrize("linked", [False, True])
def test_a_long_log_gets_into_the_database_and_begins_anew(tmp_path: Path, linked: bool) -> None:
    database = tmp_path / "nftsync.db"
    if linked:
        (tmp_path / "disk").mkdir()
        database.symlink_to(tmp_path / "disk" / "real.db")
    with closing(connect_writer(database)) as writer:
        writer.execute("CREATE TABLE padding (content BLOB)")
        checkpoints = Checkpoints(database, writer, rows=8)
        for times in (1, 2):  # the second time over what the first left in the log's file
            for _ in range(8):
                writer.execute("INSERT INTO padding VALUES (zeroblob(?))", (MEGABYTE,))
                checkpoints.after_commit()
            salts = log_salts(database)

            def began_anew(salts: bytes = salts) -> bool:
                checkpoints.after_commit()
                writer.execute("PRAGMA user_version = 1")
                return log_salts(database) != salts

            wait_until(began_anew)
            assert database.stat().st_size > times * 8 * MEGABYTE
        checkpoints.close()
        assert writer.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_on_a_small_disk_the_log_leaves_the_database_its_room(small_disk: Path) -> None:
    """And where another file takes all of it, the log does not take what is made free again."""
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


def test_a_reader_that_keeps_the_log_growing_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = tmp_path / "nftsync.db"
    with closing(connect_writer(database)) as writer, closing(connect_reader(database)) as reader:
        writer.execute("CREATE TABLE padding (content BLOB)")
        checkpoints = Checkpoints(database, writer, rows=1, long_log=2 * MEGABYTE)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM padding").fetchone()

        def told() -> int:
            writer.execute("INSERT INTO padding VALUES (zeroblob(?))", (MEGABYTE,))
            checkpoints.after_commit()
            return sum("reads an old state" in record.message for record in caplog.records)

        wait_until(lambda: told() == 2)  # and not each time
        assert log_bytes(database) < 12 * MEGABYTE
        reader.execute("COMMIT")
        checkpoints.close()


def test_status_names_a_log_that_grew_long(tmp_path: Path, command: Callable[..., Outcome]) -> None:
    with Mirror(tmp_path / "nftsync.db") as mirror:
        with mirror.transaction() as transaction:
            transaction.connection.execute("CREATE TABLE padding (content BLOB)")
        os.truncate(log_of(tmp_path / "nftsync.db"), LONG_LOG)  # behind its end: a hole
        said = command("status", "-d", tmp_path / "nftsync.db").out
    assert re.search("^log  .*reads an old state; stop that program$", said, re.MULTILINE)
    assert "reads an old state" not in command("status", "-d", tmp_path / "nftsync.db").out
