"""Requests and writes that the documentation promises: counted, as seconds differ."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import nftsync
from nftsync.records import CONTENT_COLUMNS, WalletRead
from nftsync.store.mirror import Mirror
from nftsync.times import now
from tests.kit.provider import Provider, balances, entry, reply, token, wallet
from tests.pull.runs import path_of

WALLETS = 20
TABLES = "balance_rows", "balance_change_rows", "tokens", "token_change_rows", "wallet_state_rows"


@pytest.fixture
def provider(lying: Provider) -> Provider:
    """Twenty wallets with two NFTs each, one of them held by all; each answer has an ETag."""
    for number in range(WALLETS):
        body = balances(entry(token(number)), entry(token(WALLETS)))
        lying.on(path_of(number), reply(body, etag='"1"'), reply(status=304))
    return lying


def sync(provider: Provider, **more: Any) -> nftsync.SyncResult:
    wallets = [wallet(number) for number in range(WALLETS)]
    return nftsync.sync(
        wallets, base_url=provider.url, database="nftsync.db", progress=False, **more
    )


def sizes() -> list[int]:
    with closing(sqlite3.connect("nftsync.db")) as db:
        return [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES]


def test_unchanged_syncs_ask_once_for_each_wallet_and_get_and_write_nothing_new(
    provider: Provider,
) -> None:
    assert sync(provider, concurrency=4).requests == WALLETS
    before = sizes()
    for _ in range(2):
        result = sync(provider, concurrency=4)
        assert (result.requests, result.wallets.unchanged) == (WALLETS, WALLETS)
        assert sizes() == before
    assert provider.connections <= 3 * 4  # they are kept alive
    validators = [seen.headers.get("if-none-match") for seen in provider.requests()]
    assert validators == [None] * WALLETS + ['"1"'] * 2 * WALLETS


def test_a_sync_with_tokens_asks_once_for_each_wallet_and_each_token(provider: Provider) -> None:
    provider.always(reply(b'{"id": "x"}'))
    result = sync(provider, tokens=True)
    assert result.requests == len({seen.path for seen in provider.requests()}) == 2 * WALLETS + 1


def test_a_changed_wallet_costs_its_own_body_and_rows_alone(provider: Provider) -> None:
    sync(provider)
    before = sizes()
    changed = balances(entry(token(0), "2"), entry(token(WALLETS)))
    provider.on(path_of(0), reply(changed, etag='"2"'))
    assert sync(provider).wallets.unchanged == WALLETS - 1
    assert [after - size for after, size in zip(sizes(), before, strict=True)] == [0, 1, 0, 0, 1]


def test_applying_a_read_takes_as_many_steps_of_sqlite_in_a_large_database(tmp_path: Path) -> None:
    def steps(wallets: int) -> list[int]:
        with Mirror(tmp_path / f"{wallets}.db", write_gap=0.0) as mirror:
            apply(mirror, [found(mirror, number) for number in range(wallets)])
            return [
                apply(mirror, [found(mirror, number, amount, kind)])
                for number, amount, kind in (
                    *((wallets, "1", "new"), (wallets // 2, "2", "changed")),
                    (wallets // 3, "1", "unchanged"),
                )
            ]

    for large, small in zip(steps(600), steps(60), strict=True):
        assert 0 < large < 1.3 * small + 100


def apply(mirror: Mirror, reads: list[WalletRead]) -> int:
    """Apply reads; returns tens of steps of SQLite's virtual machine."""
    steps: list[None] = []
    mirror.connection.set_progress_handler(lambda: steps.append(None), 10)
    with mirror.transaction() as transaction:
        transaction.apply(reads)
    mirror.connection.set_progress_handler(None, 10)
    return 10 * len(steps)


def found(mirror: Mirror, number: int, amount: str = "1", kind: str = "new") -> WalletRead:
    """A read of a wallet of twenty NFTs; `unchanged`: its answer was the one before."""
    ids = [hashlib.sha256(f"{number} {each}".encode()).hexdigest()[:36] for each in range(20)]
    content = ("organization", *[None] * (len(CONTENT_COLUMNS) - 1))
    unchanged = kind == "unchanged"
    return WalletRead(
        wallet_id=wallet(number),
        sequence=mirror.numbers.take(),
        started_at=now(),
        outcome="unchanged" if unchanged else "ok",
        entries=[] if unchanged else [(each, amount, content) for each in ids],
        digest=f"{number} {amount}",
    )
