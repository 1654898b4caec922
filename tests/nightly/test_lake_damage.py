"""Damaged files of a lake: the right answer or one line; a short profile of `make lakedamage`."""

from __future__ import annotations

import random
from pathlib import Path

from tests.kit.lake_cluster import cluster_of
from tests.kit.provider import Provider
from tests.nightly.lake_damage import Lakes, damages

#: A file of each kind: of the manifests, a bucket, a published table and its log, and the ledger.
KINDS = (
    "manifests/3-*",
    "buckets/0-*",
    "balances/bucket=*/*",
    "tokens/_delta_log/*.json",
    "runs/_delta_log/*.json",
)


def test_each_reader_gives_the_right_answer_or_one_line(tmp_path: Path) -> None:
    rng = random.Random(1)
    (tmp_path / "cluster").mkdir()
    with cluster_of(tmp_path / "cluster", 1) as cluster, Provider() as provider:
        lakes = Lakes(tmp_path, provider, cluster.address)
        for kind in KINDS:
            path = rng.choice(sorted(lakes.original.glob(kind))[-2:])
            for damage in rng.sample(list(damages(path.stat().st_size, 4, rng)), 2):
                counts, fault = lakes.meet(path, damage, syncs=True)
                assert fault is None, fault
                assert counts["right"] + counts["one line"] == 6
