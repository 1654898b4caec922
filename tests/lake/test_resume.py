"""An interrupted `lake sync` is resumed with `--resume`, from the same provider, or abandoned."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LedgerTable
from nftsync.lake.rows import bucket_of
from nftsync.lake.storage import Lake
from tests.kit.lake_cluster import Cluster, check_lake, driver, held, staged
from tests.kit.provider import Provider, balances, entry, reply, token, wallet
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, Outcome
from tests.lake.conftest import refused

BUCKETS = 2
WALLETS = [wallet(number) for number in range(20)]
LATE = [each for each in WALLETS if bucket_of(each, BUCKETS) == BUCKETS - 1]
SLOW = f"/v1/wallets/{LATE[-1]}/nft-balances"
Sync = Callable[..., Outcome]


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
def interrupted(past: Past, lake: Path) -> str:
    """What the run said of a lake that each test has a copy of."""
    shutil.copytree(past.lake, lake)
    (lake.parent / "wallets.txt").write_text("\n".join(WALLETS))
    return past.said.replace(str(past.lake), str(lake))


@pytest.fixture
def sync(lake: Path, provider: Provider, cluster: Cluster, command: Callable[..., Outcome]) -> Sync:
    def run(*more: object, url: str = provider.url) -> Outcome:
        where = ("--base-url", url, "--scheduler", cluster.address)
        return command(
            *("lake", "sync", lake, *where, "--wallets-file", lake.parent / "wallets.txt", *more)
        )

    return run


def amounts(lake: Path) -> list[str]:
    return sorted(held(lake).values())


def test_an_interrupted_run_is_resumed_and_tells_how_old_its_reads_are(
    provider: Provider, lake: Path, interrupted: str, sync: Sync
) -> None:
    assert interrupted.startswith("Interrupted; all reads are saved. Resume: ")
    assert f"lake sync {lake} --resume" in interrupted
    assert interrupted.count("\n") == 1
    asked = len(provider.requests())
    outcome = sync("--resume", "--json")
    assert outcome.code == 0, outcome.err
    assert {seen.path for seen in provider.requests()[asked:]} == {
        f"/v1/wallets/{each}/nft-balances" for each in LATE
    }
    assert (outcome.json["run_id"], outcome.json["wallets"]["ok"]) == (1, len(WALLETS))
    resumed = outcome.json["resumed"]
    assert resumed["wallets"] == len(WALLETS) - len(LATE)
    assert resumed["oldest_age_seconds"] > 0
    run = Ledger(Lake(str(lake))).finished()
    assert run.started_at < resumed["oldest_read_at"] < (run.finished_at or "")
    assert amounts(lake) == ["1"] * (len(WALLETS) - len(LATE)) + ["2"] * len(LATE)
    check_lake(lake)


def test_without_resume_or_an_interrupted_run_each_wallet_is_read_again(
    provider: Provider, lake: Path, interrupted: str, sync: Sync
) -> None:
    for run_id, more in ((2, ()), (3, ("--resume",))):
        asked = len(provider.requests())
        outcome = sync("--json", *more)
        assert outcome.code == 0, outcome.err
        assert (outcome.json["run_id"], "resumed" in outcome.json) == (run_id, False)
        assert len(provider.requests()[asked:]) == len(WALLETS)
        assert amounts(lake) == ["2"] * len(WALLETS)
        check_lake(lake)
        assert staged(lake, 1) == staged(lake, run_id) == 0
    statuses = [run.status for run in Ledger(Lake(str(lake))).runs()]
    assert statuses == ["interrupted", "ok", "ok"]


def test_only_the_same_provider_is_resumed_in_any_spelling(
    provider: Provider, lake: Path, interrupted: str, sync: Sync
) -> None:
    """Another is refused in one line; a person is told what was taken over."""
    with Provider() as other:
        show(other, "9")
        refused(sync("--resume", url=other.url), 2, provider.url, "without --resume")
        assert not other.requests()
        outcome = sync("--resume", url=provider.url.replace("http:", "HTTP:") + "/")
        assert outcome.code == 0, outcome.err
        count = len(WALLETS) - len(LATE)
        assert f"Resumed: {count} wallets read before the interruption, the oldest" in outcome.out
        assert sync(url=other.url).code == 0
    assert amounts(lake) == ["9"] * len(WALLETS)


def test_resume_with_other_wallets_starts_a_new_run_and_says_so(
    lake: Path, interrupted: str, sync: Sync, caplog: pytest.LogCaptureFixture
) -> None:
    (lake.parent / "wallets.txt").write_text("\n".join(WALLETS[:5]))
    outcome = sync("--resume", "--json")
    assert (outcome.code, outcome.json["run_id"]) == (0, 2), outcome.err
    assert "Run 1 has other wallets" in caplog.text
    assert amounts(lake) == ["2"] * 5


def test_a_run_that_an_earlier_version_started_is_not_resumed(
    lake: Path, interrupted: str, sync: Sync, caplog: pytest.LogCaptureFixture
) -> None:
    """It staged its reads in a table."""
    ledger = LedgerTable(Lake(str(lake)))
    table, runs = ledger.open()
    runs[-1].folder = ""
    ledger.write(table, runs)
    outcome = sync("--resume", "--json")
    assert (outcome.code, outcome.json["run_id"]) == (0, 2), outcome.err
    assert "Run 1 was started by an earlier version" in caplog.text
    assert amounts(lake) == ["2"] * len(WALLETS)
    check_lake(lake)


@pytest.mark.parametrize("place", [0, -1, -100, None])
@pytest.mark.parametrize("kind", ["mirror", "report"])
def test_resume_of_reads_that_are_damaged_is_refused_in_one_line(
    kind: str, place: int | None, lake: Path, interrupted: str, sync: Sync
) -> None:
    """Cut, or with one flipped bit, which may leave a number that can be read."""
    for file in (lake / "steps").glob(f"*/{kind}-*"):
        content = bytearray(file.read_bytes())
        if place is None:
            del content[-100:]
        else:
            content[place] ^= 1
        file.write_bytes(content)
    outcome = sync("--resume")
    refused(outcome, 1, "damaged or missing", "without --resume")
    assert sync().code == 0
    assert amounts(lake) == ["2"] * len(WALLETS)
    check_lake(lake)
