"""What a sync asks of the provider, and what it leaves in the database."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sql_work import SqlWork, count_mirrors

import nftsync
from nftsync.provider.client import ClientConfig
from nftsync.pull.plan import SyncRequest
from nftsync.pull.run import sync_wallets
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import EXTENSION, create_app
from nftsync.store.wallets import WalletLine
from nftsync.wsgi import HttpServer

WALLETS, EACH = 100, 4
AT_ONCE = 4
#: How long a sync waits for reads that it could write together with those it has, in seconds.
PATIENCE = 0.2


class CountingProvider:
    """The sandbox on a port, and what it answered.

    Attributes:
        statuses: how many answers had each status.
        body_bytes: the size of all their bodies.
        etags: which answers carry an ETag: `all`, `whole` ones (not a 304), or `none`.
        stall_after: so many answers are given; the others wait for `go_on`.
        stalled: is set when one waits.
        go_on: set it, and they are given.
    """

    def __init__(self) -> None:
        self._app = create_app(
            lambda: generate(wallets=WALLETS, nfts=EACH, seed=3, image_base="http://127.0.0.1")
        )
        self.sandbox = self._app.extensions[EXTENSION]
        self._lock = threading.Lock()
        self.etags = "all"
        self.stall_after: int | None = None
        self.stalled, self.go_on = threading.Event(), threading.Event()
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
            if self.etags == "none" or (self.etags == "whole" and status.startswith("304")):
                headers = [(name, value) for name, value in headers if name.lower() != "etag"]
            return start_response(status, headers, *rest)

        body = b"".join(self._app(environ, start))
        with self._lock:
            self.statuses.update(statuses)
            self.body_bytes += len(body)
            late = self.stall_after is not None and self.statuses.total() > self.stall_after
        if late:
            self.stalled.set()
            self.go_on.wait(30)
        return [body]

    def wallets(self) -> list[str]:
        return list(self.sandbox.world.wallets())

    def close(self) -> None:
        self.go_on.set()
        self._server.close()
        self.sandbox.close()


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingProvider]:
    """A hundred wallets with four NFTs each."""
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


@pytest.mark.parametrize("etags", ["all", "whole"])
def test_unchanged_syncs_transfer_no_body_and_add_no_row(
    provider: CountingProvider, etags: str
) -> None:
    """However many there are, and whether or not a 304 says the ETag again."""
    provider.etags = etags
    sync(provider)
    before = contents()
    for _ in range(3):
        provider.forget()
        result = sync(provider)
        assert result.wallets.unchanged == WALLETS
        assert provider.statuses == {"304": WALLETS}
        assert provider.body_bytes == 0
        assert contents() == before


def test_an_unchanged_sync_writes_two_rows_for_each_wallet(
    provider: CountingProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three statements for each: to make sure it is registered, and to write those."""
    sync(provider)
    works = count_mirrors(monkeypatch, "nftsync.pull.run")
    began = time.monotonic()
    sync(provider)
    (work,) = works
    assert work.transactions <= 6 + (time.monotonic() - began) / PATIENCE
    assert 2 * WALLETS <= work.rows <= 2 * WALLETS + 3 * work.transactions
    assert len(work.statements) <= 3 * WALLETS + 12 * work.transactions


def test_without_etags_the_same_bodies_are_not_compared_again(
    provider: CountingProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.etags = "none"
    sync(provider)
    before = contents()
    provider.forget()
    works: list[SqlWork] = count_mirrors(monkeypatch, "nftsync.pull.run")
    result = sync(provider)
    assert provider.statuses == {"200": WALLETS}
    assert result.wallets.unchanged == WALLETS
    assert contents() == before
    assert not any(" balance_rows" in statement for statement in works[0].statements)


def test_a_changed_token_costs_the_bodies_of_its_holders_alone(provider: CountingProvider) -> None:
    sync(provider)
    with closing(sqlite3.connect("nftsync.db")) as db:
        token, holders = db.execute(
            "SELECT token_id, count(*) FROM balances GROUP BY token_id ORDER BY 2 DESC LIMIT 1"
        ).fetchone()
    assert 1 < holders < WALLETS
    provider.sandbox.edit_metadata(token, {"name": "another"})
    for changed in (holders, 0):
        provider.forget()
        sync(provider)
        assert +provider.statuses == +Counter({"304": WALLETS - changed, "200": changed})


@pytest.mark.parametrize("tokens", [False, True])
def test_a_resumed_sync_asks_for_what_is_left_alone(
    provider: CountingProvider, tokens: bool
) -> None:
    config = ClientConfig(base_url=provider.url)
    wallets = [WalletLine(wallet_id) for wallet_id in provider.wallets()]
    provider.stall_after = WALLETS + 20 if tokens else 20

    def part(*, resume: bool) -> nftsync.SyncResult:
        return sync_wallets(
            Path("nftsync.db"),
            config,
            SyncRequest(wallets, tokens=tokens, resume=resume),
            concurrency=AT_ONCE,
            progress=False,
            stopped=provider.stalled,
        )

    first = part(resume=False)
    assert first.status == "interrupted"
    assert first.requests > AT_ONCE
    provider.go_on.set()
    provider.stall_after = None
    provider.stalled.clear()
    provider.forget()
    second = part(resume=True)
    assert second.status == "ok"
    read = WALLETS + (len(contents()["tokens"]) if tokens else 0)
    assert second.requests == read
    # The server may have come to those that were cut off only now.
    assert provider.statuses.total() - (read - first.requests) in range(AT_ONCE)


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
