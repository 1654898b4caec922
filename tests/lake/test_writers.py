"""A step of a worker that is repeated gives the same rows and ids."""

from __future__ import annotations

import copy
import threading
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nftsync.lake.manifest import BucketEntry
from nftsync.lake.setup import create_lake
from nftsync.lake.steps import (
    BucketReport,
    RunSpec,
    SyncTask,
    apply_waiting,
    sync_bucket,
)
from nftsync.lake.storage import Lake
from nftsync.provider.config import ClientConfig
from nftsync.provider.rate_limit import GiveUpRule
from nftsync.pull.guard import Decision
from nftsync.store.wallets import WalletLine
from tests.kit.lake_cluster import opened
from tests.kit.provider import Provider, entry, token, wallet

WALLETS = [WalletLine(wallet(number)) for number in range(20)]


@pytest.fixture
def spec(provider: Provider, tmp_path: Path) -> RunSpec:
    """A run that reads twenty wallets of five tokens into the first of two buckets."""
    lake = Lake(str(tmp_path / "lake"))
    create_lake(lake)
    show(provider, 5)
    config, folder = ClientConfig(base_url=provider.url), "run-1"
    one = partial(RunSpec, url=lake.url, driver="one", run_id=1, folder=folder, buckets=2)
    return one(config=config, publishes=False)


def show(provider: Provider, count: int) -> None:
    for number, each in enumerate(WALLETS):
        provider.holds(each.wallet_id, *(entry(token(5 * number + n)) for n in range(count)))


def read(spec: RunSpec, entry: BucketEntry | None = None) -> BucketReport:
    task = SyncTask(entry or BucketEntry(), WALLETS)
    return sync_bucket(spec, 0, task, None, threading.Event(), GiveUpRule())


def changes(spec: RunSpec, report: BucketReport) -> list[tuple[Any, ...]]:
    """The change feed in the file that a report names."""
    assert report.entry is not None
    assert report.entry.file is not None
    with opened(partial(spec.lake.fetch, report.entry.file)) as connection:
        query = "SELECT change_id, wallet_id, token_id, new_amount FROM balance_changes ORDER BY 1"
        return connection.execute(query).fetchall()


def test_a_repeated_step_gives_the_same_rows_and_ids(provider: Provider, spec: RunSpec) -> None:
    reports = [read(spec) for _ in range(2)]
    for report in reports:
        assert [row[0] for row in changes(spec, report)] == list(range(1, 200, 2))
    before = reports[0].entry
    assert before is not None
    show(provider, 4)
    own = {x: getattr(before, x) for x in ("change", "state", "token_change", "changed_at")}
    spec = msgspec.structs.replace(spec, run_id=2, folder="run-2", **own)
    waits = read(spec, before)
    assert waits.entry is None
    assert sum(len(removals.lost) for removals in waits.day.waiting) == 20
    for decision, removed in ((Decision(), 20), (Decision(all_balances=True), 0)):
        ends = [apply_waiting(spec, 0, (copy.deepcopy(waits), decision)) for _ in range(2)]
        assert [report.counts.balances_removed for report in ends] == [removed] * 2
        assert changes(spec, ends[0]) == changes(spec, ends[1])
        new = changes(spec, ends[0])[100:]
        assert [row[0] for row in new] == list(range(200, 200 + 2 * removed, 2))
