"""Processes of a sync that are killed, stopped or interrupted, and frames that are unreadable."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from nftsync.errors import RunInterrupted
from nftsync.provider.config import ClientConfig
from nftsync.pull.process import Process
from nftsync.pull.reads import Pool, Reader, WalletTask
from nftsync.records import Read, SequenceNumbers
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.database import begun_once
from tests.kit.processes import start_process
from tests.kit.provider import Peer, Provider, balances, entry, reply, token, wallet, wallets_file
from tests.kit.serve_process import query
from tests.kit.waiting import has_ended, wait_until
from tests.kit.worlds import PATIENCE, listed, mirrored, replayed
from tests.nightly.stops import ENTRIES, WALLETS, long_lists, readers, run_sync, start_sync

# Killed and interrupted syncs -------------------------------------------------------------------

NFTS = 4
KILLS = 3  # of one run, which is then resumed
#: Numbers of read wallets at which a signal is sent; -1: the run has just started.
MOMENTS = [-1, random.Random(7).randrange(WALLETS - 100)]


class Run:
    """A sync of a sandbox by commands, each in a process group of its own."""

    def __init__(self, server: SandboxServer, folder: Path) -> None:
        self.server, self.database = server, begun_once(folder / "nftsync.db")
        (folder / "wallets.txt").write_text("\n".join(server.world.wallets()))
        self.process: subprocess.Popen[bytes]

    def start(self, *more: str, concurrency: int = 16) -> None:
        which = more or ("--wallets-file", str(self.database.with_name("wallets.txt")))
        command = [sys.executable, "-m", "nftsync", "sync", "--json", *which]
        command += ["--concurrency", str(concurrency), "--base-url", self.server.url]
        self.process = start_process(
            [*command, "-d", str(self.database)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def ledger(self) -> list[tuple[str, int]]:
        """Return the status of each run, and the number of wallets read by all."""
        read = "(SELECT count(*) FROM wallets WHERE status = 'ok')"
        return query(self.database, f"SELECT status, {read} FROM sync_runs")

    def wait_for_wallets(self, more_than: int) -> None:
        """Wait until the run has started, and has read more wallets than this."""
        wait_until(
            lambda: (
                self.process.poll() is not None
                or any(read > more_than for _, read in self.ledger())
            )
        )

    def ends(self) -> tuple[int, str, int, dict[str, Any], str]:
        """Return the exit code, the ledger's status and wallets, the result and the messages."""
        out, err = self.process.communicate(timeout=PATIENCE)
        ((status, read),) = self.ledger()
        assert b"Traceback" not in err
        result = json.loads(out)
        assert result["status"] == status
        return self.process.returncode, status, read, result, err.decode()

    def kill_readers(self, number: signal.Signals) -> None:
        for child in readers(self.process):
            with suppress(ProcessLookupError):
                os.kill(child, number)

    def check_whole(self) -> None:
        """Check that no wallet is stored in part, and that the change log matches."""
        world, mirror = listed(self.server.world), mirrored(self.database)
        touched = {wallet for wallet, _ in mirror}
        expected = {key: amount for key, amount in world.items() if key[0] in touched}
        assert mirror == replayed(self.database) == expected
        assert query(self.database, "PRAGMA integrity_check") == [("ok",)]

    def resume(self) -> dict[str, Any]:
        """Check that `--resume` reads the missing wallets under the same run number."""
        self.start("--resume")
        code, status, _, result, err = self.ends()
        assert (code, status, result["run_id"]) == (0, "ok", 1), err
        assert result["wallets"] == {"total": WALLETS, "ok": WALLETS, "unchanged": 0, "failed": 0}
        assert mirrored(self.database) == listed(self.server.world)
        return result


@pytest.fixture(scope="module")
def slow() -> Iterator[SandboxServer]:
    """A sandbox whose responses take 50 ms; a process of its own reads so many wallets."""
    with SandboxServer(
        lambda url: generate(wallets=WALLETS, nfts=NFTS, seed=5, image_base=url), latency=0.05
    ) as server:
        yield server


@pytest.fixture
def run(slow: SandboxServer, tmp_path: Path) -> Run:
    return Run(slow, tmp_path)


