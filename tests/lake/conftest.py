"""One cluster for all tests of a process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.kit.lake_cluster import Cluster, Pair, cluster_of, sync_words
from tests.kit.worlds import Outcome
from tests.kit.worlds import run_command as command

Sync = Callable[..., Outcome]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    """A scheduler and two workers of one thread."""
    with cluster_of(tmp_path_factory.mktemp("cluster"), 2) as running:
        yield running


@pytest.fixture
def lake(tmp_path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def pair(tmp_path, lying, cluster) -> Pair:
    """A lake and a database that do not exist yet."""
    return Pair(tmp_path, lying.url, cluster)


@pytest.fixture
def sync(cluster, lake, provider) -> Sync:
    """Sync wallets, by default tracked ones, from the provider on the cluster."""

    def run(wallets: Iterable[str] | None = None, *more: object, to: Path = lake) -> Outcome:
        words = sync_words(to, wallets, provider.url, cluster)
        return command(*words, "--retries", 1, "--json", *more)

    return run
