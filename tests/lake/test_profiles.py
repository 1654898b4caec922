"""Short profiles of `make lakekills`, `make lakedamage` and `make powercuts`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kit.lake_cluster import Cluster, cluster_of
from tests.kit.provider import Provider
from tests.nightly import chaos, lake_powercuts
from tests.nightly.lake_damage import Lakes, damages
from tests.nightly.recorded_disk import can_record

#: A file of each kind: of the manifests, a bucket, a published table and its log, and the ledger.
KINDS = (
    "manifests/3-*",
    "buckets/0-*",
    "balances/bucket=*/*",
    "tokens/_delta_log/*.json",
    "runs/_delta_log/*.json",
)


def test_killed_workers_and_drivers_leave_complete_runs_and_no_change_twice(
    tmp_path: Path,
) -> None:
    with cluster_of(tmp_path, 2) as cluster:
        figures = chaos.run_seed(17, 3, tmp_path, cluster, [*chaos.MOMENTS])
    assert all(figures[moment] == 1 for moment in chaos.MOMENTS), figures
    assert figures["looks"] >= 1


@pytest.mark.skipif(not can_record(), reason="strace is not there, or may trace nothing here")
def test_a_run_whose_ok_was_printed_survives_power_cuts_and_the_next_sync_works(
    cluster: Cluster,
) -> None:
    figures, fault = lake_powercuts.run_seed(1, 24, 12, cluster)
    assert fault is None
    assert figures["run 2 shown"] + figures["run 3 shown"] >= 5
    assert figures["torn"] >= 5


def test_each_reader_of_a_damaged_lake_gives_the_right_answer_or_one_line(
    tmp_path: Path, cluster: Cluster
) -> None:
    rng = random.Random(1)
    with Provider() as provider:
        lakes = Lakes(tmp_path, provider, cluster.address)
        for kind in KINDS:
            path = rng.choice(sorted(lakes.original.glob(kind))[-2:])
            for damage in rng.sample(list(damages(path.stat().st_size, 4, rng)), 2):
                counts, fault = lakes.meet(path, damage, syncs=True)
                assert fault is None, fault
                assert counts["right"] + counts["one line"] == 6
