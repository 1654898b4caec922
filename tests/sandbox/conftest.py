"""A small world on a real port."""

from collections.abc import Iterator

import httpx
import pytest

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.webhook_receiver import Receiver


@pytest.fixture
def server() -> Iterator[SandboxServer]:
    with SandboxServer(lambda url: generate(wallets=4, nfts=6, image_base=url)) as running:
        yield running


@pytest.fixture
def client(server: SandboxServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as session:
        yield session


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running
