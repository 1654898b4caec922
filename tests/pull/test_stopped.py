"""Processes that are stopped, for a moment or for good, and frames that cannot be read."""

from __future__ import annotations

import json
import logging
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from nftsync.errors import RunInterrupted
from nftsync.provider.config import ClientConfig
from nftsync.pull.process import Process
from nftsync.pull.reads import Pool, Read, Reader, Task, WalletTask
from nftsync.records import SequenceNumbers
from tests.kit.processes import start_process
from tests.kit.provider import Peer, Provider, balances, entry, reply, token, wallet
from tests.kit.waiting import has_ended, wait_until
from tests.kit.worlds import PATIENCE, mirrored
from tests.nightly.stops import ENTRIES, WALLETS, long_lists, readers, run_sync, start_sync


@pytest.fixture
def long(lying: Provider) -> Provider:
    """A provider whose lists make frames that no pipe takes at once."""
    long_lists(lying)
    return lying


@pytest.fixture
def provider(lying: Provider) -> Provider:
    """A provider of short lists, where it is the process that matters, and not its frames."""
    for number in range(WALLETS):
        lying.holds(wallet(number), entry(token(1)))
    return lying


@pytest.fixture
def held_up(provider: Provider) -> threading.Event:
    """A provider that answers nobody before this event: its readers send heartbeats alone."""
    go = threading.Event()

    def answer(peer: Peer) -> bool:
        go.wait(PATIENCE)
        return reply(provider.bodies[peer.seen.path])(peer)

    provider.always(answer)
    return go


def started(process: subprocess.Popen[str], provider: Provider) -> int:
    """Wait until a sync's reading process reads; return its id."""
    asked = len(provider.requests())
    wait_until(lambda: len(provider.requests()) > asked and readers(process))
    (reader,) = readers(process)
    return reader


def assert_all_read(process: subprocess.Popen[str], folder: Path, entries: int = 1) -> str:
    """The sync ends with 0 and all wallets; return what it wrote to standard error."""
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert json.loads(out)["wallets"]["ok"] == WALLETS
    assert len(mirrored(folder / "nftsync.db")) == WALLETS * entries
    return err


def test_a_sync_that_is_stopped_and_continued_again_and_again_reads_all_wallets(
    long: Provider,
) -> None:
    figures = run_sync(long.url, seed=1)
    assert figures["signals"] > 10
    assert figures["replaced"] == 0


def test_a_reading_process_that_is_stopped_for_good_is_replaced(
    long: Provider, tmp_path: Path
) -> None:
    process = start_sync(tmp_path, long.url, "--timeout", "1", unbuffered=True)
    os.kill(started(process, long), signal.SIGSTOP)
    err = assert_all_read(process, tmp_path, ENTRIES)
    # On a busy machine, the new one may take as long to start.
    replaced = "the reading process sent no heartbeat for 11 s; a new one replaced it"
    assert set(err.splitlines()) == {replaced}


def garbage(reader: int) -> Path:
    """The end of the pipe that a reading process writes its frames to."""
    arguments = Path(f"/proc/{reader}/cmdline").read_bytes().split(b"\0")
    return Path(f"/proc/{reader}/fd/{arguments[-2].decode()}")


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (struct.pack("!i", 2) + b"\x91\x05", "sent an unreadable frame (ValidationError)"),
        (struct.pack("!i", 2**31 - 1), "ended unexpectedly"),
    ],
    ids=["another type", "too long"],
)
def test_an_unreadable_frame_ends_its_reading_process_and_another_reads_the_rest(
    provider: Provider, held_up: threading.Event, tmp_path: Path, frame: bytes, told: str
) -> None:
    process = start_sync(tmp_path, provider.url)
    garbage(started(process, provider)).write_bytes(frame)
    wait_until(lambda: readers(process) != [])
    held_up.set()
    assert assert_all_read(process, tmp_path) == (
        f"the reading process {told}; a new one replaced it\n"
    )


def test_what_a_reading_process_prints_is_not_taken_for_a_frame(
    provider: Provider, tmp_path: Path
) -> None:
    """As a library may that is loaded there."""
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
    process = start_sync(tmp_path, provider.url, PYTHONPATH=str(tmp_path))
    assert_all_read(process, tmp_path)


