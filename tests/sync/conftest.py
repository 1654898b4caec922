"""A world behind a real server, and a place for the mirror."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from provider import Provider

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database that is not there yet, in an otherwise empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "nftsync.db"


@pytest.fixture
def provider() -> Iterator[SandboxServer]:
    """A small world behind a real server."""
    with SandboxServer(lambda url: generate(wallets=30, nfts=8, seed=3, image_base=url)) as server:
        yield server


@pytest.fixture
def lying() -> Iterator[Provider]:
    """A provider that answers as it is told to."""
    with Provider() as running:
        yield running
