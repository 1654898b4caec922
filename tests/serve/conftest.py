"""A small provider that can be scripted, its first sync, and `serve` on that database."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import nftsync
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.database import begun
from tests.kit.serve_process import Serve, assert_settled, serving


@pytest.fixture
def provider() -> Iterator[SandboxServer]:
    with SandboxServer(lambda url: generate(wallets=4, nfts=3, seed=2, image_base=url)) as running:
        yield running


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The path of the database of `serve`."""
    return tmp_path / "nftsync.db"


@pytest.fixture
def synced(provider: SandboxServer, database: Path) -> Path:
    """A database into which all of the provider's wallets have been read."""
    wallets = provider.world.wallets()
    nftsync.sync(wallets, base_url=provider.url, database=begun(database), progress=False)
    return database


@pytest.fixture
def serve(database: Path) -> Callable[..., AbstractContextManager[Serve]]:
    """Run `serve`; stop it at the end of the block, and check that it has left no work running."""

    @contextmanager
    def run(url: str | None, *arguments: object, **options: Any) -> Iterator[Serve]:
        with serving(database.parent, url, *arguments, **options) as server:
            yield server
            if server.process.poll() is None:
                assert server.stop() == 0
                assert_settled(database)

    return run
