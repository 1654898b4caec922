"""An inbox in a database of its own, and a lying provider that is asked without long waits."""

import pytest

from tests.kit.database import begun
from tests.replay.world import Place


@pytest.fixture
def place(tmp_path, provider):
    """An empty database, and the provider it is filled from."""
    return Place(begun(tmp_path / "nftsync.db"), provider.url)


@pytest.fixture
def known(place, provider):
    """Wallets 0 and 1 have been read and hold a token; no webhook is left."""
    place.hold(provider, 2)
    return place
