"""Processes of a sync that are killed, stopped or interrupted, and frames that are unreadable."""

import json
import logging
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from nftsync.errors import RunInterrupted
from nftsync.provider.config import ClientConfig
from nftsync.pull.process import Process
from nftsync.pull.reads import Pool, WalletTask
from nftsync.records import SequenceNumbers
from tests.kit.processes import start_process
from tests.kit.provider import balances, entry, reply, token, wallet, wallets_file
from tests.kit.serve_process import query
from tests.kit.waiting import has_ended, wait_until
from tests.kit.worlds import PATIENCE, mirrored, replayed
from tests.nightly.stops import ENTRIES, WALLETS, long_lists, readers, run_sync, start_sync

KILLS = 3  # of one run, which is then resumed
#: Numbers of read wallets at which a signal is sent; -1: the run has just started.
MOMENTS = [-1, random.Random(7).randrange(WALLETS - 100)]
TRUTH = {(wallet(n), token(place)): "1" for n in range(WALLETS) for place in range(n, n + 4)}


@pytest.fixture
def short(lying):
    """A provider of short lists."""
    for number in range(WALLETS):
        tokens = range(number, number + 4)
        lying.holds(wallet(number), *(entry(token(each)) for each in tokens))
    return lying


def delayed(provider, wait):
    """Let each response of a provider wait."""

    def answer(peer):
        wait(peer)
        return reply(provider.bodies[peer.seen.path])(peer)

    provider.always(answer)


class Run:
    """A sync by commands; its responses take 50 ms."""

    def __init__(self, provider, folder):
        self.provider, self.folder, self.database = provider, folder, folder / "nftsync.db"
        delayed(provider, lambda peer: peer.wait(0.05))

    def start(self, *more, concurrency=16):
        flags = ("--concurrency", str(concurrency), *more)
        self.process = start_sync(self.folder, self.provider.url, *flags)

    def ledger(self):
        """Return the status of each run, and the number of wallets read by all."""
        read = "(SELECT count(*) FROM wallets WHERE status = 'ok')"
        return query(self.database, f"SELECT status, {read} FROM sync_runs")

    def wait_for_wallets(self, more_than):
        """Wait until the run has started, and has read more wallets than this."""
        ended = self.process.poll
        wait_until(lambda: ended() is not None or any(n > more_than for _, n in self.ledger()))

    def ends(self):
        """Return the exit code, the ledger's status and wallets, the result and the messages."""
        out, err = self.process.communicate(timeout=PATIENCE)
        ((status, read),) = self.ledger()
        assert "Traceback" not in err
        result = json.loads(out)
        assert result["status"] == status
        return self.process.returncode, status, read, result, err

    def signal(self, number, *processes):
        for each in (*processes, *readers(self.process)):
            with suppress(ProcessLookupError):
                os.kill(each, number)

    def check_whole(self):
        """Check that no wallet is stored in part, and that the change log matches."""
        mirror = mirrored(self.database)
        touched = {name for name, _ in mirror}
        expected = {key: amount for key, amount in TRUTH.items() if key[0] in touched}
        assert mirror == replayed(self.database) == expected
        assert query(self.database, "PRAGMA integrity_check") == [("ok",)]

    def resume(self):
        """Check that `--resume` reads the missing wallets under the same run number."""
        self.start("--resume")
        code, status, _, result, err = self.ends()
        assert (code, status, result["run_id"]) == (0, "ok", 1), err
        assert result["wallets"] == {"total": WALLETS, "ok": WALLETS, "unchanged": 0, "failed": 0}
        assert mirrored(self.database) == TRUTH
        return result


@pytest.fixture
def run(short, tmp_path):
    return Run(short, tmp_path)


