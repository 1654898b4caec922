"""An interrupted `lake sync` is resumed with `--resume`, from the same provider, or abandoned."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from nftsync.lake.bucket import bucket_of
from tests.kit import lakes
from tests.kit.lake_cluster import (
    BUCKETS,
    cluster_of,
    path_of,
    refused,
    shifted_clock,
    show,
    sync_words,
    wallets_of,
)
from tests.kit.processes import ended, start
from tests.kit.provider import Peer, Provider, balances, reply, wallet
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE
from tests.lake.conftest import Sync

WALLETS = [wallet(number) for number in range(20)]
LATE = [each for each in WALLETS if bucket_of(each, BUCKETS) == BUCKETS - 1]
EARLY = len(WALLETS) - len(LATE)
SLOW = path_of(LATE[-1])


class Past(NamedTuple):
    """A run that Ctrl-C ended before its last bucket; then, the provider's amounts changed."""

    provider: Provider
    lake: Path
    err: str


@pytest.fixture(scope="module")
def past(tmp_path_factory) -> Iterator[Past]:
    lake = tmp_path_factory.mktemp("past") / "lake"
    with Provider() as provider:
        show(provider, WALLETS)
        provider.on(SLOW, lambda peer: peer.wait(PATIENCE) or reply(balances())(peer))
        words = sync_words(lake, WALLETS, provider.url)
        process = start(*words, "--workers", 1, folder=lake.parent)
        wait_until(lambda: provider.requests(SLOW) and lakes.staged(lake) == BUCKETS - 1)
        os.killpg(process.pid, signal.SIGINT)  # its workers as well, like a terminal
        outcome = ended(process)
        assert (outcome.code, outcome.json["status"]) == (130, "interrupted"), outcome.err
        provider.on(SLOW)
        show(provider, WALLETS, "2")
        yield Past(provider, lake, outcome.err)


@pytest.fixture
def provider(past) -> Provider:
    return past.provider


@pytest.fixture
def resumed(past, lake, sync) -> Sync:
    shutil.copytree(past.lake, lake)
    return partial(sync, WALLETS)


def amounts(lake: Path) -> list[str]:
    return sorted(lakes.held(lake).values())


def test_a_resumed_run_reads_incomplete_buckets_and_reports_the_age_of_reads(past, lake, resumed):
    assert past.err.startswith("Interrupted; all reads are saved. Resume: ")
    assert f"lake sync {past.lake} --resume" in past.err
    assert past.err.count("\n") == 1
    asked = len(past.provider.requests())
    outcome = resumed("--resume").says()
    paths = {seen.path for seen in past.provider.requests()[asked:]}
    assert paths == {path_of(each) for each in LATE}
    assert (outcome.json["run_id"], outcome.json["wallets"]["ok"]) == (1, len(WALLETS))
    result, run = outcome.json["resumed"], lakes.runs_of(lake)[-1]
    assert result["wallets"] == EARLY
    assert result["oldest_age_seconds"] > 0
    assert run.started_at < result["oldest_read_at"] < (run.finished_at or "")
    assert amounts(lake) == ["1"] * EARLY + ["2"] * len(LATE)
    lakes.check_lake(lake)


def test_without_resume_or_an_interrupted_run_each_wallet_is_read_again(provider, lake, resumed):
    for run_id, more in ((2, ()), (3, ("--resume",))):
        asked = len(provider.requests())
        outcome = resumed(*more).says()
        assert (outcome.json["run_id"], "resumed" in outcome.json) == (run_id, False)
        assert len(provider.requests()[asked:]) == len(WALLETS)
        assert (amounts(lake), lakes.staged(lake)) == (["2"] * len(WALLETS), 0)
    lakes.check_lake(lake)
    assert [run.status for run in lakes.runs_of(lake)] == ["interrupted", "ok", "ok"]


def test_only_the_same_provider_and_wallets_are_resumed(provider, lake, resumed, sync, caplog):
    with Provider() as other:
        outcome = resumed("--resume", "--base-url", other.url)
        refused(outcome, 2, provider.url, "without --resume")
        assert not other.requests()
    (copy := lake.parent / "copy").mkdir()
    shutil.copytree(lake, copy / "lake")
    url = provider.url.replace("http:", "HTTP:") + "/"
    assert resumed("--resume", "--base-url", url).json["resumed"]["wallets"] == EARLY
    outcome = sync(WALLETS[:5], "--resume", to=copy / "lake").says()
    assert outcome.json["run_id"] == 2
    assert "Cannot resume run 1: its wallets" in caplog.text
    assert amounts(copy / "lake") == ["2"] * 5


def test_resume_of_damaged_reads_is_refused_in_one_line(lake, resumed):
    """Cut, or with one flipped bit, which may leave a number that can be read."""
    for kind, words in (("steps", "without --resume"), ("buckets", str(lake))):
        whole = {x: x.read_bytes() for x in (lake / kind).rglob("*") if x.is_file()}
        for damage in (
            lambda content: bytes([content[0] ^ 1]) + content[1:],
            lambda content: content[:-1] + bytes([content[-1] ^ 1]),
            lambda content: content[:-100],
        ):
            for file, content in whole.items():
                file.write_bytes(damage(content))
            refused(resumed("--resume"), 1, "damaged", words)
        for file, content in whole.items():
            file.write_bytes(content)
    resumed().says()
    assert amounts(lake) == ["2"] * len(WALLETS)
    lakes.check_lake(lake)


class Yesterday(datetime):
    """A clock 30 hours ago."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Yesterday:
        return super().now(tz) - timedelta(hours=30)


def test_losses_count_for_24_hours_from_their_application(lake, sync, lying, tmp_path, monkeypatch):
    """Also losses that waited 30 hours for a resume, and none from before."""
    first, last = (wallets_of(bucket, 40) for bucket in range(BUCKETS))
    run = partial(sync, [*first, *last], "--base-url", lying.url)

    def lose(*gone: str) -> None:
        show(lying, [*first, *last], count=3)
        show(lying, gone, count=0)

    def interrupt(peer: Peer) -> bool:
        wait_until(lambda: lakes.staged(lake) == BUCKETS - 1)
        os.kill(os.getpid(), signal.SIGINT)
        return peer.wait(PATIENCE)

    ago = shifted_clock(tmp_path, hours=-30)
    with cluster_of(tmp_path / "ago", 1, ago) as cluster, monkeypatch.context() as patch:
        patch.setattr("nftsync.times.datetime", Yesterday)
        for gone in ((), last[:30]):
            lose(*gone)
            run("--scheduler", cluster).says()
        lose(*last[:30], *first[:25])
        lying.on(path_of(last[-1]), interrupt)
        run("--scheduler", cluster).says("Resume: ", code=130)
    assert len(lakes.held(lake)) == 3 * 50
    lying.on(path_of(last[-1]))
    resumed = run("--resume").says()
    assert resumed.json["resumed"]["oldest_age_seconds"] > 29 * 3_600
    assert len(lakes.held(lake)) == 3 * 25
    lose(*last[:30], *first[:37])
    assert run().code == 1
    assert len(lakes.held(lake)) == 3 * 25
    lakes.check_lake(lake)
