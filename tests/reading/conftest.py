"""A provider on a real port, and a database that a real sync made of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mirrored_site import Site

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer


@pytest.fixture(autouse=True)
def _own_settings(own_settings: None) -> None:
    """All tests here."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Four wallets of five NFTs each, mirrored once; edit the world and sync again."""
    with SandboxServer(lambda url: generate(wallets=4, nfts=5, image_base=url)) as server:
        made = Site(server, tmp_path / "mirror.db")
        made.sync()
        yield made
