"""Databases that earlier versions made."""

from pathlib import Path

import pytest

from nftsync.store.schema import migrate
from tests.versions.make_databases import COMMITS, unpacked


@pytest.fixture(scope="session", params=COMMITS)
def version(request: pytest.FixtureRequest) -> str:
    """Each version that made databases of its own."""
    return str(request.param)


@pytest.fixture
def earlier(version: str, tmp_path: Path) -> Path:
    """A database that an earlier version made, alone in a folder."""
    return unpacked(version, tmp_path / "earlier" / "nftsync.db")


@pytest.fixture(scope="session")
def today(version: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same database, upgraded."""
    path = unpacked(version, tmp_path_factory.mktemp("today") / "nftsync.db")
    migrate(path)
    return path
