"""Reads in a child process.

HTTP and SQLite each keep an interpreter busy, so a second process halves a large sync's time. The
threads of one child share the rate limit and the pause after a 429.

The processes exchange msgpack frames over two pipes, so secrets are never arguments. The child ends
when its task pipe closes, also if the parent is killed. It is replaced if it dies, sends an
unreadable frame or sends nothing.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import closing, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

import msgspec

from nftsync.errors import RunInterrupted, SettingsError
from nftsync.provider.client import Access
from nftsync.provider.config import ClientConfig, environment_without_settings
from nftsync.provider.programs import kill_programs
from nftsync.provider.rate_limit import GiveUpRule
from nftsync.pull.reads import Pool, Reader, Task
from nftsync.records import Read, SequenceNumbers
from nftsync.threads import start_thread

_log = logging.getLogger("nftsync.sync")

#: The approximate size of a frame in entries, and the seconds until a smaller one is sent.
_FRAME_ENTRIES = 400
_FRAME_SECONDS = 0.05
#: Bytes; a response has at most 64 MiB, so a longer frame is garbage.
_LARGEST_FRAME = 1024**3
#: Seconds that a stopping child has, also on a busy machine, to send its last reads and to kill its
#: token command.
_STOP_SECONDS = 5.0
#: Limit of a child's replacements.
_MAX_REPLACEMENTS = 2
#: The child sends a frame at least this often, in seconds, while the parent takes frames.
_HEARTBEAT = 1.0
#: The heartbeat timeout: an attempt's timeout, at most `_LONGEST_ATTEMPT`, plus `_MARGIN`.
_LONGEST_ATTEMPT, _MARGIN = 60.0, 10.0
#: Terminals and systemd signal the whole process group; only the parent handles these.
_PARENT_SIGNALS = (signal.SIGINT, signal.SIGTERM)

#: From this many tasks on, a reading process is worth its start, a fifth of a second.
_WORTH_A_PROCESS = 500

#: The child imports the same copy of the package.
_CHILD = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    " from nftsync.pull.process import child_main; child_main(*map(int, sys.argv[2:]))"
)


#: The first frame to the child: configuration, offset and start of its numbers, threads.
_Setup: TypeAlias = tuple[ClientConfig, int, int, int]


class _Report(msgspec.Struct, array_like=True):
    """A frame from the child; an empty one is a heartbeat."""

    reads: list[Read] = []
    reason: str | None = None
    settings_error: str | None = None


class Process(Reader):
    """Reader with a `Pool` in a child process.

    One thread sends and another receives, so a stopped child cannot block `take` or `stop`.
    """

    reason: str | None = None

    def __init__(
        self,
        config: ClientConfig,
        numbers: SequenceNumbers,
        threads: int,
        *,
        heartbeat_timeout: float | None = None,
    ) -> None:
        """Start the child.

        A child without a heartbeat for `heartbeat_timeout` seconds is replaced.
        """
        super().__init__()
        self._setup = (config, numbers, threads)
        self._timeout = heartbeat_timeout or min(config.timeout, _LONGEST_ATTEMPT) + _MARGIN
        self._replacements = 0
        self._stopped = False
        self._start()

    def _start(self) -> None:
        self._ended = False
        self._end_reason = "ended unexpectedly"
        self._seconds_silent, self._checked_at = 0.0, time.monotonic()
        child_tasks, task_pipe = Pipe(duplex=False)
        read_pipe, child_reads = Pipe(duplex=False)
        # Blocked until the child ignores these signals.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _PARENT_SIGNALS)
        try:
            numbers = (child_tasks.fileno(), child_reads.fileno())
            # -P: import nothing from the working directory.
            command = [sys.executable, "-P", "-c", _CHILD, str(Path(__file__).parents[2])]
            self._child = subprocess.Popen(  # noqa: S603 - our own program
                [*command, *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=numbers,
                env=environment_without_settings(),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            child_tasks.close()
            child_reads.close()
        self._outbox: SimpleQueue[object] = SimpleQueue()
        outbox = self._outbox
        self._sender = start_thread("tasks", lambda: _send_all(task_pipe, outbox), self._give_up)
        self._listener = start_thread("reads", lambda: self._listen(read_pipe), self._give_up)
        config, sequence, threads = self._setup
        self._outbox.put((config, sequence.offset, sequence.take(), threads))

    def submit(self, tasks: Sequence[Task]) -> None:
        if tasks:
            super().submit(tasks)
            self._outbox.put(tasks)

    def take(self, entries: int, *, timeout: float) -> list[Read]:
        """Take finished reads; see `Reader`."""
        reads = super().take(entries, timeout=timeout)
        self._kill_if_stopped()
        if self._ended and not (reads or self._stopped or self.idle):
            self._replace()
        return reads

    def _kill_if_stopped(self) -> None:
        """Kill a child without a heartbeat, such as one stopped by a signal.

        This process may also have been stopped, so each check counts at most one heartbeat's time.
        """
        with self._lock:
            moment = time.monotonic()
            self._seconds_silent += min(moment - self._checked_at, _HEARTBEAT)
            self._checked_at = moment
            if self._seconds_silent <= self._timeout or self._ended:
                return
            self._end_reason = f"sent no heartbeat for {self._timeout:.0f} s"
        self._child.kill()  # breaks the pipes, which ends the threads

    def _replace(self) -> None:
        if self._replacements == _MAX_REPLACEMENTS:
            raise RunInterrupted(f"the reading process {self._end_reason}; run again with --resume")
        self._replacements += 1
        _log.warning("the reading process %s; a new one replaced it", self._end_reason)
        self._end_child()
        self._start()
        self._outbox.put(list(self._pending.values()))

    def _listen(self, read_pipe: Connection) -> None:
        decoder = msgspec.msgpack.Decoder(_Report)
        with closing(read_pipe), suppress(EOFError):
            while True:
                report = decoder.decode(read_pipe.recv_bytes(_LARGEST_FRAME))
                self.reason = self.reason or report.reason
                if report.settings_error is not None:
                    self.end(SettingsError(report.settings_error))
                with self._lock:
                    self._seconds_silent = 0.0
                    self._may_read.wait_for(lambda: self._stopped or not self._is_full())
                self._put(report.reads)
        self.end()

    def _give_up(self, error: Exception) -> None:
        """Kill a child after a broken pipe or frame, so that it is replaced."""
        if not isinstance(error, OSError):  # an OSError means that the child ended within a frame
            self._end_reason = f"sent an unreadable frame ({type(error).__name__})"
        self._child.kill()
        self.end()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._may_read.notify_all()
        self._end_child(_STOP_SECONDS)
        with self._lock:
            self._pending.clear()

    def _end_child(self, seconds: float = 0.0) -> None:
        self._outbox.put(None)
        self._listener.join(seconds)
        self._child.kill()  # even if it is stopped
        self._child.wait()
        # The child's ends of the pipes are closed now, so both threads end.
        self._listener.join()
        self._sender.join()


def open_reader(
    config: ClientConfig,
    numbers: SequenceNumbers,
    threads: int,
    access: Access | None = None,
    *,
    tasks: int,
) -> Reader:
    """Return a reader that stops when the provider is down.

    Its threads run in this process if `access` is shared or if there are few `tasks`.
    """
    if access is None and tasks >= _WORTH_A_PROCESS:
        return Process(config, numbers, threads)
    return Pool(config, numbers, threads, access, rule=GiveUpRule())


def _send_all(task_pipe: Connection, outbox: SimpleQueue[object]) -> None:
    with closing(task_pipe), suppress(BrokenPipeError):  # `take` replaces the child
        while (value := outbox.get()) is not None:
            task_pipe.send_bytes(msgspec.msgpack.encode(value))


def child_main(task_pipe: int, read_pipe: int) -> None:
    """Read tasks from one pipe and write reads to the other, until the first closes."""
    for number in _PARENT_SIGNALS:  # the parent handles them
        signal.signal(number, signal.SIG_IGN)
    sys.stdout = sys.stderr
    for descriptor in (task_pipe, read_pipe):  # not for a token command
        os.set_inheritable(descriptor, False)
    status = 1
    # Open to the end: the parent kills this process once the second pipe is closed.
    tasks, reads = Connection(task_pipe, writable=False), Connection(read_pipe, readable=False)
    try:
        with suppress(EOFError, BrokenPipeError):  # the parent has ended
            _serve(tasks, reads)
        status = 0
    except Exception:  # noqa: BLE001 - the parent replaces this process
        traceback.print_exc()
    finally:
        kill_programs()
        os._exit(status)  # skip cleanup, as the parent waits


def _serve(task_pipe: Connection, read_pipe: Connection) -> None:
    config, offset, last, threads = msgspec.msgpack.decode(task_pipe.recv_bytes(), type=_Setup)
    numbers = SequenceNumbers(offset, last)
    try:
        _report_all(Pool(config, numbers, threads, rule=GiveUpRule()), task_pipe, read_pipe)
    except SettingsError as error:
        read_pipe.send_bytes(msgspec.msgpack.encode(_Report(settings_error=str(error))))


def _report_all(pool: Pool, task_pipe: Connection, read_pipe: Connection) -> None:
    closed = threading.Event()
    decoder = msgspec.msgpack.Decoder(list[Task])

    def listen() -> None:
        with suppress(EOFError):
            while True:
                pool.submit(decoder.decode(task_pipe.recv_bytes()))
        pool.stop()
        closed.set()

    start_thread("tasks", listen, pool.end)
    last_reason: str | None = None
    sent_at = 0.0
    while not (closed.is_set() and pool.idle):
        reads = pool.take(_FRAME_ENTRIES, timeout=_FRAME_SECONDS)
        heartbeat_due = time.monotonic() - sent_at >= _HEARTBEAT
        if reads or pool.reason != last_reason or heartbeat_due:
            last_reason, sent_at = pool.reason, time.monotonic()
            read_pipe.send_bytes(msgspec.msgpack.encode(_Report(reads, last_reason)))
        elif pool.idle or last_reason is not None:
            closed.wait(_FRAME_SECONDS)
