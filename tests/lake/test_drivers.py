"""Several drivers of one lake, and workers of drivers that are gone: one of them counts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from unittest.mock import Mock

import pytest

from nftsync.lake.bucket import bucket_of
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LedgerTable
from nftsync.lake.manifest import write_manifest
from nftsync.lake.storage import Lake
from tests.kit.lake_cluster import (
    Cluster,
    check_lake,
    cluster_of,
    driver,
    files,
    held,
    published,
    staged,
)
from tests.kit.provider import Provider, entry, reply, token, wallet
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, Outcome
from tests.lake.conftest import BUCKETS, race, refused

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


HELD = {(each, token(number)): str(number) for number, each in enumerate(WALLETS)}


@pytest.fixture
def go(provider: Provider) -> threading.Event:
    """The provider answers for one wallet once it may."""
    return slow(provider)


def slow(provider: Provider) -> threading.Event:
    event, answer = threading.Event(), provider.bodies[SLOW_PATH]
    provider.on(SLOW_PATH, lambda peer: not event.wait(PATIENCE) or reply(answer)(peer))
    return event


def asked_again(provider: Provider, before: int) -> set[int]:
    """The buckets of the wallets that were asked for since."""
    paths = (seen.path.split("/") for seen in provider.requests()[before:])
    return {bucket_of(parts[3], BUCKETS) for parts in paths}


def test_of_two_drivers_one_begins_and_the_other_says_so(
    provider: Provider, arguments: list[object], lake: Path
) -> None:
    ended = race(provider, SLOW_PATH, *arguments, folder=lake.parent)
    refused(Outcome(75, *ended[75]), 75, "another driver")
    assert len(Ledger(Lake(str(lake))).runs()) == 1
    assert held(lake) == HELD


def test_resume_takes_over_a_run_whose_driver_is_silent(
    provider: Provider,
    go: threading.Event,
    arguments: list[object],
    command: Callable[..., Outcome],
    lake: Path,
) -> None:
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
    pinned = files(lake)
    first.send_signal(signal.SIGCONT)
    _, err = first.communicate(timeout=PATIENCE)
    refused(Outcome(first.returncode, "", err), 75, "taken over")
    assert files(lake) == pinned
    assert held(lake) == HELD
    check_lake(lake)


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
        assert (waiting.returncode, err, held(lake)) == (0, "", HELD)
        own.workers[1].kill()
        own.workers[1].wait()
        go, asked = slow(provider), len(provider.requests(SLOW_PATH))
        first = driver(*arguments, *where, folder=lake.parent)
        assert first.stderr is not None
        assert first.stderr.readline() == "The Dask scheduler has no workers. Waiting for one.\n"
        own.workers.append(own.start_worker())
        wait_until(
            lambda: len(provider.requests(SLOW_PATH)) > asked and staged(lake) == BUCKETS - 1
        )
        own.scheduler.kill()
        _, err = first.communicate(timeout=PATIENCE)
    refused(Outcome(first.returncode, "", err), 1, "lost the connection to the Dask scheduler")
    go.set()
    asked = len(provider.requests())
    assert command("lake", "sync", *arguments, "--resume").code == 0
    assert asked_again(provider, asked) <= {BUCKETS - 1}
    assert held(lake) == HELD


def test_a_driver_that_was_taken_over_before_it_pins_changes_nothing(
    provider: Provider,
    arguments: list[object],
    command: Callable[..., Outcome],
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not even if it had stored all files, and its manifest."""
    outcomes: list[Any] = []

    def meanwhile(*given: Any) -> Any:
        stored = write_manifest(*given)
        if not outcomes:
            outcomes.append(None)
            process = driver(*arguments, "--resume", folder=lake.parent)
            outcomes.append((process.communicate(timeout=PATIENCE), process.returncode))
        return stored

    monkeypatch.setattr(Ledger, "heartbeat", lambda *_: nullcontext(threading.Event()))
    monkeypatch.setattr("nftsync.lake.driver.write_manifest", meanwhile)
    refused(command("lake", "sync", *arguments), 75, "taken over")
    (_, err), code = outcomes[1]
    assert (code, err) == (0, "")
    assert held(lake) == published(lake) == HELD
    check_lake(lake)


# Threads of a driver that fail: nobody waits ------------------------------------------------------


def test_a_heartbeat_goes_on_after_a_moment_without_ledger_and_tells_of_other_failures(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(Lake(str(lake)))
    run = ledger.begin("", 4, 60.0)
    failures: SimpleQueue[Exception] = SimpleQueue()
    fault = LookupError("nobody foresaw it")

    def beats() -> None:
        before = ledger.runs()[-1].beat
        wait_until(lambda: ledger.runs()[-1].beat > before)

    with ledger.heartbeat(run, 0.2, failures.put) as lost:
        with monkeypatch.context() as patch:
            opens = Mock(side_effect=OSError("the network has gone"))
            patch.setattr(LedgerTable, "open", opens)
            wait_until(lambda: opens.called)
        beats()
        with monkeypatch.context() as patch:
            patch.setattr(LedgerTable, "open", Mock(side_effect=fault))
            assert failures.get(timeout=PATIENCE) is fault
        assert not lost.is_set()  # nobody has taken it over
    assert ledger.runs()[-1].status == "interrupted"
