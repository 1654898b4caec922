"""The description of the provider's API holds for the sandbox and for the receiver of `serve`.

Schemathesis makes the requests, also wrong ones, and checks the replies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.receiver.conftest import Running, running

FILE = Path(__file__).parents[2] / "docs/reference/provider.yaml"
DESCRIPTION: dict[str, Any] = schemathesis.openapi.from_path(FILE).raw_schema
BALANCES, TOKEN, CONFIG = DESCRIPTION["paths"]
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxServer]:
    with SandboxServer(generate(wallets=4, nfts=6)) as running:
        yield running


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("receiver") / "a.db") as made:
        yield made


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize(("path", "method"), [(BALANCES, "GET"), (TOKEN, "GET"), (CONFIG, "PATCH")])
@settings(max_examples=15, derandomize=True)
@given(data=st.data())
def test_the_sandbox_does_as_described(sandbox, path, method, mode, data):
    schema = schemathesis.openapi.from_dict(DESCRIPTION)
    case: Any = data.draw(schema[path][method].as_strategy(generation_mode=mode))
    if mode is schemathesis.GenerationMode.POSITIVE and path != CONFIG:
        wallets = sandbox.world.wallets()
        tokens = [token for wallet in wallets for token in sandbox.world.amounts(wallet)]
        name, ids = ("walletId", wallets) if path == BALANCES else ("tokenId", tokens)
        case.path_parameters = {name: data.draw(st.sampled_from(ids))}
    case.call_and_validate(base_url=sandbox.url)


@settings(max_examples=30, derandomize=True)
@given(data=st.data())
def test_the_receiver_stores_each_webhook_as_described(receiver, data):
    parts = DESCRIPTION | {"paths": {"/webhooks": DESCRIPTION["webhooks"]["changed"]}}
    operation = schemathesis.openapi.from_dict(parts)["/webhooks"]["POST"]
    body = json.dumps(data.draw(operation.as_strategy()).body).encode()
    assert receiver.post(body) == 200
    assert receiver.client.post("/webhooks", content=body).status_code == 401
