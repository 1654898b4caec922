from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from frames_database import Builder, small


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Builder]:
    builder = Builder(tmp_path / "nftsync.db")
    yield builder
    builder.close()


@pytest.fixture(scope="session")
def small_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To read only: all tests have it in common."""
    return small(tmp_path_factory.mktemp("small") / "small.db").close()
