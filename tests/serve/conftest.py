"""A small provider that can be scripted, and its first sync."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import nftsync
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.database import begun


@pytest.fixture
def provider() -> Iterator[SandboxServer]:
    with SandboxServer(lambda url: generate(wallets=4, nfts=3, seed=2, image_base=url)) as running:
        yield running


@pytest.fixture
def synced(provider: SandboxServer, tmp_path: Path) -> Path:
    """A database into which all of the provider's wallets have been read."""
    database = begun(tmp_path / "nftsync.db")
    wallets = provider.world.wallets()
    done = nftsync.sync(wallets, base_url=provider.url, database=database, progress=False)
    assert done.status == "ok"
    return database
