"""Opening and writing the file beside others that use it, and moving its log into it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from worlds import PATIENCE

from nftsync.store.database import Checkpoints, connect_writer
from nftsync.store.mirror import Mirror

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


def wait_until(moved: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not moved():
        assert time.monotonic() < deadline
        time.sleep(0.01)


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
