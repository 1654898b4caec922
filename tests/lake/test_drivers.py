"""Several drivers of one lake, and workers of drivers that are gone: one of them counts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest

import nftsync.lake.driver
from nftsync.errors import NftsyncError, SyncRunning
from nftsync.lake.ledger import Ledger
from nftsync.lake.rows import bucket_of
from nftsync.lake.run import ClusterOptions, sync_lake
from nftsync.lake.storage import Lake
from nftsync.settings import load
from tests.kit.lake_cluster import Cluster, check_lake, cluster_of, driver, held, staged, versions
from tests.kit.provider import Provider, balances, entry, reply, token, wallet
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, Outcome
from tests.lake.conftest import race

BUCKETS = 2
WALLETS = [wallet(number) for number in range(40)]
#: It is read in the last bucket, after all others of that.
SLOW = next(each for each in reversed(WALLETS) if bucket_of(each, BUCKETS) == BUCKETS - 1)
SLOW_PATH = f"/v1/wallets/{SLOW}/nft-balances"


@pytest.fixture
def provider(provider: Provider) -> Provider:
    for number, each in enumerate(WALLETS):
        provider.holds(each, entry(token(number), str(number)))
    return provider


@pytest.fixture
def arguments(lake: Path, provider: Provider, cluster: Cluster) -> list[object]:
    file = lake.parent / "wallets.txt"
    file.write_text("\n".join(WALLETS))
    where = ("--base-url", provider.url, "--scheduler", cluster.address)
    return [lake, *where, "--wallets-file", file, "--takeover-after", "2s", "--buckets", BUCKETS]


def all_held() -> dict[tuple[str, str], str]:
    return {(each, token(number)): str(number) for number, each in enumerate(WALLETS)}


def waits_for(event: threading.Event) -> Callable[[Any], bool]:
    def answer(peer: Any) -> bool:
        assert event.wait(PATIENCE)
        return reply(peer_body)(peer)

    peer_body = balances(entry(token(WALLETS.index(SLOW)), str(WALLETS.index(SLOW))))
    return answer


class Slow(NamedTuple):
    """A provider that answers for one wallet once it may."""

    provider: Provider
    go: threading.Event


@pytest.fixture
def slow(provider: Provider) -> Slow:
    found = Slow(provider, threading.Event())
    provider.on(SLOW_PATH, waits_for(found.go))
    return found


def asked_again(provider: Provider, before: int) -> set[int]:
    """The buckets of the wallets that were asked for since."""
    paths = (seen.path.split("/") for seen in provider.requests()[before:])
    return {bucket_of(parts[3], BUCKETS) for parts in paths}


def test_of_two_drivers_one_begins_and_the_other_says_so(
    provider: Provider, arguments: list[object], lake: Path
) -> None:
    ended = race(provider, SLOW_PATH, *arguments, folder=lake.parent)
    assert "another driver" in ended[75][1]
    assert ended[75][1].count("\n") == 1
    assert len(Ledger(Lake(str(lake))).runs()) == 1
    assert held(lake) == all_held()


class Meanwhile(Lake):
    """A lake on which another driver begins while one is about to."""

    calls = 0

    def create(self, name: str, *more: Any) -> Any:
        table = super().create(name, *more)
        self.calls += 1
        if self.calls == 2:
            Ledger(Lake(self.url)).begin("", 4, 60.0)
        return table


def test_of_two_that_begin_the_first_run_of_a_lake_one_is_refused(lake: Path) -> None:
    with pytest.raises(SyncRunning):
        Ledger(Meanwhile(str(lake))).begin("", 4, 60.0)
    assert len(Ledger(Lake(str(lake))).runs()) == 1


def test_a_ledger_that_cannot_be_read_for_a_moment_is_renewed_again(lake: Path) -> None:
    ledger = Ledger(Lake(str(lake)))
    run = ledger.begin("", 4, 0.0)

    def beat() -> int:
        return Ledger(Lake(str(lake))).runs()[-1].beat

    with ledger.heartbeat(run, 0.2) as lost:
        aside = [(file, file.with_suffix(".aside")) for file in (lake / "runs").glob("*.parquet")]
        for file, other in aside:
            file.rename(other)
        time.sleep(0.5)
        for file, other in aside:
            other.rename(file)
        before = beat()
        wait_until(lambda: beat() > before)
        assert not lost.is_set()


def test_resume_takes_over_a_run_whose_driver_is_silent(
    slow: Slow, arguments: list[object], command: Callable[..., Outcome], lake: Path
) -> None:
    provider, go = slow
    first = driver(*arguments, folder=lake.parent)
    wait_until(lambda: provider.requests(SLOW_PATH) and staged(lake) == BUCKETS - 1)
    first.send_signal(signal.SIGSTOP)
    go.set()
    asked = len(provider.requests())
    outcome = command("lake", "sync", *arguments, "--resume", "--json")
    assert outcome.code == 0, outcome.err
    assert (outcome.json["run_id"], outcome.json["wallets"]["ok"]) == (1, len(WALLETS))
    before = [each for each in WALLETS if bucket_of(each, BUCKETS) != BUCKETS - 1]
    # The workers of the first driver go on, so the last bucket may be theirs, too.
    assert outcome.json["resumed"]["wallets"] in {len(before), len(WALLETS)}
    assert asked_again(provider, asked) <= {BUCKETS - 1}
    before = versions(lake)
    first.send_signal(signal.SIGCONT)
    _, err = first.communicate(timeout=PATIENCE)
    assert (first.returncode, err.count("\n")) == (75, 1), err
    assert "taken over" in err
    assert versions(lake) == before
    assert held(lake) == all_held()
    check_lake(lake)
    assert command("lake", "sync", *arguments[:-2], "--json").json["balances"]["added"] == 0


def test_paused_workers_none_and_a_scheduler_that_has_gone_are_told_of(
    provider: Provider, arguments: list[object], command: Callable[..., Outcome], lake: Path
) -> None:
    """A run whose scheduler has gone can be resumed."""
    with cluster_of(lake.parent, 0) as own:
        where = ("--scheduler", own.address)
        own.workers.append(own.start_worker("--memory-limit", "64MiB"))
        with driver(*arguments, *where, folder=lake.parent) as waiting:
            assert waiting.stderr is not None
            assert waiting.stderr.readline().startswith("Dask has paused all workers")
            own.workers.append(own.start_worker())
            own.workers[0].kill()  # what it was given is another's
            _, err = waiting.communicate(timeout=PATIENCE)
        assert (waiting.returncode, err) == (0, "")
        assert held(lake) == all_held()
        own.workers[1].kill()
        own.workers[1].wait()
        go = threading.Event()
        provider.on(SLOW_PATH, waits_for(go))
        asked = len(provider.requests(SLOW_PATH))
        first = driver(*arguments, *where, folder=lake.parent)
        assert first.stderr is not None
        assert first.stderr.readline() == "The Dask scheduler has no workers. Waiting for one.\n"
        own.workers.append(own.start_worker())
        wait_until(
            lambda: len(provider.requests(SLOW_PATH)) > asked and staged(lake, 2) == BUCKETS - 1
        )
        own.scheduler.kill()
        _, err = first.communicate(timeout=PATIENCE)
    assert (first.returncode, err.count("\n")) == (1, 1), err
    assert "lost the connection to the Dask scheduler" in err
    go.set()
    asked = len(provider.requests())
    assert command("lake", "sync", *arguments, "--resume").code == 0
    assert asked_again(provider, asked) <= {BUCKETS - 1}
    assert held(lake) == all_held()


def test_drivers_of_two_lakes_share_a_cluster(
    slow: Slow, arguments: list[object], command: Callable[..., Outcome], lake: Path
) -> None:
    provider, go = slow
    provider.on(SLOW_PATH, waits_for(go), reply(balances()))
    first = driver(*arguments, folder=lake.parent)
    wait_until(lambda: provider.requests(SLOW_PATH))
    other = lake.parent / "other"
    assert command("lake", "sync", other, *arguments[1:], "--json").code == 0
    go.set()
    _, err = first.communicate(timeout=PATIENCE)
    assert first.returncode == 0, err
    assert held(lake) == all_held()


def test_what_a_late_driver_commits_meanwhile_is_not_pinned(
    provider: Provider,
    arguments: list[object],
    command: Callable[..., Outcome],
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert command("lake", "sync", *arguments).code == 0
    late = ["balances", "wallets"]  # the run writes one of them

    def name_contracts(*given: Any) -> Any:
        other = Lake(str(lake))
        while late:
            name = late.pop()
            empty = other.write_file(name, 1, [])
            other.commit(name, other.open(name).version(), [empty], replace=True)
        return true(*given)

    true = nftsync.lake.driver.name_contracts
    monkeypatch.setattr(nftsync.lake.driver, "name_contracts", name_contracts)
    (lake.parent / "collections.csv").write_text("contract_address,name\n")
    monkeypatch.setenv("NFTSYNC_COLLECTIONS_FILE", str(lake.parent / "collections.csv"))
    for _ in range(2):
        outcome = command("lake", "sync", *arguments, "--json")
        assert (outcome.code, not late) == (0, True), outcome.err
        assert held(lake) == all_held()
        check_lake(lake)


# Threads of a driver that fail: nobody waits ------------------------------------------------------


def test_a_heartbeat_that_fails_unexpectedly_tells_its_driver(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(Lake(str(lake)))
    run = ledger.begin("", 4, 60.0)
    failures: SimpleQueue[Exception] = SimpleQueue()
    fault = LookupError("nobody foresaw it")
    with ledger.heartbeat(run, 0.2, failures.put) as lost:
        with monkeypatch.context() as patch:
            patch.setattr(Lake, "create", Mock(side_effect=fault))
            assert failures.get(timeout=PATIENCE) is fault
        assert not lost.is_set()  # nobody has taken it over
    assert ledger.runs()[-1].status == "interrupted"


def test_a_driver_that_cannot_share_the_rate_limit_ends_its_run(
    provider: Provider, lake: Path, cluster: Cluster
) -> None:
    """Else its workers would wait to be told their share."""
    (lake.parent / "wallets.txt").write_text(WALLETS[0])
    settings = load({"base_url": provider.url, "wallets_file": lake.parent / "wallets.txt"})
    # No setting is of that type.
    settings = replace(settings, rate_limit="3")  # type: ignore[arg-type]
    where = ClusterOptions(scheduler=cluster.address, buckets=2)
    message = r"^the shared rate limit failed unexpectedly \(TypeError: "
    with pytest.raises(NftsyncError, match=message):
        sync_lake(settings, str(lake), where, progress=False)
    assert Ledger(Lake(str(lake))).runs()[-1].status != "running"
