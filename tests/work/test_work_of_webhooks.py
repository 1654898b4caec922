"""What webhooks cost: reads of the provider, statements, and steps of SQLite."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from provider import Provider, balances, entry, reply, token, wallet
from sql_work import SqlWork, counted
from webhook_burst import deliveries, receive, replay

from nftsync.provider.routes import Route
from nftsync.store.inbox import store
from nftsync.store.mirror import Mirror
from nftsync.times import now


@pytest.fixture(autouse=True)
def _own_settings(own_settings: None) -> None:
    """All tests here."""


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


def test_a_burst_of_webhooks_on_few_wallets_reads_each_wallet_once(
    provider: Provider, tmp_path: Path
) -> None:
    database = tmp_path / "nftsync.db"
    wallets = [wallet(number) for number in range(20)]
    for number, wallet_id in enumerate(wallets):
        provider.holds(wallet_id, entry(token(number)))
    with closing(Mirror(database)) as mirror:
        receive(mirror, wallets * 25)
    result = replay(database, provider.url)
    assert (result.done, result.fetches) == (500, 20)
    paths = Counter(seen.path for seen in provider.seen)
    assert set(paths.values()) == {1}
    assert len(paths) == 20


def test_webhooks_on_an_unchanged_wallet_transfer_no_body(
    provider: Provider, tmp_path: Path
) -> None:
    """What the mirror knows of the last answer is sent along, and the answer is empty."""
    body = balances(entry(token(1)))
    provider.always(reply(body, etag='"1"'), reply(status=304))
    for _ in range(3):
        with closing(Mirror(tmp_path / "nftsync.db")) as mirror:
            receive(mirror, [wallet(1)])
        assert replay(tmp_path / "nftsync.db", provider.url).done == 1
    asked = [seen.headers.get("if-none-match") for seen in provider.requests()]
    assert asked == [None, '"1"', '"1"']


def test_a_wallet_that_many_objects_lead_to_is_read_once(
    provider: Provider, tmp_path: Path
) -> None:
    database = tmp_path / "nftsync.db"
    tokens = [token(number) for number in range(20)]
    provider.holds(wallet(1), *(entry(token_id) for token_id in tokens))
    for token_id in tokens:
        provider.bodies[f"/v1/tokens/{token_id}"] = json.dumps({"id": token_id}).encode()
    with closing(Mirror(database)) as mirror:
        receive(mirror, [wallet(1)])
        replay(database, provider.url)
        receive(mirror, tokens, "Token")
    result = replay(database, provider.url, {"Token": Route(holders=True)})
    assert (result.done, result.fetches) == (20, 21)
    assert len(provider.requests()) == 1 + 21


def storing(mirror: Mirror, count: int) -> SqlWork:
    batch = deliveries([wallet(number) for number in range(count)])
    with counted(mirror.connection) as work, mirror.transaction() as transaction:
        store(transaction.connection, batch, now())
    return work


def test_storing_webhooks_takes_a_few_statements_for_all_of_them(tmp_path: Path) -> None:
    with closing(Mirror(tmp_path / "nftsync.db", air=0.0)) as mirror:
        few, many = storing(mirror, 10), storing(mirror, 110)
    assert many.rows - few.rows == 100
    assert len(many.statements) - len(few.statements) <= 100 / 50


def test_storing_a_webhook_takes_as_many_steps_with_many_waiting(tmp_path: Path) -> None:
    with closing(Mirror(tmp_path / "nftsync.db", air=0.0)) as mirror:
        storing(mirror, 50)
        early = storing(mirror, 50).steps
        for _ in range(10):
            storing(mirror, 500)
        late = storing(mirror, 50).steps
    assert 0 < late < 1.3 * early + 100
