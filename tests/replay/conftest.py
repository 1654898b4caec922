"""An inbox in a database of its own, and a lying provider that is asked without long waits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from provider import Provider
from replay_world import Place

from nftsync.client import Client
from nftsync.store.mirror import Mirror


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of this machine, and short waits before a request is repeated."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("NFTSYNC_"):
            monkeypatch.delenv(name)
    monkeypatch.setitem(Client.__init__.__kwdefaults__, "first_wait", 0.01)


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, provider: Provider) -> Place:
    """An empty database, and the provider it is filled from."""
    database = tmp_path / "nftsync.db"
    Mirror(database).close()
    return Place(database, provider.url)
