"""A small world on a real port, and a receiver of its webhooks."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from nftsync.provider.webhooks import HEADER, sign
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.provider import Provider, Seen, reply
from tests.kit.waiting import wait_until

SECRET = "s3cret-ключ-🔑"
CONFIG = "/api/organization/v1/current-organization/webhook-config"
#: An unknown id.
UNKNOWN = "99999999-9999-4999-8999-999999999999"


@pytest.fixture
def server() -> Iterator[SandboxServer]:
    with SandboxServer(lambda url: generate(wallets=4, nfts=6, image_base=url)) as running:
        yield running


@pytest.fixture
def client(server: SandboxServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as session:
        yield session


@pytest.fixture
def receiver(lying: Provider) -> Provider:
    lying.always(reply())
    return lying


def config_for(receiver: Provider | str, **fields: object) -> dict[str, object]:
    """The configuration that sends nft webhooks to a receiver."""
    url = receiver if isinstance(receiver, str) else f"{receiver.url}/webhooks"
    config = {"url": url, "enabled": True, "sharedSecret": SECRET, "webhookTypes": ["nft"]}
    return config | fields


def enable(server: SandboxServer, receiver: Provider, **fields: object) -> None:
    server.sandbox.configure(json.dumps(config_for(receiver, **fields)).encode())


def is_signed(webhook: Seen, secret: str = SECRET) -> bool:
    return webhook.headers[HEADER.lower()] == sign(secret, webhook.body)


def finished(server: SandboxServer) -> list[dict[str, Any]]:
    """Wait until no delivery is pending; return all."""
    wait_until(lambda: all(each["state"] != "pending" for each in server.sandbox.deliveries()))
    return server.sandbox.deliveries()