def test_a_sync_whose_reading_process_is_stopped_can_be_interrupted(
    provider: Provider, held_up: threading.Event, tmp_path: Path
) -> None:
    process = start_sync(tmp_path, provider.url)
    reader = started(process, provider)
    os.kill(reader, signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    held_up.set()
    assert process.returncode == 130, err
    assert json.loads(out)["status"] == "interrupted"
    wait_until(lambda: not Path(f"/proc/{reader}").exists())


def test_a_reading_process_ends_when_its_parent_is_killed(
    provider: Provider, held_up: threading.Event, tmp_path: Path
) -> None:
    process = start_sync(tmp_path, provider.url)
    reader = started(process, provider)
    process.kill()
    process.communicate()
    wait_until(lambda: not Path(f"/proc/{reader}").exists())
    held_up.set()


#: A parent with a low limit: it prints how many wallets were read.
PARENT = """
import logging, sys
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


def test_a_stop_of_parent_and_reading_process_is_no_silence_of_the_latter(
    provider: Provider, held_up: threading.Event
) -> None:
    """Ctrl-Z, `docker pause`, a laptop that sleeps: the clock goes on meanwhile."""
    heartbeat_timeout = 8.0
    process = start_process(
        [sys.executable, "-c", PARENT, provider.url, str(heartbeat_timeout), wallet(1), wallet(2)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    reader = started(process, provider)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in (process.pid, reader):
            os.kill(pid, number)
        if number == signal.SIGSTOP:  # it is a stop that is tried: nothing else could be waited for
            time.sleep(1.5 * heartbeat_timeout)
    assert readers(process) == [reader]
    held_up.set()
    assert process.communicate(timeout=PATIENCE) == ("2\n", "")


def read_all(reader: Reader[Task, Read], *wallets: str) -> list[Read]:
    reads: list[Read] = []
    with closing(reader):
        reader.submit([WalletTask(each) for each in wallets])
        while not reader.idle:
            reads += reader.take(100, timeout=0.1)
    return reads


def test_a_pause_that_the_provider_asks_for_is_no_silence(
    provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    provider.always(reply(status=429, retry_after="12"), reply(balances(entry(token(1)))))
    config = ClientConfig(base_url=provider.url)
    (read,) = read_all(
        Process(config, SequenceNumbers(0, 0), 1, heartbeat_timeout=10.0), wallet(900)
    )
    assert (read.outcome, read.effort.retries) == ("ok", 1)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def failing(provider: Provider) -> ClientConfig:
    """Settings with which the threads fail that read: no commands would take them."""
    provider.always(reply(status=429))
    return ClientConfig(base_url=provider.url, first_wait=1e300)


def test_the_error_of_a_reading_thread_reaches_whoever_takes_its_reads(provider: Provider) -> None:
    with pytest.raises(OverflowError):
        read_all(Pool(failing(provider), SequenceNumbers(0, 0), 2), wallet(1), wallet(2))


def test_a_reading_process_whose_threads_fail_is_replaced_and_not_for_ever(
    provider: Provider, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RunInterrupted, match="ended unexpectedly; run again with --resume"):
        read_all(Process(failing(provider), SequenceNumbers(0, 0), 2), wallet(1), wallet(2))
    assert capfd.readouterr().err.count("OverflowError: ") == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("count", [1, 600])
def test_an_interrupted_sync_leaves_no_process_of_its_token_command(
    tmp_path: Path, number: signal.Signals, count: int
) -> None:
    """From 500 wallets on, a process of its own runs the command."""
    started = tmp_path / "started"
    line = f"sh -c 'sleep 600 & echo $! > {started}; wait'"
    settings = f'base_url = "http://127.0.0.1:9"\ntoken_command = "{line}"\n'
    (tmp_path / "nftsync.toml").write_text(settings)
    (tmp_path / "wallets").write_text("\n".join(map(wallet, range(count))))
    command = [sys.executable, "-m", "nftsync", "sync", "--wallets-file", "wallets"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: started.exists() and started.read_text().endswith("\n"))
        assert not has_ended(started)
        process.send_signal(number)
        assert process.wait(PATIENCE) == 130
    wait_until(lambda: has_ended(started))
