"""What webhooks cost: reads of the provider, statements, and steps of SQLite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from provider import Provider, entry, token, wallet
from sql_work import SqlWork, counted
from webhook_burst import deliveries, receive, replay

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


def storing(mirror: Mirror, count: int) -> SqlWork:
    batch = deliveries([wallet(number) for number in range(count)])
    with counted(mirror.connection) as work, mirror.transaction() as transaction:
        store(transaction.connection, batch, now())
    return work


def test_storing_webhooks_takes_a_few_statements_for_all_of_them(tmp_path: Path) -> None:
    with closing(Mirror(tmp_path / "nftsync.db", air=0.0)) as mirror:
        few, many = storing(mirror, 10), storing(mirror, 110)
    assert many.rows - few.rows == 100
    assert len(many.statements) - len(few.statements) <= 100


def test_storing_a_webhook_takes_as_many_steps_with_many_waiting(tmp_path: Path) -> None:
    with closing(Mirror(tmp_path / "nftsync.db", air=0.0)) as mirror:
        storing(mirror, 50)
        early = storing(mirror, 50).steps
        for _ in range(10):
            storing(mirror, 500)
        late = storing(mirror, 50).steps
    assert 0 < late < 1.3 * early + 100