def test_a_sync_killed_at_random_moments_leaves_no_partial_wallet_and_can_be_resumed(run):
    rng = random.Random(11)
    done, arguments = 0, ()
    for _ in range(KILLS):
        run.start(*arguments, concurrency=4)
        run.wait_for_wallets(done + rng.randrange(WALLETS // (2 * KILLS)))
        time.sleep(rng.random() * 0.05)
        run.process.kill()
        run.process.communicate()
        run.check_whole()
        ((_, done),) = run.ledger()
        arguments = ("--resume",)
    assert 0 < done < WALLETS, "the last kill came too late"
    before = len(run.provider.requests())
    assert run.resume()["balances"]["added"] == len(TRUTH)
    assert len(run.provider.requests()) - before == WALLETS - done


def test_a_sync_whose_reading_processes_are_all_killed_fails_and_can_be_resumed(run):
    run.start()
    run.wait_for_wallets(50)
    while run.process.poll() is None:
        run.signal(signal.SIGKILL)
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
def test_a_signal_to_all_processes_interrupts_a_sync_and_keeps_its_reads(run, number, after):
    """systemd sends one to stop a unit, and a terminal after Ctrl-C."""
    run.start()
    run.wait_for_wallets(after)
    run.signal(number, run.process.pid)
    code, status, read, result, err = run.ends()
    assert (code, status, result["wallets"]["ok"]) == (130, "interrupted", read), err
    assert max(after, 0) <= read
    assert "--resume" in err
    run.check_whole()


@pytest.mark.parametrize(("count", "number"), [(1, signal.SIGTERM), (600, signal.SIGINT)])
def test_an_interrupted_sync_ends_its_token_command(tmp_path, number, count):
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


@pytest.fixture
def held_up(short):
    """An event before which the provider answers nothing: its readers send only heartbeats."""
    go = threading.Event()
    delayed(short, lambda _: go.wait(PATIENCE))
    return go


def started(process, provider):
    """Wait until a sync's reading process sends a request; return its id."""
    asked = len(provider.requests())
    wait_until(lambda: len(provider.requests()) > asked and readers(process))
    (reader,) = readers(process)
    return reader


def assert_all_read(process, folder, entries=4):
    """Check that the sync reads all wallets; return its messages."""
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert json.loads(out)["wallets"]["ok"] == WALLETS
    assert len(mirrored(folder / "nftsync.db")) == WALLETS * entries
    return err


def test_a_sync_that_is_stopped_and_continued_repeatedly_reads_all_wallets(lying):
    """Lists make frames larger than a pipe's buffer."""
    long_lists(lying)
    figures = run_sync(lying.url, seed=1)
    assert figures["signals"] > 10
    assert figures["replaced"] == 0


def test_a_reading_process_that_stays_stopped_is_replaced(lying, tmp_path):
    long_lists(lying)
    process = start_sync(tmp_path, lying.url, "--timeout", "1", unbuffered=True)
    os.kill(started(process, lying), signal.SIGSTOP)
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
    short, held_up, tmp_path, frame, message
):
    process = start_sync(tmp_path, short.url)
    reader = started(process, short)
    pipe = Path(f"/proc/{reader}/cmdline").read_bytes().split(b"\0")[-2].decode()
    Path(f"/proc/{reader}/fd/{pipe}").write_bytes(frame)
    wait_until(lambda: readers(process) != [])
    held_up.set()
    assert assert_all_read(process, tmp_path) == (
        f"the reading process {message}; a new one replaced it\n"
    )


STRAY = """
import os, sys, threading, time
def run():
    while not time.sleep(0.001):
        print("stray")
        os.write(1, b"stray")
if "-c" in sys.orig_argv:
    threading.Thread(target=run, daemon=True).start()
"""


def test_output_of_a_reading_process_is_not_read_as_a_frame(short, tmp_path):
    """A library may print."""
    (tmp_path / "sitecustomize.py").write_text(STRAY)
    assert_all_read(start_sync(tmp_path, short.url, PYTHONPATH=str(tmp_path)), tmp_path)


@pytest.mark.parametrize("way", ["interrupt", "kill the parent"])
def test_a_reading_process_ends_with_its_sync(short, held_up, tmp_path, way):
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


#: A parent with a short heartbeat timeout: it prints the outcomes of two reads.
PARENT = """
import sys
from nftsync.provider.config import ClientConfig
from nftsync.pull.process import Process
from nftsync.pull.reads import WalletTask
from nftsync.records import SequenceNumbers
url, timeout, *wallets = sys.argv[1:]
config = ClientConfig(base_url=url, timeout=60.0)
reader = Process(config, SequenceNumbers(0, 0), 2, heartbeat_timeout=float(timeout))
reader.submit([WalletTask(each) for each in wallets])
while not reader.idle:
    print(*(read.outcome for read in reader.take(100, timeout=0.1)), end="")
reader.close()
"""


def test_a_stop_of_both_processes_does_not_count_as_a_missing_heartbeat(short, held_up):
    """Ctrl-Z, `docker pause` and a sleeping laptop stop both, while the clock runs."""
    command = [sys.executable, "-c", PARENT, short.url, "8", wallet(1), wallet(2)]
    process = start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    reader = started(process, short)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in (process.pid, reader):
            os.kill(pid, number)
        if number == signal.SIGSTOP:  # the duration itself is tested
            time.sleep(12)
    assert readers(process) == [reader]
    held_up.set()
    out, err = process.communicate(timeout=PATIENCE)
    assert (out.replace(" ", ""), err) == ("okok", "")


def read_all(reader, *numbers):
    reads = []
    with closing(reader):
        reader.submit([WalletTask(wallet(number)) for number in numbers])
        while not reader.idle:
            reads += reader.take(100, timeout=0.1)
    return reads


def test_a_wait_for_the_provider_does_not_count_as_a_missing_heartbeat(short, caplog):
    short.always(reply(status=429, retry_after="12"), reply(balances(entry(token(1)))))
    config = ClientConfig(base_url=short.url)
    (read,) = read_all(Process(config, SequenceNumbers(0, 0), 1, heartbeat_timeout=10.0), 900)
    assert (read.outcome, read.effort.retries) == ("ok", 1)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_an_error_of_reading_threads_is_raised_and_ends_their_process(short, capfd):
    """A process is replaced twice."""
    short.always(reply(status=429))
    failing = ClientConfig(base_url=short.url, first_wait=1e300)  # no setting allows it
    with pytest.raises(OverflowError):
        read_all(Pool(failing, SequenceNumbers(0, 0), 2), 1, 2)
    with pytest.raises(RunInterrupted, match="ended unexpectedly; run again with --resume"):
        read_all(Process(failing, SequenceNumbers(0, 0), 2), 1, 2)
    assert capfd.readouterr().err.count("OverflowError: ") == 3
