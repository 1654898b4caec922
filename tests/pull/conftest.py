"""Providers, and databases that mirror them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import nftsync
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.provider import Provider, wallet
from tests.pull.mirror import Mirror
from tests.pull.removal_site import ALL, WALLETS, Site


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The path of a database that does not exist yet, in the working directory."""
    return tmp_path / "nftsync.db"


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A sandbox with 30 wallets."""
    with SandboxServer(lambda url: generate(wallets=30, nfts=8, seed=3, image_base=url)) as server:
        yield server


@pytest.fixture
def mirror(lying: Provider, database: Path) -> Mirror:
    """A mirror of the provider double, not synced yet."""
    return Mirror(lying, database)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror of all wallets of a removal site, to be copied."""
    path = tmp_path_factory.mktemp("filled") / "filled.db"
    with Provider() as provider:
        made = Site(provider, path)
        made.fill()
        wallets = [wallet(number) for number in range(WALLETS)]
        nftsync.sync(wallets, base_url=provider.url, database=path, progress=False)
    assert (made.held, made.names) == (ALL, ALL)
    return path


@pytest.fixture
def site(lying: Provider, filled: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A complete mirror of 100 wallets with five NFTs each, and commands on it."""
    monkeypatch.setenv("NFTSYNC_BASE_URL", lying.url)
    found = Site(lying, database)
    found.fill()
    shutil.copy(filled, database)
    return found
