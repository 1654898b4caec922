"""The database file: its schema, its writers in several processes, and its write-ahead log."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing, suppress

import pytest

from nftsync import frames
from nftsync.errors import NftsyncWarning, StoreError
from nftsync.records import WalletRead
from nftsync.store.checkpoints import LONG_LOG, Checkpoints, log_bytes
from nftsync.store.database import connect_reader, connect_writer, damage, log_of
from nftsync.store.history import begin_span, end_span
from nftsync.store.mirror import Mirror
from nftsync.store.runs import start_run
from nftsync.store.schema import open_store
from nftsync.times import now
from tests.kit.waiting import wait_until

MEGABYTE = 1024 * 1024


def test_of_processes_that_start_at_once_one_makes_the_tables(tmp_path):
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
    assert [file.name for file in tmp_path.iterdir()] == ["nftsync.db"]


def test_a_check_finds_a_lost_page(tmp_path):
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


def test_a_second_connection_keeps_the_locks_of_this_process(tmp_path):
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


@pytest.mark.parametrize("mode", [None, 0o640])
def test_a_new_file_is_its_owners_alone_and_an_old_one_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "deep" / "nftsync.db"
    if mode:
        path.parent.mkdir()
        path.touch()
        path.chmod(mode)
    with Mirror(path):
        assert path.stat().st_mode & 0o777 == (mode or 0o600)
    assert [x.name for x in path.parent.iterdir()] == ["nftsync.db"]


def test_sequence_numbers_grow_in_all_processes_also_after_a_restart(tmp_path):
    """Also if the monotonic clock restarted, or the file was moved to another machine."""
    database = tmp_path / "nftsync.db"
    with Mirror(database) as mirror:
        before = mirror.numbers.take()
        mirror.connection.execute(
            "UPDATE mirror_state SET greatest_sequence = ?, sequence_offset = sequence_offset - ?",
            (before, 10**15),
        )
    with Mirror(database) as one, Mirror(database) as other:
        taken = [each.numbers.take() for _ in range(20) for each in (one, other)]
    assert taken == sorted({before, *taken})[1:]


def test_held_removals_hide_no_whole_state_after_the_clock_was_set_back(tmp_path):
    """A change while they are held gets no time before their span."""
    last = "2090-01-01T00:00:00.000000Z"

    def apply(mirror: Mirror, wallet: str, at: str | None) -> str:
        asked = {"sequence": mirror.numbers.take(), "started_at": now(), "outcome": "ok"}
        read = WalletRead(wallet_id=wallet, entries=[("t", "1", None)], **asked)
        with mirror.transaction(at) as transaction:
            transaction.apply([read])
            return transaction.observed_at

    def holders(at: str) -> list[str]:
        return sorted(frames.holdings(mirror.path, as_of=at)["wallet_id"])

    with Mirror(tmp_path / "nftsync.db", write_gap=0) as mirror:
        apply(mirror, "a", last)
        with mirror.transaction() as transaction:
            run = start_run(transaction.connection, "replay", mirror.numbers.take(), now()).run_id
            begin_span(transaction.connection, run, transaction.observed_at, changed=False)
        assert holders(last) == ["a"]
        within = apply(mirror, "b", None)
        assert within > last
        assert holders(last) == ["a"]
        with pytest.warns(NftsyncWarning, match="last whole state"):
            assert holders(within) == ["a"]
        with mirror.transaction() as transaction:
            end_span(transaction.connection, run)
        assert holders(within) == ["a", "b"]


@pytest.mark.parametrize("linked", [False, True])
def test_a_long_log_is_checkpointed_and_restarts(tmp_path, linked):
    database = tmp_path / "nftsync.db"
    if linked:
        (tmp_path / "disk").mkdir()
        database.symlink_to(tmp_path / "disk" / "real.db")

    def salts() -> bytes:
        """Return the part of the log's header that changes with each restart of the log."""
        real = database.resolve()  # SQLite puts it beside the file, not beside a link
        return real.with_name(f"{real.name}-wal").read_bytes()[16:24]

    with closing(connect_writer(database)) as writer:
        writer.execute("CREATE TABLE padding (content BLOB)")
        checkpoints = Checkpoints(database, writer, rows=8)
        for times in (1, 2):  # the second time over an existing log
            for _ in range(8):
                writer.execute("INSERT INTO padding VALUES (zeroblob(?))", (MEGABYTE,))
                checkpoints.after_commit()

            def restarted(before: bytes = salts()) -> bool:
                checkpoints.after_commit()
                writer.execute("PRAGMA user_version = 1")
                return salts() != before

            wait_until(restarted)
            assert database.stat().st_size > times * 8 * MEGABYTE
        checkpoints.close()
        assert writer.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_on_a_small_disk_the_log_leaves_the_database_its_room(small_disk):
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


def test_a_reader_that_keeps_the_log_growing_is_logged(tmp_path, caplog):
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


def test_status_names_a_log_that_grew_long(tmp_path, command):
    with Mirror(tmp_path / "nftsync.db") as mirror:
        with mirror.transaction() as transaction:
            transaction.connection.execute("CREATE TABLE padding (content BLOB)")
        os.truncate(log_of(tmp_path / "nftsync.db"), LONG_LOG)  # behind its end: a hole
        text = command("status", "-d", tmp_path / "nftsync.db").out
    assert re.search("^log  .*reads an old state; stop that program$", text, re.MULTILINE)
    assert "reads an old state" not in command("status", "-d", tmp_path / "nftsync.db").out