def test_a_sync_killed_at_random_moments_leaves_no_partial_wallet_and_can_be_resumed(
    run: Run,
) -> None:
    rng = random.Random(11)
    done, arguments = 0, list[str]()
    for _ in range(KILLS):
        run.start(*arguments, concurrency=4)
        run.wait_for_wallets(done + rng.randrange(WALLETS // (2 * KILLS)))
        time.sleep(rng.random() * 0.05)
        run.process.kill()
        run.process.communicate()
        run.check_whole()
        ((_, done),) = run.ledger()
        arguments = ["--resume"]
    assert 0 < done < WALLETS, "the last kill came too late"
    before = run.server.requests.total()
    assert run.resume()["balances"]["added"] == WALLETS * NFTS
    assert run.server.requests.total() - before == WALLETS - done


@pytest.mark.parametrize(
    ("after", "number"), [*zip(MOMENTS, [signal.SIGTERM, signal.SIGKILL], strict=True)]
)
def test_a_sync_whose_reading_process_is_killed_is_ok_only_with_all_wallets(
    run: Run, number: signal.Signals, after: int
) -> None:
    run.start()
    run.wait_for_wallets(after)
    run.kill_readers(number)
    code, status, read, _, err = run.ends()
    assert (code, status) in {(0, "ok"), (1, "failed")}, err
    run.check_whole()
    if status == "ok":
        assert read == WALLETS
    else:
        assert "--resume" in err
        run.resume()


def test_a_sync_whose_reading_processes_are_all_killed_fails_and_can_be_resumed(run: Run) -> None:
    run.start()
    run.wait_for_wallets(50)
    while run.process.poll() is None:
        run.kill_readers(signal.SIGKILL)
        time.sleep(0.02)
    code, status, read, result, err = run.ends()
    assert (code, status, result["wallets"]["ok"]) == (1, "failed", read), err
    assert 50 < read < WALLETS
    lines = err.splitlines()
    assert [line.partition("; ")[0] for line in lines] == [
        *["the reading process ended unexpectedly"] * 2,
        "nftsync: the reading process ended unexpectedly",
    ]
    assert "--resume" in lines[-1]
    run.resume()


@pytest.mark.parametrize(
    ("after", "number"), [*zip(MOMENTS, [signal.SIGINT, signal.SIGTERM], strict=True)]
)
def test_a_signal_to_the_process_group_interrupts_a_sync_and_keeps_its_reads(
    run: Run, number: signal.Signals, after: int
) -> None:
    """systemd sends one to stop a unit, and a terminal after Ctrl-C."""
    run.start()
    run.wait_for_wallets(after)
    os.killpg(run.process.pid, number)
    code, status, read, result, err = run.ends()
    assert (code, status, result["wallets"]["ok"]) == (130, "interrupted", read), err
    assert max(after, 0) <= read
    assert "--resume" in err
    run.check_whole()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("count", [1, 600])
def test_an_interrupted_sync_ends_its_token_command(
    tmp_path: Path, number: signal.Signals, count: int
) -> None:
    """From 500 wallets on, a process of its own runs the command."""
    started = tmp_path / "started"
    line = f"sh -c 'sleep 600 & echo $! > {started}; wait'"
    settings = f'base_url = "http://127.0.0.1:9"\ntoken_command = "{line}"\n'
    (tmp_path / "nftsync.toml").write_text(settings)
    command = [sys.executable, "-m", "nftsync", "sync", "--wallets-file"]
    with subprocess.Popen(
        [*command, wallets_file(range(count))], cwd=tmp_path, stderr=subprocess.DEVNULL
    ) as process:
        wait_until(lambda: started.exists() and started.read_text().endswith("\n"))
        assert not has_ended(started)
        process.send_signal(number)
        assert process.wait(PATIENCE) == 130
    wait_until(lambda: has_ended(started))


# Stopped processes and unreadable frames --------------------------------------------------------


@pytest.fixture
def long(lying: Provider) -> Provider:
    """A provider whose lists make frames larger than a pipe's buffer."""
    long_lists(lying)
    return lying


@pytest.fixture
def short(lying: Provider) -> Provider:
    """A provider of short lists."""
    for number in range(WALLETS):
        lying.holds(wallet(number), entry(token(1)))
    return lying


@pytest.fixture
def held_up(short: Provider) -> threading.Event:
    """An event before which the provider answers nothing: its readers send only heartbeats."""
    go = threading.Event()

    def answer(peer: Peer) -> bool:
        go.wait(PATIENCE)
        return reply(short.bodies[peer.seen.path])(peer)

    short.always(answer)
    return go


def started(process: subprocess.Popen[str], provider: Provider) -> int:
    """Wait until a sync's reading process sends a request; return its id."""
    asked = len(provider.requests())
    wait_until(lambda: len(provider.requests()) > asked and readers(process))
    (reader,) = readers(process)
    return reader


def assert_all_read(process: subprocess.Popen[str], folder: Path, entries: int = 1) -> str:
    """Check that the sync reads all wallets; return its messages."""
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert json.loads(out)["wallets"]["ok"] == WALLETS
    assert len(mirrored(folder / "nftsync.db")) == WALLETS * entries
    return err


def test_a_sync_that_is_stopped_and_continued_repeatedly_reads_all_wallets(long: Provider) -> None:
    figures = run_sync(long.url, seed=1)
    assert figures["signals"] > 10
    assert figures["replaced"] == 0


def test_a_reading_process_that_stays_stopped_is_replaced(long: Provider, tmp_path: Path) -> None:
    process = start_sync(tmp_path, long.url, "--timeout", "1", unbuffered=True)
    os.kill(started(process, long), signal.SIGSTOP)
    err = assert_all_read(process, tmp_path, ENTRIES)
    # On a busy machine, the new process may take as long to start.
    replaced = "the reading process sent no heartbeat for 11 s; a new one replaced it"
    assert set(err.splitlines()) == {replaced}


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (struct.pack("!i", 2) + b"\x91\x05", "sent an unreadable frame (ValidationError)"),
        (struct.pack("!i", 2**31 - 1), "ended unexpectedly"),
    ],
    ids=["another type", "too long"],
)
def test_a_reading_process_that_sends_an_unreadable_frame_is_replaced(
    short: Provider, held_up: threading.Event, tmp_path: Path, frame: bytes, message: str
) -> None:
    process = start_sync(tmp_path, short.url)
    reader = started(process, short)
    pipe = Path(f"/proc/{reader}/cmdline").read_bytes().split(b"\0")[-2].decode()
    Path(f"/proc/{reader}/fd/{pipe}").write_bytes(frame)
    wait_until(lambda: readers(process) != [])
    held_up.set()
    assert assert_all_read(process, tmp_path) == (
        f"the reading process {message}; a new one replaced it\n"
    )


