"""Each signed webhook with a usable type and id of its object leads to a read, by `serve`.

`EXAMPLES=1000 pytest tests/serve/test_any_webhook.py` sends that many random ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.database import begun
from tests.kit.serve_process import Serve, query, serving, states, wait_until_done, webhook
from tests.kit.waiting import wait_until
from tests.kit.worlds import Outcome, listed, mirrored

MARK = b"\xef\xbb\xbf"


def _without(body: bytes, name: str) -> bytes:
    return json.dumps({key: x for key, x in json.loads(body).items() if key != name}).encode()


def _odd(wallet: str) -> Iterator[bytes]:
    for value in (None, [], "text", 7, float("nan"), "\ud800", [[[]] * 20] * 20):
        yield webhook("Wallet", wallet, action=value, changes=value, unknown=value)
    for name in ("organizationId", "id", "action", "createdAtUtc", "changes"):
        yield _without(webhook("Wallet", wallet), name)
    yield webhook("Wallet", wallet.upper(), id=42)
    yield webhook("Wallet", f"urn:uuid:{wallet}", id="evt_1")
    yield webhook(" Wallet", wallet.replace("-", ""), createdAtUtc=1_769_860_800)
    yield MARK + webhook("Wallet", wallet)
    yield webhook("Wallet", wallet).decode().encode("utf-16")
    yield webhook("Wallet", wallet).replace(b"null", b'{"a": 1, "a": "\xff"}')
    yield webhook("Wallet", wallet).replace(b"null", b"[" * 50_000 + b"]" * 50_000)


@pytest.fixture(scope="module")
def provider() -> Iterator[SandboxServer]:
    with SandboxServer(lambda url: generate(wallets=4, nfts=1, seed=2, image_base=url)) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return begun(tmp_path_factory.mktemp("serve") / "nftsync.db").parent


@pytest.fixture(scope="module")
def server(folder: Path, provider: SandboxServer) -> Iterator[Serve]:
    with serving(folder, provider.url) as running:
        yield running
        assert running.stop() == 0


def test_the_change_that_an_odd_webhook_announces_is_read(
    server: Serve, folder: Path, provider: SandboxServer
) -> None:
    database = folder / "nftsync.db"
    wallet = provider.world.wallets()[0]
    for body in _odd(wallet):
        token = provider.world.mint(wallet, 1, {"name": "new"})
        assert server.post(body) == 200
        wait_until(lambda token=token: (wallet, token) in mirrored(database), body[:300])
    assert set(states(database).values()) <= {"done", "running", "pending"}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
names = ("organizationId", "id", "action", "createdAtUtc", "changes", "unknown")


@settings(max_examples=int(os.environ.get("EXAMPLES", "30")))
@given(
    changed=st.fixed_dictionaries({}, optional=dict.fromkeys(names, anything)),
    absent=st.sets(st.sampled_from(names)),
    number=st.integers(0, 3),
    encoding=st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "utf-16"]),
)
def test_webhooks_with_anything_in_other_fields_are_stored_pending_and_read(
    server: Serve,
    folder: Path,
    provider: SandboxServer,
    changed: dict[str, Any],
    absent: set[str],
    number: int,
    encoding: str,
) -> None:
    wallet = provider.world.wallets()[number]
    sent = json.loads(webhook("Wallet", wallet)) | changed
    text = json.dumps({key: value for key, value in sent.items() if key not in absent})
    body = text.encode(encoding)
    assert server.post(body) == 200
    stored = query(folder / "nftsync.db", "SELECT state FROM webhooks WHERE body = ?", body)
    assert {state for (state,) in stored} in ({"pending"}, {"running"}, {"done"})


def test_then_all_webhooks_are_done_and_the_mirror_is_up_to_date(
    server: Serve, folder: Path, provider: SandboxServer, command: Callable[..., Outcome]
) -> None:
    database = folder / "nftsync.db"
    for wallet in provider.world.wallets():
        assert server.post(webhook("Wallet", wallet)) == 200
    wait_until_done(database)
    assert query(database, "SELECT count(*) FROM webhooks WHERE run_id IS NULL") == [(0,)]
    assert mirrored(database) == listed(provider.world)
    assert command("verify", "--all", "-d", database, "--base-url", provider.url).code == 0
