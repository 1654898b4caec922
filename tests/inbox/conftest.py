"""An inbox in a database of its own, and commands that look into it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from inbox_world import Inbox, Outcome

from nftsync.cli import main


@pytest.fixture(autouse=True)
def _own_settings(own_settings: None) -> None:
    """All tests here."""


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    """An empty inbox, in the database that commands use without being told."""
    (tmp_path / "data").mkdir()
    return Inbox(tmp_path / "data" / "nftsync.db")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command in this process."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Outcome(ended.value.code, captured.out, captured.err)

    return run
