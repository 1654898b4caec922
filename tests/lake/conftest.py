"""One cluster for all tests of a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.lake_cluster import Cluster, Pair, cluster_of, command
from tests.kit.provider import Provider
from tests.kit.worlds import Outcome

BUCKETS = 2
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
def pair(tmp_path: Path, lying: Provider, cluster: Cluster) -> Pair:
    """A lake and a database that do not exist yet."""
    return Pair(tmp_path, lying.url, cluster.address)


@pytest.fixture
def sync(cluster: Cluster, lake: Path, provider: Provider) -> Sync:
    """Sync wallets, by default the lake's, from the provider on the cluster."""

    def run(wallets: list[str] | None = None, *more: object, to: Path = lake) -> Outcome:
        if wallets is not None:
            (to.parent / "wallets.txt").write_text("\n".join(wallets))
            more = ("--wallets-file", to.parent / "wallets.txt", *more)
        new = () if to.exists() else ("--buckets", BUCKETS)
        where = ("--base-url", provider.url, "--scheduler", cluster.address, "--retries", 1)
        return command("lake", "sync", to, *where, "--json", *new, *more)

    return run
