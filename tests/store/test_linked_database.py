"""A database that is reached through a link has its log beside itself, where it is checkpointed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nftsync.store import checkpoints as of_mirror
from nftsync.store.mirror import Mirror

MEGABYTE = 1024 * 1024
UNTIL_IT_IS_MOVED = 60.0


@pytest.fixture
def link(tmp_path: Path) -> Path:
    """A link to a database, in another folder."""
    (tmp_path / "disk").mkdir()
    real = tmp_path / "disk" / "real.db"
    Mirror(real).close()
    link = tmp_path / "nftsync.db"
    link.symlink_to(real)
    return link


def wait_until(moved: Callable[[], bool]) -> None:
    deadline = time.monotonic() + UNTIL_IT_IS_MOVED
    while not moved():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_mirror_moves_its_log_into_the_database(
    link: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_mirror, "_MOST_BYTES", MEGABYTE)
    with Mirror(link, air=0.0) as mirror:
        with mirror.transaction() as transaction:
            transaction.connection.execute("CREATE TABLE padding (content BLOB)")
            transaction.connection.execute(
                "INSERT INTO padding VALUES (zeroblob(?))", (8 * MEGABYTE,)
            )
        wait_until(lambda: link.stat().st_size > 8 * MEGABYTE)
