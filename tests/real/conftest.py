"""A real history, where its data is beside the project."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.kit.worlds import alone
from tests.real.real_data import DATA
from tests.real.real_history import Facts, History, play


@pytest.fixture(scope="session")
def shared(shared: Path) -> Path:
    """The same folder; skips the test without real data."""
    if not DATA.is_dir():
        pytest.skip("the real holdings are not beside the project (../shared/data)")
    return shared


@pytest.fixture(scope="session")
def facts(shared: Path) -> Facts:
    return Facts()


@pytest.fixture(scope="session")
def history(facts: Facts, shared: Path) -> History:
    """The history, played once in a test run."""
    note = shared / "history.json"
    with alone(shared, "history"):
        if not note.exists():
            note.write_bytes(msgspec.json.encode(play(facts, shared / "history.db")))
    return msgspec.json.decode(note.read_bytes(), type=History)
