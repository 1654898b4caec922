"""Several drivers of one lake, and workers of drivers that are gone: one of them counts."""

import signal
import threading
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Any
from unittest.mock import Mock

import pytest

from nftsync.lake.bucket import bucket_of
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LedgerTable
from nftsync.lake.manifest import write_manifest
from nftsync.lake.storage import Lake
from tests.kit import lakes
from tests.kit.lake_cluster import BUCKETS, cluster_of, path_of, refused, show, sync_words
from tests.kit.processes import ended, start
from tests.kit.provider import Provider, reply, token, wallet
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, Outcome
from tests.kit.worlds import run_command as command

WALLETS = [wallet(number) for number in range(20)]
LATE = [each for each in WALLETS if bucket_of(each, BUCKETS) == BUCKETS - 1]
#: The last wallet of the last bucket.
SLOW = path_of(LATE[-1])
HELD = {(each, token(number)): "1" for number, each in enumerate(WALLETS)}


@pytest.fixture
def words(lake, provider, cluster) -> list[object]:
    show(provider, WALLETS)
    return [*sync_words(lake, WALLETS, provider.url, cluster), "--takeover-after", "2s"]


def slow(provider: Provider) -> threading.Event:
    """Let the provider answer for the last wallet after an event."""
    event, answer = threading.Event(), provider.bodies[SLOW]
    provider.on(SLOW, lambda peer: not event.wait(PATIENCE) or reply(answer)(peer))
    return event


def resume(words: list[object], provider: Provider) -> Outcome:
    """Resume a run that lacks the last bucket; only this may be read."""
    asked = len(provider.requests())
    outcome = command(*words, "--resume", "--json").says()
    paths = {seen.path for seen in provider.requests()[asked:]}
    assert paths <= {path_of(each) for each in LATE}
    return outcome


def test_of_two_drivers_one_works_and_the_other_reports_it(provider, words, lake):
    go, driver = slow(provider), start(*words, folder=lake.parent)
    wait_until(lambda: provider.requests(SLOW))
    refused(command(*words), 75, "another driver")
    go.set()
    ended(driver).says()
    assert (len(lakes.runs_of(lake)), lakes.held(lake)) == (1, HELD)


def test_resume_takes_over_a_run_whose_driver_is_frozen(provider, words, lake):
    go, frozen = slow(provider), start(*words, folder=lake.parent)
    wait_until(lambda: provider.requests(SLOW) and lakes.staged(lake) == BUCKETS - 1)
    frozen.send_signal(signal.SIGSTOP)
    go.set()
    outcome = resume(words, provider)
    assert (outcome.json["run_id"], outcome.json["wallets"]["ok"]) == (1, len(WALLETS))
    # The workers of the first driver continue, so the last bucket may be theirs, too.
    early = len(WALLETS) - len(LATE)
    assert outcome.json["resumed"]["wallets"] in {early, len(WALLETS)}
    pinned = lakes.files(lake)
    frozen.send_signal(signal.SIGCONT)
    refused(ended(frozen), 75, "taken over")
    assert (lakes.files(lake), lakes.held(lake)) == (pinned, HELD)
    lakes.check_lake(lake)


def test_drivers_report_missing_and_paused_workers_and_lost_schedulers(provider, words, lake):
    """A run whose scheduler is lost can be resumed."""
    with cluster_of(lake.parent, 0) as own:
        words += ["--scheduler", own]
        own.start_worker("--memory-limit", "64MiB")
        driver = start(*words, folder=lake.parent)
        assert driver.stderr.readline().startswith("Dask has paused all workers")
        own.start_worker()
        own.kill()  # the other worker gets its tasks
        assert (ended(driver).says().err, lakes.held(lake)) == ("", HELD)
        own.kill()
        go, asked = slow(provider), len(provider.requests(SLOW))
        driver = start(*words, folder=lake.parent)
        assert driver.stderr.readline() == "The Dask scheduler has no workers. Waiting for one.\n"
        own.start_worker()
        wait_until(lambda: provider.requests(SLOW)[asked:] and lakes.staged(lake) == BUCKETS - 1)
        own.kill(own.scheduler)
        refused(ended(driver), 1, "lost the connection to the Dask scheduler")
    go.set()
    resume(words[:-2], provider)
    assert lakes.held(lake) == HELD


def test_a_driver_that_was_taken_over_before_it_pins_changes_nothing(words, lake, monkeypatch):
    """Not even after it has stored all files, and its manifest."""
    others: list[Outcome] = []

    def meanwhile(*arguments: Any) -> Any:
        stored = write_manifest(*arguments)
        others.append(ended(start(*words, "--resume", folder=lake.parent)))
        return stored

    monkeypatch.setattr(Ledger, "heartbeat", lambda *_: nullcontext(threading.Event()))
    monkeypatch.setattr("nftsync.lake.driver.write_manifest", meanwhile)
    refused(command(*words), 75, "taken over")
    assert [(other.code, other.err) for other in others] == [(0, "")]
    assert lakes.held(lake) == lakes.published(lake) == HELD
    lakes.check_lake(lake)


def test_a_heartbeat_survives_a_moment_without_ledger_and_reports_other_failures(lake, monkeypatch):
    ledger = Ledger(Lake(str(lake)))
    run = ledger.begin("", 4, 60.0)
    failures: SimpleQueue[Exception] = SimpleQueue()
    fault = LookupError("unexpected")
    with ledger.heartbeat(run, 0.2, failures.put) as lost:
        with monkeypatch.context() as patch:
            opens = Mock(side_effect=OSError("the network has gone"))
            patch.setattr(LedgerTable, "open", opens)
            wait_until(lambda: opens.called)
        before = ledger.runs()[-1].beat
        wait_until(lambda: ledger.runs()[-1].beat > before)
        with monkeypatch.context() as patch:
            patch.setattr(LedgerTable, "open", Mock(side_effect=fault))
            assert failures.get(timeout=PATIENCE) is fault
        assert not lost.is_set()  # no other driver has taken over
    assert ledger.runs()[-1].status == "interrupted"
