"""An inbox in a database of its own, and a lying provider that is asked without long waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from nftsync.store.mirror import Mirror
from tests.kit.provider import Provider
from tests.replay.world import Place, hold


@pytest.fixture
def place(tmp_path: Path, provider: Provider) -> Place:
    """An empty database, and the provider it is filled from."""
    database = tmp_path / "nftsync.db"
    Mirror(database).close()
    return Place(database, provider.url)


@pytest.fixture
def known(place: Place, provider: Provider) -> Place:
    """Wallets 0 and 1 have been read and hold a token; no webhook is left."""
    hold(place, provider, 2)
    return place
