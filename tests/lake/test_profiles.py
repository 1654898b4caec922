"""Short profiles of `make lakekills`, `make lakedamage` and `make powercuts`."""

import pytest

from tests.kit.provider import Provider
from tests.nightly import chaos, lake_powercuts
from tests.nightly.lake_damage import Lakes
from tests.nightly.recorded_disk import can_record

#: A file of each kind: of the manifests, a bucket, a published table and its log, and the ledger.
KINDS = (
    "manifests/3-*",
    "buckets/0-*",
    "balances/bucket=*/*",
    "tokens/_delta_log/*.json",
    "runs/_delta_log/*.json",
)


def test_killed_workers_and_drivers_leave_complete_runs_and_no_change_twice(tmp_path, cluster):
    figures = chaos.run_seed(17, tmp_path, cluster, kills=3, at=" ".join(chaos.MOMENTS))
    assert [figures[moment] for moment in chaos.MOMENTS] == [1, 1, 1]
    assert figures["reads"] >= 1


@pytest.mark.skipif(not can_record(), reason="strace is not there, or may trace nothing here")
def test_a_run_whose_ok_was_printed_survives_power_cuts_and_the_next_sync_works(cluster):
    figures = lake_powercuts.run_seed(1, cluster, cuts=24, every=12)
    # How many cuts follow the printed results depends on the speed of the run.
    assert figures["run 2 shown"] + figures["run 3 shown"] >= 2
    assert figures["torn"] >= 5


def test_each_reader_of_a_damaged_lake_gives_the_right_answer_or_one_line(tmp_path, cluster):
    with Provider() as provider:
        lakes = Lakes(tmp_path, provider, cluster)
        for seed, kind in enumerate(KINDS):
            counts = lakes.meet(seed, tmp_path, lakes.files(kind)[-1], syncs=True)
            assert counts["right"] + counts["one line"] == 6
