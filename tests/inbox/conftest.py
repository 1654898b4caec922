"""An inbox in a database of its own, and commands that look into it."""

from __future__ import annotations

from pathlib import Path

import pytest
from inbox_world import Inbox


@pytest.fixture(autouse=True)
def _own_settings(own_settings: None) -> None:
    """All tests here."""


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    """An empty inbox, in the database that commands use without being told."""
    (tmp_path / "data").mkdir()
    return Inbox(tmp_path / "data" / "nftsync.db")
