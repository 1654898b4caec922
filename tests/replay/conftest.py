"""An inbox in a database of its own, and a lying provider that is asked without long waits."""

import shutil
from pathlib import Path

import pytest

from nftsync.store.mirror import Mirror
from tests.kit.provider import Provider
from tests.replay.world import Place, hold


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database, to be copied: a new one costs a quarter of a second."""
    database = tmp_path_factory.mktemp("empty") / "nftsync.db"
    Mirror(database).close()
    return database


@pytest.fixture
def place(tmp_path: Path, empty: Path, provider: Provider) -> Place:
    """An empty database, and the provider it is filled from."""
    return Place(Path(shutil.copy(empty, tmp_path)), provider.url)


@pytest.fixture
def known(place: Place, provider: Provider) -> Place:
    """Wallets 0 and 1 have been read and hold a token; no webhook is left."""
    hold(place, provider, 2)
    return place
