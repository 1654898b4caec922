"""Providers, and databases that mirror them."""

import shutil

import pytest

import nftsync
from tests.kit.provider import Provider, wallet
from tests.pull.mirror import Mirror
from tests.pull.removal_site import ALL, WALLETS, Site


@pytest.fixture
def database(tmp_path):
    """The path of a database that does not exist yet, in the working directory."""
    return tmp_path / "nftsync.db"


@pytest.fixture
def mirror(lying, database):
    """A mirror of the provider double, not synced yet."""
    return Mirror(lying, database)


@pytest.fixture(scope="session")
def filled(tmp_path_factory):
    """A mirror of all wallets of a removal site, to be copied."""
    path = tmp_path_factory.mktemp("filled") / "filled.db"
    with Provider() as provider:
        made = Site(provider, path)
        made.fill()
        wallets = [wallet(number) for number in range(WALLETS)]
        nftsync.sync(wallets, base_url=provider.url, database=path, progress=False)
    assert made.holdings == ALL
    return path


@pytest.fixture
def site(lying, filled, database, monkeypatch):
    """A complete mirror of 100 wallets with five NFTs each, and commands on it."""
    monkeypatch.setenv("NFTSYNC_BASE_URL", lying.url)
    found = Site(lying, database)
    found.fill()
    shutil.copy(filled, database)
    return found
