"""Killed at random moments: no half wallet, and `--resume` reads just what was missing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.database import begun_once
from tests.kit.processes import start_process
from tests.kit.serve_process import query
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, listed, mirrored, replayed
from tests.nightly.stops import readers

WALLETS = 520  # enough for reads to be made by a process of their own
NFTS = 4
KILLS = 3  # of one run, which is then resumed
#: So many wallets have been read when something is killed; -1: the run has just begun.
MOMENTS = [-1, random.Random(7).randrange(WALLETS - 100)]


@pytest.fixture(scope="module")
def slow_provider():
    with SandboxServer(
        lambda url: generate(wallets=WALLETS, nfts=NFTS, seed=5, image_base=url), latency=0.05
    ) as server:
        yield server


@pytest.fixture
def wallets_file(slow_provider: SandboxServer, tmp_path: Path) -> str:
    path = tmp_path / "wallets.txt"
    path.write_text("\n".join(slow_provider.world.wallets()))
    return str(path)


def start(
    server: SandboxServer, database: Path, *more: str, concurrency: int = 16
) -> subprocess.Popen[bytes]:
    """A sync in a group of its own, as a shell or systemd starts it."""
    begun_once(database)
    command = [
        *(sys.executable, "-m", "nftsync", "sync", "--json", "--concurrency", str(concurrency)),
        *("--base-url", server.url, "-d", str(database), *more),
    ]
    return start_process(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def resumed(server: SandboxServer, database: Path) -> dict[str, Any]:
    """`--resume` reads the rest under the same run number, and says so."""
    process = start(server, database, "--resume")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err.decode()
    result: dict[str, Any] = msgspec.json.decode(out)
    assert (result["run_id"], result["status"]) == (1, "ok")
    assert result["wallets"] == {"total": WALLETS, "ok": WALLETS, "unchanged": 0, "failed": 0}
    assert mirrored(database) == listed(server.world)
    return result


def half_wallets(database: Path, server: SandboxServer) -> set[str]:
    """Wallets of which some is stored, but not all that the provider lists."""
    world, mirror = listed(server.world), mirrored(database)
    touched = {wallet for wallet, _ in mirror}
    listed_there = {(key, amount) for key, amount in world.items() if key[0] in touched}
    return {wallet for (wallet, _), _ in listed_there ^ set(mirror.items())}


def ledger(database: Path) -> list[tuple[str, int]]:
    """The status of each run, and how many wallets have been read by all."""
    return query(
        database, "SELECT status, (SELECT count(*) FROM wallets WHERE status = 'ok') FROM sync_runs"
    )


def wait_for_rows(database: Path, more_than: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a run has begun, and more than so many wallets have been read."""
    wait_until(
        lambda: process.poll() is not None or any(n > more_than for _, n in ledger(database))
    )


def test_kill_9_at_random_moments_leaves_no_half_wallet_and_resume_reads_the_rest(
    slow_provider: SandboxServer, wallets_file: str, tmp_path: Path
) -> None:
    database = tmp_path / "nftsync.db"
    rng = random.Random(11)
    arguments = ["--wallets-file", wallets_file]
    done = 0
    for _ in range(KILLS):
        process = start(slow_provider, database, *arguments, concurrency=4)
        wait_for_rows(database, done + rng.randrange(WALLETS // (2 * KILLS)), process)
        time.sleep(rng.random() * 0.05)
        process.kill()
        process.communicate()
        assert not half_wallets(database, slow_provider)
        assert replayed(database) == mirrored(database)
        assert query(database, "PRAGMA integrity_check") == [("ok",)]
        ((_, done),) = ledger(database)  # the same run goes on
        arguments = ["--resume"]
    assert 0 < done < WALLETS, "the last kill came when all had been read; it proves nothing"
    before = slow_provider.requests.total()
    assert resumed(slow_provider, database)["balances"]["added"] == WALLETS * NFTS
    assert slow_provider.requests.total() - before == WALLETS - done


def kill_readers(process: subprocess.Popen[Any], number: signal.Signals) -> None:
    for child in readers(process):
        with suppress(ProcessLookupError):
            os.kill(child, number)


@pytest.mark.parametrize(
    ("after", "number"), [*zip(MOMENTS, [signal.SIGTERM, signal.SIGKILL], strict=True)]
)
def test_a_sync_whose_reading_process_is_killed_never_says_ok_with_a_wallet_unread(
    slow_provider: SandboxServer,
    wallets_file: str,
    tmp_path: Path,
    number: signal.Signals,
    after: int,
) -> None:
    """As memory killers do it, at a random moment."""
    database = tmp_path / "nftsync.db"
    process = start(slow_provider, database, "--wallets-file", wallets_file)
    wait_for_rows(database, after, process)
    kill_readers(process, number)
    out, err = process.communicate(timeout=PATIENCE)
    ((status, read),) = ledger(database)
    assert b"Traceback" not in err
    assert (process.returncode, status) in {(0, "ok"), (1, "failed")}, err.decode()
    assert msgspec.json.decode(out)["status"] == status
    if status == "ok":
        assert read == WALLETS
        assert mirrored(database) == listed(slow_provider.world)
    else:
        assert b"--resume" in err
        assert not half_wallets(database, slow_provider)
        resumed(slow_provider, database)


def test_a_sync_whose_reading_processes_are_all_killed_fails_and_is_resumed(
    slow_provider: SandboxServer, wallets_file: str, tmp_path: Path
) -> None:
    database = tmp_path / "nftsync.db"
    process = start(slow_provider, database, "--wallets-file", wallets_file)
    wait_for_rows(database, 50, process)
    while process.poll() is None:
        kill_readers(process, signal.SIGKILL)
        time.sleep(0.02)
    out, err = process.communicate(timeout=PATIENCE)
    ((status, read),) = ledger(database)
    assert (process.returncode, status) == (1, "failed"), err.decode()
    assert 50 < read < WALLETS
    result = msgspec.json.decode(out)
    assert (result["status"], result["wallets"]["ok"]) == ("failed", read)
    lines = err.decode().splitlines()
    assert [line.partition("; ")[0] for line in lines] == [
        *["the reading process ended unexpectedly"] * 2,
        "nftsync: the reading process ended unexpectedly",
    ]
    assert "--resume" in lines[-1]
    resumed(slow_provider, database)


@pytest.mark.parametrize(
    ("after", "number"), [*zip(MOMENTS, [signal.SIGINT, signal.SIGTERM], strict=True)]
)
def test_a_signal_to_the_whole_group_interrupts_a_sync(
    slow_provider: SandboxServer,
    wallets_file: str,
    tmp_path: Path,
    number: signal.Signals,
    after: int,
) -> None:
    """As systemd stops a unit, and a terminal passes Ctrl-C on; what was read is saved."""
    database = tmp_path / "nftsync.db"
    process = start(slow_provider, database, "--wallets-file", wallets_file)
    wait_for_rows(database, after, process)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=PATIENCE)
    ((status, read),) = ledger(database)
    assert (process.returncode, status) == (130, "interrupted"), err.decode()
    result = msgspec.json.decode(out)
    assert (result["status"], result["wallets"]["ok"]) == ("interrupted", read)
    assert max(after, 0) <= read
    assert b"--resume" in err
    assert b"Traceback" not in err
    assert not half_wallets(database, slow_provider)
