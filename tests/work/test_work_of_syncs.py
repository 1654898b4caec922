"""What a sync asks of the provider, and what it leaves in the database."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import nftsync
from nftsync.http_server import HttpServer
from nftsync.sandbox.generator import generate
from nftsync.sandbox.service import EXTENSION, create_app

WALLETS, EACH = 30, 8


class CountingProvider:
    """The sandbox on a port, and what it answered.

    Attributes:
        statuses: how many answers had each status.
        body_bytes: the size of all their bodies.
    """

    def __init__(self) -> None:
        self._app = create_app(
            lambda: generate(wallets=WALLETS, nfts=EACH, seed=3, image_base="http://127.0.0.1")
        )
        self.sandbox = self._app.extensions[EXTENSION]
        self._lock = threading.Lock()
        self.forget()
        self._server = HttpServer(self._answer)
        self.url = self._server.url

    def forget(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.body_bytes = 0

    def _answer(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        statuses = []

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            statuses.append(status[:3])
            return start_response(status, headers, *rest)

        body = b"".join(self._app(environ, start))
        with self._lock:
            self.statuses.update(statuses)
            self.body_bytes += len(body)
        return [body]

    def wallets(self) -> list[str]:
        return list(self.sandbox.world.wallets())

    def close(self) -> None:
        self._server.close()
        self.sandbox.close()


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingProvider]:
    """Thirty wallets with eight NFTs each."""
    monkeypatch.chdir(tmp_path)
    provider = CountingProvider()
    yield provider
    provider.close()


def sync(provider: CountingProvider, **more: Any) -> nftsync.SyncResult:
    return nftsync.sync(
        provider.wallets(), base_url=provider.url, database="nftsync.db", progress=False, **more
    )


def contents() -> dict[str, list[tuple[Any, ...]]]:
    """The rows of all tables that tell of wallets, tokens and history, less times of reading."""
    columns = {
        "balance_rows": "*",
        "balance_change_rows": "*",
        "tokens": "*",
        "token_change_rows": "*",
        "token_sources": "*",
        "wallets": "wallet_id, status, error, wallet_no, body_sha256, state_id, first_seen_at",
        "wallet_state_rows": "state_id, wallet_no, first_read_at, body_sha256, observed_at",
    }
    with closing(sqlite3.connect("nftsync.db")) as db:
        return {
            table: db.execute(f"SELECT {names} FROM {table} ORDER BY 1, 2").fetchall()
            for table, names in columns.items()
        }


def test_a_sync_asks_once_for_each_wallet(provider: CountingProvider) -> None:
    result = sync(provider)
    assert result.requests == WALLETS
    assert provider.statuses == {"200": WALLETS}


def test_a_sync_with_tokens_asks_once_for_each_wallet_and_each_token(
    provider: CountingProvider,
) -> None:
    result = sync(provider, tokens=True)
    tokens = len(contents()["tokens"])
    assert 0 < tokens < WALLETS * EACH  # some are held by several
    assert result.requests == WALLETS + tokens
    assert provider.statuses == {"200": WALLETS + tokens}


def test_an_unchanged_sync_transfers_no_body_and_adds_no_row(provider: CountingProvider) -> None:
    sync(provider)
    before = contents()
    provider.forget()
    result = sync(provider)
    assert result.wallets.unchanged == WALLETS
    assert provider.statuses == {"304": WALLETS}
    assert provider.body_bytes == 0
    assert contents() == before


def test_a_sync_reads_the_body_of_changed_wallets_alone(provider: CountingProvider) -> None:
    sync(provider)
    before = contents()
    giver, taker = provider.wallets()[:2]
    with closing(sqlite3.connect("nftsync.db")) as db:
        (token,) = db.execute(
            "SELECT token_id FROM balances WHERE wallet_id = ? AND token_id NOT IN"
            " (SELECT token_id FROM balances WHERE wallet_id <> ?)",
            (giver, giver),
        ).fetchone()
    provider.sandbox.transfer(giver, taker, token, "1")
    provider.forget()
    sync(provider)
    assert provider.statuses == {"304": WALLETS - 2, "200": 2}
    after = contents()
    changes = {table: len(after[table]) - len(before[table]) for table in after}
    assert changes == {
        **dict.fromkeys(after, 0),
        "balance_change_rows": 2,
        "wallet_state_rows": 2,
    }
