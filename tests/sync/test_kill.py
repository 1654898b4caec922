"""Killed at random moments: no half wallet, and `--resume` reads just what was missing."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from worlds import listed, mirrored, replayed

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer

WALLETS = 600  # enough for reads to be made by a process of their own
KILLS = 20


@pytest.fixture(scope="module")
def slow_provider():
    with SandboxServer(
        lambda url: generate(wallets=WALLETS, nfts=10, seed=5, image_base=url), latency=0.05
    ) as server:
        yield server


def command(server: SandboxServer, database: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "nftsync", "sync", "--json", "--concurrency", "4"),
        *("--base-url", server.url, "-d", str(database), *more),
    ]


def half_wallets(database: Path, server: SandboxServer) -> set[str]:
    """Wallets of which some is stored, but not all that the provider lists."""
    world, mirror = listed(server.world), mirrored(database)
    touched = {wallet for wallet, _ in mirror}
    return {
        wallet
        for wallet in touched
        if {k: v for k, v in world.items() if k[0] == wallet}
        != {k: v for k, v in mirror.items() if k[0] == wallet}
    }


def wait_for_rows(database: Path, more_than: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        time.sleep(0.01)
        if not database.exists():
            continue
        with closing(sqlite3.connect(database, timeout=10)) as connection:
            try:
                (count,) = connection.execute(
                    "SELECT count(*) FROM wallets WHERE status = 'ok'"
                ).fetchone()
            except sqlite3.OperationalError:
                continue  # the tables are being made
        if count > more_than:
            return


def test_kill_9_at_twenty_random_moments_leaves_no_half_wallet_and_resume_reads_the_rest(
    slow_provider: SandboxServer, tmp_path: Path
) -> None:
    wallets = tmp_path / "wallets.txt"
    wallets.write_text("\n".join(slow_provider.world.wallets()))
    database = tmp_path / "nftsync.db"
    rng = random.Random(11)
    arguments = ["--wallets-file", str(wallets)]
    done = 0
    for kill in range(KILLS):
        process = subprocess.Popen(
            command(slow_provider, database, *arguments),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for_rows(database, done + rng.randrange(WALLETS // (2 * KILLS)), process)
        time.sleep(rng.random() * 0.05)
        process.kill()
        process.wait()
        assert not half_wallets(database, slow_provider)
        assert replayed(database) == mirrored(database)
        with closing(sqlite3.connect(database)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            (done,) = connection.execute(
                "SELECT count(*) FROM wallets WHERE status = 'ok'"
            ).fetchone()
            (runs,) = connection.execute("SELECT count(*) FROM sync_runs").fetchone()
        assert runs == 1, f"kill {kill} began another run instead of going on with the first"
        arguments = ["--resume"]
    assert 0 < done < WALLETS, "the last kill came when all had been read; it proves nothing"
    before = slow_provider.app.extensions["nftsync_sandbox"].requests.total
    finished = subprocess.run(
        command(slow_provider, database, "--resume"), capture_output=True, check=False
    )
    asked = slow_provider.app.extensions["nftsync_sandbox"].requests.total - before
    assert finished.returncode == 0, finished.stderr.decode()
    result = msgspec.json.decode(finished.stdout)
    assert asked == WALLETS - done
    assert result["run_id"] == 1
    assert result["status"] == "ok"
    assert result["wallets"] == {"total": WALLETS, "ok": WALLETS, "unchanged": 0, "failed": 0}
    assert result["balances"]["added"] == WALLETS * 10
    assert mirrored(database) == listed(slow_provider.world)


def test_ctrl_c_saves_what_was_fetched_and_exits_130(
    slow_provider: SandboxServer, tmp_path: Path
) -> None:
    database = tmp_path / "nftsync.db"
    wallets = tmp_path / "wallets.txt"
    wallets.write_text("\n".join(slow_provider.world.wallets()))
    process = subprocess.Popen(
        command(slow_provider, database, "--wallets-file", str(wallets)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_for_rows(database, 20, process)
    process.send_signal(2)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err.decode()
    result = msgspec.json.decode(out)
    assert result["status"] == "interrupted"
    assert 20 <= result["wallets"]["ok"] < WALLETS
    assert b"--resume" in err
    assert b"Traceback" not in err
    assert not half_wallets(database, slow_provider)
    assert len({wallet for wallet, _ in mirrored(database)}) == result["wallets"]["ok"]
