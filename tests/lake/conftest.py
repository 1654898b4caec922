"""One cluster for all tests of a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.lake_cluster import Cluster, cluster_of
from tests.kit.worlds import Outcome

BUCKETS = 3
Sync = Callable[..., Outcome]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler and two workers of one thread."""
    with cluster_of(tmp_path_factory.mktemp("cluster"), 2) as running:
        yield running


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def sync(cluster: Cluster, lake: Path, command: Callable[..., Outcome]) -> Sync:
    """The command on the cluster."""

    def run(url: str, wallets: list[str] | None = None, *more: object, to: Path = lake) -> Outcome:
        if wallets is not None:
            (to.parent / "wallets.txt").write_text("\n".join(wallets))
            more = (*more, "--wallets-file", to.parent / "wallets.txt")
        if not to.exists():
            more = (*more, "--buckets", BUCKETS)
        where = ("--base-url", url, "--scheduler", cluster.address, "--retries", 1)
        return command("lake", "sync", to, *where, "--json", *more)

    return run
