"""What the mirror writes gets out of the write-ahead log and into the database, while it writes."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from nftsync.records import CONTENT_COLUMNS, WalletRead
from nftsync.store.database import connect_reader
from nftsync.store.mirror import Mirror

DESCRIPTION = CONTENT_COLUMNS.index("description")
MEGABYTE = 1024 * 1024


def large_read(mirror: Mirror, number: int) -> WalletRead:
    """A read of a wallet whose only token has a description of 4 MB."""
    content: list[str | None] = [None] * len(CONTENT_COLUMNS)
    content[DESCRIPTION] = "x" * 4 * MEGABYTE
    return WalletRead(
        wallet_id=f"aaaaaaaa-0000-4000-8000-{number:012}",
        ticket=mirror.tickets.take(),
        started_at="2026-01-01T00:00:00.000000Z",
        outcome="ok",
        entries=[(f"bbbbbbbb-0000-4000-8000-{number:012}", "1", tuple(content))],
    )


def log_salts(database: Path) -> bytes:
    """What the log's head says, and says anew each time that the log begins anew."""
    return database.with_name(f"{database.name}-wal").read_bytes()[16:24]


def test_a_long_log_begins_anew_while_the_mirror_writes(tmp_path: Path) -> None:
    database = tmp_path / "nftsync.db"
    with Mirror(database, air=0.0) as mirror:
        for times in (1, 2):  # the second time over what the first left in the log's file
            first = (times - 1) * 12
            for number in range(first, first + 12):
                with mirror.transaction() as transaction:
                    transaction.apply([large_read(mirror, number)])
                if number == first:
                    salts = log_salts(database)
            deadline = time.monotonic() + 60
            while log_salts(database) == salts:
                assert time.monotonic() < deadline
                with mirror.transaction() as transaction:
                    transaction.connection.execute("UPDATE mirror_state SET id = 1")
                time.sleep(0.01)
            assert database.stat().st_size > times * 40 * MEGABYTE
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT count(*) FROM balances").fetchone() == (24,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_reader_keeps_what_it_saw_and_the_log_waits_for_it(tmp_path: Path) -> None:
    database = tmp_path / "nftsync.db"
    with Mirror(database, air=0.0) as mirror, closing(connect_reader(database)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM balances").fetchone() == (0,)
        for number in range(12):
            with mirror.transaction() as transaction:
                transaction.apply([large_read(mirror, number)])
        assert reader.execute("SELECT count(*) FROM balances").fetchone() == (0,)
        reader.execute("COMMIT")
        assert reader.execute("SELECT count(*) FROM balances").fetchone() == (12,)


def test_closing_leaves_one_file(tmp_path: Path) -> None:
    database = tmp_path / "nftsync.db"
    with Mirror(database, air=0.0) as mirror:
        for number in range(10):  # the last ones while the thread is at work
            with mirror.transaction() as transaction:
                transaction.apply([large_read(mirror, number)])
    assert [path.name for path in tmp_path.iterdir()] == [database.name]
