"""A provider whose lists are long enough to fill a small disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer


@pytest.fixture
def provider() -> Iterator[SandboxServer]:
    with SandboxServer(lambda url: generate(wallets=6, nfts=40, seed=4, image_base=url)) as running:
        yield running
