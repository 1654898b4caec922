"""Killed workers and drivers leave a lake that says what the provider says.

A short profile; `make lakekills` runs the long one.
"""

from __future__ import annotations

from pathlib import Path

from tests.kit.lake_cluster import cluster_of
from tests.nightly.chaos import MOMENTS, run_seed


def test_what_is_killed_leaves_no_half_and_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    with cluster_of(tmp_path / "cluster", 2) as cluster:
        figures = run_seed(17, 4, tmp_path, cluster, ["any", *MOMENTS])
    assert all(figures[moment] == 1 for moment in MOMENTS), figures
    assert figures["looks"] >= 1
