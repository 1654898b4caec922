"""One cluster for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.lake_cluster import Cluster, cluster_of


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler and two workers of one thread."""
    with cluster_of(tmp_path_factory.mktemp("cluster"), 2) as running:
        yield running


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"
