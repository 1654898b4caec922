"""An inbox or an outbox in the default database of commands."""

from pathlib import Path

import pytest

from tests.kit.inbox import Inbox, Outbox


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    """An empty outbox, in the default database of commands."""
    (tmp_path / "data").mkdir()
    return Outbox(tmp_path / "data" / "nftsync.db")


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    """An empty inbox, in the default database of commands."""
    (tmp_path / "data").mkdir()
    return Inbox(tmp_path / "data" / "nftsync.db")
