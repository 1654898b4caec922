"""A world behind a real server, a provider that lies, and a place for the mirror."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import nftsync
from nftsync import settings
from nftsync.pull.api import sync_with
from nftsync.pull.plan import SyncRequest
from nftsync.pull.result import SyncResult
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.store.wallets import WalletLine
from tests.kit.provider import Provider, wallet
from tests.kit.worlds import mirrored
from tests.pull.removal_site import ALL, WALLETS, Site

Sync = Callable[..., SyncResult]


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
def sync(lying: Provider, tmp_path: Path) -> Sync:
    """A sync with short timeouts and one attempt, unless a test says otherwise."""

    def run(wallets: Any = None, *, toml: str = "", **given: Any) -> SyncResult:
        (tmp_path / "nftsync.toml").write_text(toml)
        request = {
            name: given.pop(name)
            for name in ("tokens", "older_than", "resume", "allow_removals")
            if name in given
        }
        flags = {"base_url": lying.url, "retries": 1, "timeout": 10, "concurrency": 4, **given}
        lines = None if wallets is None else [WalletLine(wallet_id) for wallet_id in wallets]
        return sync_with(
            settings.load(flags, environ={}, directory=tmp_path),
            SyncRequest(wallets=lines, **request),
            progress=False,
        )

    return run


@pytest.fixture
def query(tmp_path: Path) -> Callable[..., list[tuple[Any, ...]]]:
    def run(sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(tmp_path / "data/nftsync.db")) as connection:
            return connection.execute(sql, arguments).fetchall()

    return run


@pytest.fixture
def held(tmp_path: Path) -> Callable[[], dict[str, dict[str, str]]]:
    """What each wallet holds, as the mirror says."""

    def run() -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for (wallet_id, token_id), amount in mirrored(tmp_path / "data/nftsync.db").items():
            found.setdefault(wallet_id, {})[token_id] = amount
        return found

    return run


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror of what all wallets hold, to be copied."""
    path = tmp_path_factory.mktemp("filled") / "filled.db"
    with Provider() as provider:
        made = Site(provider, path)
        made.fill()
        wallets = [wallet(number) for number in range(WALLETS)]
        nftsync.sync(wallets, base_url=provider.url, database=path, progress=False)
    assert (made.held, made.names) == (ALL, ALL)
    return path


@pytest.fixture
def site(
    lying: Provider,
    filled: Path,
    database: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Site:
    monkeypatch.setenv("NFTSYNC_BASE_URL", lying.url)
    found = Site(lying, database, capsys)
    found.fill()
    shutil.copy(filled, database)
    return found
