"""One cluster for all tests of a process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.lake_cluster import Cluster, cluster_of, driver
from tests.kit.provider import Provider, reply
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, Outcome

BUCKETS = 2
Sync = Callable[..., Outcome]


def refused(outcome: Outcome, code: int, *words: str) -> None:
    """A command ended with one line, which has some words."""
    assert (outcome.code, outcome.err.count("\n")) == (code, 1), outcome.said
    assert [word for word in words if word not in outcome.err] == []


def race(
    provider: Provider, path: str, *arguments: object, folder: Path
) -> dict[int, tuple[str, str]]:
    """Two drivers at once, while a path is not answered: what each printed, by its exit code."""
    go, answer = threading.Event(), provider.bodies[path]
    provider.on(path, lambda peer: not go.wait(PATIENCE) or reply(answer)(peer))
    drivers = [driver(*arguments, folder=folder) for _ in range(2)]
    wait_until(lambda: any(each.poll() is not None for each in drivers))
    go.set()
    ended = {each.wait(PATIENCE): each.communicate() for each in drivers}
    provider.on(path)
    assert sorted(ended) == [0, 75], ended
    return ended


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
        new = () if to.exists() else ("--buckets", BUCKETS)
        where = ("--base-url", url, "--scheduler", cluster.address, "--retries", 1)
        return command("lake", "sync", to, *where, "--json", *new, *more)

    return run
