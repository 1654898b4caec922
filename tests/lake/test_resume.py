"""An interrupted `lake sync` is resumed with `--resume`, from the same provider, or abandoned."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from nftsync.lake.bucket import bucket_of
from nftsync.lake.ledger import Ledger
from nftsync.lake.storage import Lake
from tests.kit.lake_cluster import check_lake, driver, held, shifted_clock, staged
from tests.kit.provider import Provider, balances, entry, reply, token, wallet
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE
from tests.lake.conftest import BUCKETS, Sync, refused

WALLETS = [wallet(number) for number in range(20)]
LATE = [each for each in WALLETS if bucket_of(each, BUCKETS) == BUCKETS - 1]
SLOW = f"/v1/wallets/{LATE[-1]}/nft-balances"


def show(provider: Provider, amount: str) -> None:
    """Let each wallet hold one token."""
    for number, each in enumerate(WALLETS):
        provider.holds(each, entry(token(number), amount))


class Past(NamedTuple):
    """A run that Ctrl-C ended; one bucket of it was not read, and the provider has moved on."""

    provider: Provider
    lake: Path
    said: str


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    lake = tmp_path_factory.mktemp("past") / "lake"
    (lake.parent / "wallets.txt").write_text("\n".join(WALLETS))
    with Provider() as provider:
        show(provider, "1")
        provider.on(SLOW, lambda peer: peer.wait(PATIENCE) or reply(balances())(peer))
        process = driver(
            *(lake, "--base-url", provider.url, "--wallets-file", lake.parent / "wallets.txt"),
            *("--workers", 2, "--buckets", BUCKETS),
            folder=lake.parent,
        )
        wait_until(lambda: provider.requests(SLOW) and staged(lake) == BUCKETS - 1)
        os.killpg(process.pid, signal.SIGINT)  # its workers as well, as a terminal does it
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, json.loads(out)["status"]) == (130, "interrupted"), err
        provider.on(SLOW)
        show(provider, "2")
        yield Past(provider, lake, err)


@pytest.fixture
def provider(past: Past) -> Provider:
    return past.provider


@pytest.fixture
def resumed(past: Past, lake: Path, sync: Sync) -> Sync:
    """A sync of the same wallets into a copy of the lake."""
    shutil.copytree(past.lake, lake)
    return partial(sync, past.provider.url, WALLETS)


def amounts(lake: Path) -> list[str]:
    return sorted(held(lake).values())


def test_an_interrupted_run_is_resumed_and_tells_how_old_its_reads_are(
    past: Past, lake: Path, resumed: Sync
) -> None:
    assert past.said.startswith("Interrupted; all reads are saved. Resume: ")
    assert f"lake sync {past.lake} --resume" in past.said
    assert past.said.count("\n") == 1
    asked = len(past.provider.requests())
    outcome = resumed("--resume")
    assert outcome.code == 0, outcome.err
    assert {seen.path for seen in past.provider.requests()[asked:]} == {
        f"/v1/wallets/{each}/nft-balances" for each in LATE
    }
    assert (outcome.json["run_id"], outcome.json["wallets"]["ok"]) == (1, len(WALLETS))
    told = outcome.json["resumed"]
    assert told["wallets"] == len(WALLETS) - len(LATE)
    assert told["oldest_age_seconds"] > 0
    run = Ledger(Lake(str(lake))).finished()
    assert run.started_at < told["oldest_read_at"] < (run.finished_at or "")
    assert amounts(lake) == ["1"] * (len(WALLETS) - len(LATE)) + ["2"] * len(LATE)
    check_lake(lake)


def test_without_resume_or_an_interrupted_run_each_wallet_is_read_again(
    provider: Provider, lake: Path, resumed: Sync
) -> None:
    for run_id, more in ((2, ()), (3, ("--resume",))):
        asked = len(provider.requests())
        outcome = resumed(*more)
        assert outcome.code == 0, outcome.err
        assert (outcome.json["run_id"], "resumed" in outcome.json) == (run_id, False)
        assert len(provider.requests()[asked:]) == len(WALLETS)
        assert amounts(lake) == ["2"] * len(WALLETS)
        check_lake(lake)
        assert staged(lake) == 0
    statuses = [run.status for run in Ledger(Lake(str(lake))).runs()]
    assert statuses == ["interrupted", "ok", "ok"]


def test_only_the_same_provider_in_any_spelling_and_the_same_wallets_are_resumed(
    provider: Provider, lake: Path, resumed: Sync, sync: Sync, caplog: pytest.LogCaptureFixture
) -> None:
    with Provider() as other:
        refused(sync(other.url, WALLETS, "--resume"), 2, provider.url, "without --resume")
        assert not other.requests()
    url = provider.url.replace("http:", "HTTP:") + "/"
    (copy := lake.parent / "copy").mkdir()
    shutil.copytree(lake, copy / "lake")
    assert sync(url, WALLETS, "--resume").json["resumed"]["wallets"] == len(WALLETS) - len(LATE)
    outcome = sync(url, WALLETS[:5], "--resume", to=copy / "lake")
    assert (outcome.code, outcome.json["run_id"]) == (0, 2), outcome.err
    assert "Run 1 has other wallets" in caplog.text
    assert amounts(copy / "lake") == ["2"] * 5


@pytest.mark.parametrize("place", [0, -1, None])
@pytest.mark.parametrize("kind", ["steps", "buckets"])
def test_resume_of_reads_that_are_damaged_is_refused_in_one_line(
    kind: str, place: int | None, lake: Path, resumed: Sync
) -> None:
    """Cut, or with one flipped bit, which may leave a number that can be read."""
    for file in (x for x in (lake / kind).rglob("*") if x.is_file()):
        content = bytearray(file.read_bytes())
        if place is None:
            del content[-100:]
        else:
            content[place] ^= 1
        file.write_bytes(content)
    more = "without --resume" if kind == "steps" else str(lake)
    refused(resumed("--resume"), 1, "damaged", more)
    assert resumed().code == 0
    assert amounts(lake) == ["2"] * len(WALLETS)
    check_lake(lake)


def test_losses_count_from_when_they_were_applied_for_24_hours(
    lake: Path, sync: Sync, lying: Provider
) -> None:
    """Also those that waited 30 hours for a resume, and none from before."""
    wallets = [wallet(number) for number in range(80)]
    first, last = ([x for x in wallets if bucket_of(x, BUCKETS) == n] for n in range(BUCKETS))
    slow = f"/v1/wallets/{last[-1]}/nft-balances"
    (lake.parent / "lines.txt").write_text("\n".join(wallets))
    words = (lake, "--base-url", lying.url, "--wallets-file", lake.parent / "lines.txt")
    ago = shifted_clock(lake.parent, hours=-30)

    def lose(*gone: str) -> None:
        for number, each in enumerate(wallets):
            own = (entry(token(3 * number + n)) for n in range(3) if each not in gone)
            lying.holds(each, *own)

    def start() -> subprocess.Popen[str]:
        new = () if lake.exists() else ("--buckets", BUCKETS)
        return driver(*words, "--workers", 2, *new, folder=lake.parent, variables=ago)

    for gone in ((), last[:30]):
        lose(*gone)
        assert start().communicate(timeout=PATIENCE)[1] == ""
    lose(*last[:30], *first[:25])
    lying.on(slow, lambda peer: peer.wait(PATIENCE) or reply(balances())(peer))
    stopped = start()
    wait_until(lambda: lying.requests(slow)[2:] and staged(lake) == BUCKETS - 1)
    stopped.send_signal(signal.SIGINT)
    assert "Resume: " in stopped.communicate(timeout=PATIENCE)[1]
    assert len(held(lake)) == 3 * 50
    lying.on(slow)
    resumed = sync(lying.url, None, *words[3:], "--resume")
    assert resumed.code == 0, resumed.said
    assert resumed.json["resumed"]["oldest_age_seconds"] > 29 * 3_600
    assert len(held(lake)) == 3 * 25
    lose(*last[:30], *first[:37])
    assert sync(lying.url, None, *words[3:]).code == 1
    assert len(held(lake)) == 3 * 25
    check_lake(lake)