def test_output_of_a_reading_process_is_not_read_as_a_frame(
    short: Provider, tmp_path: Path
) -> None:
    """A library may print."""
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent("""
        import os, sys, threading, time
        if "-c" in sys.orig_argv:
            def run():
                while not time.sleep(0.001):
                    print("stray")
                    os.write(1, b"stray")
            threading.Thread(target=run, daemon=True).start()
        """)
    )
    process = start_sync(tmp_path, short.url, PYTHONPATH=str(tmp_path))
    assert_all_read(process, tmp_path)


@pytest.mark.parametrize("way", ["interrupt", "kill the parent"])
def test_a_reading_process_ends_with_its_sync(
    short: Provider, held_up: threading.Event, tmp_path: Path, way: str
) -> None:
    process = start_sync(tmp_path, short.url)
    reader = started(process, short)
    if way == "interrupt":
        os.kill(reader, signal.SIGSTOP)  # does not prevent it
        process.send_signal(signal.SIGINT)
    else:
        process.kill()
    out, err = process.communicate(timeout=PATIENCE)
    if way == "interrupt":
        assert process.returncode == 130, err
        assert json.loads(out)["status"] == "interrupted"
    wait_until(lambda: not Path(f"/proc/{reader}").exists())
    held_up.set()


#: A parent with a short heartbeat timeout: it prints the number of read wallets.
PARENT = """
import sys
from contextlib import closing
from nftsync.provider.config import ClientConfig
from nftsync.pull.process import Process
from nftsync.pull.reads import WalletTask
from nftsync.records import SequenceNumbers
url, timeout, *wallets = sys.argv[1:]
config, read = ClientConfig(base_url=url, timeout=60.0), 0
with closing(Process(config, SequenceNumbers(0, 0), 2, heartbeat_timeout=float(timeout))) as reader:
    reader.submit([WalletTask(each) for each in wallets])
    while not reader.idle:
        read += len(reader.take(100, timeout=0.1))
print(read)
"""


def test_a_stop_of_both_processes_does_not_count_as_a_missing_heartbeat(
    short: Provider, held_up: threading.Event
) -> None:
    """Ctrl-Z, `docker pause` and a sleeping laptop stop both, while the clock runs."""
    heartbeat_timeout = 8.0
    process = start_process(
        [sys.executable, "-c", PARENT, short.url, str(heartbeat_timeout), wallet(1), wallet(2)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    reader = started(process, short)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in (process.pid, reader):
            os.kill(pid, number)
        if number == signal.SIGSTOP:  # the duration itself is tested
            time.sleep(1.5 * heartbeat_timeout)
    assert readers(process) == [reader]
    held_up.set()
    assert process.communicate(timeout=PATIENCE) == ("2\n", "")


def read_all(reader: Reader, *numbers: int) -> list[Read]:
    reads: list[Read] = []
    with closing(reader):
        reader.submit([WalletTask(wallet(number)) for number in numbers])
        while not reader.idle:
            reads += reader.take(100, timeout=0.1)
    return reads


def test_a_wait_for_the_provider_does_not_count_as_a_missing_heartbeat(
    short: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    short.always(reply(status=429, retry_after="12"), reply(balances(entry(token(1)))))
    config = ClientConfig(base_url=short.url)
    (read,) = read_all(Process(config, SequenceNumbers(0, 0), 1, heartbeat_timeout=10.0), 900)
    assert (read.outcome, read.effort.retries) == ("ok", 1)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_an_error_of_reading_threads_is_raised_and_ends_their_process(
    short: Provider, capfd: pytest.CaptureFixture[str]
) -> None:
    """A process is replaced twice."""
    short.always(reply(status=429))
    failing = ClientConfig(base_url=short.url, first_wait=1e300)  # no setting allows it
    with pytest.raises(OverflowError):
        read_all(Pool(failing, SequenceNumbers(0, 0), 2), 1, 2)
    with pytest.raises(RunInterrupted, match="ended unexpectedly; run again with --resume"):
        read_all(Process(failing, SequenceNumbers(0, 0), 2), 1, 2)
    assert capfd.readouterr().err.count("OverflowError: ") == 3
