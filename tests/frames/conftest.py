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


@pytest.fixture
def small_database(tmp_path: Path) -> Path:
    return small(tmp_path / "small.db").close()
