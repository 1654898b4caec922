"""Opening a database beside others that use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nftsync.store.mirror import Mirror

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
