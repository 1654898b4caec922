"""A lake's driver whose own threads fail: the run ends with an error, and nobody waits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from nftsync.errors import NftsyncError
from nftsync.lake.ledger import Ledger
from nftsync.lake.run import ClusterOptions, sync_lake
from nftsync.lake.storage import Lake
from nftsync.settings import load
from tests.kit.lake_cluster import Cluster
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import PATIENCE


class Faulty(Lake):
    """A lake whose tables cannot be opened for a reason that nobody expects."""

    fault: Exception | None = None

    def open(self, name: str, version: int | None = None) -> Any:
        if self.fault is not None:
            raise self.fault
        return super().open(name, version)

    def table(self, name: str, version: int | None = None) -> Any:
        if self.fault is not None:
            raise self.fault
        return super().table(name, version)


def test_a_heartbeat_that_fails_unexpectedly_tells_its_driver(tmp_path: Path) -> None:
    lake = Faulty(str(tmp_path / "lake"))
    ledger = Ledger(lake)
    run = ledger.begin("", 4, 60.0)
    failures: SimpleQueue[Exception] = SimpleQueue()
    with ledger.heartbeat(run, 0.2, failures.put) as lost:
        lake.fault = LookupError("nobody foresaw it")
        assert failures.get(timeout=PATIENCE) is lake.fault
        assert not lost.is_set()  # nobody has taken it over
        lake.fault = None
    assert ledger.runs()[-1].status == "interrupted"


def test_a_driver_that_cannot_share_the_rate_limit_ends_its_run(
    tmp_path: Path, cluster: Cluster
) -> None:
    """Else its workers would wait to be told their share."""
    with Provider() as provider:
        provider.holds(wallet(1), entry(token(1)))
        (tmp_path / "wallets.txt").write_text(wallet(1))
        settings = load({"base_url": provider.url, "wallets_file": tmp_path / "wallets.txt"})
        # No setting is of that type.
        settings = replace(settings, rate_limit="3")  # type: ignore[arg-type]
        where = ClusterOptions(scheduler=cluster.address, buckets=2)
        message = r"^the shared rate limit failed unexpectedly \(TypeError: "
        with pytest.raises(NftsyncError, match=message):
            sync_lake(settings, str(tmp_path / "lake"), where, progress=False)
    assert Ledger(Lake(str(tmp_path / "lake"))).runs()[-1].status != "running"
