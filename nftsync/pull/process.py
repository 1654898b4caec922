"""A child process that makes the reads, so that reading and writing use both cores.

HTTP and SQLite each keep an interpreter busy. In one process they wait for its lock in turn; with
the reading threads in a process beside it, a large sync takes about half the time. There is one
such process, not several: the rate limit and the pause after a 429 hold for all its threads, and
what it reads keeps the one writer busy.

The processes exchange msgpack frames over two pipes of their own, so other output of the child does
no harm. The settings go the same way, so no secret is an argument. The child ends when the pipe of
its tasks is closed, which also happens when the parent is killed. A child that dies, sends an
unreadable frame or is silent is replaced.
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

from nftsync.errors import CutOff, SettingsError
from nftsync.provider.config import ClientConfig, environment_without_settings
from nftsync.provider.limits import GiveUpRule
from nftsync.pull.reads import Pool, Read, Reader, Task
from nftsync.records import SequenceNumbers
from nftsync.threads import start_thread

_log = logging.getLogger("nftsync.sync")

#: The size of a frame in list entries, about, and the time after which a smaller one is sent.
_FRAME_ENTRIES = 400
_FRAME_SECONDS = 0.05
#: Bytes; a wallet has 64 MiB at most, so a longer frame is none of ours.
_LARGEST_FRAME = 1024**3
#: Seconds in which a stopping child can send its last reads.
_LAST_SECONDS = 1.0
#: How often a child that ended before its work did is replaced.
_MOST_REPLACED = 2
#: The child sends at least one frame in so many seconds, except while the parent takes none.
_HEARTBEAT = 1.0
#: A child is silent for longer than an attempt may take, or than this, and so many seconds more.
_LONGEST_SILENCE, _MARGIN = 60.0, 10.0
#: A terminal and systemd send these to the whole group of processes; they are the parent's alone.
_FOR_THE_PARENT = (signal.SIGINT, signal.SIGTERM)

#: The child finds this very package, however this process found it.
_CHILD = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    " from nftsync.pull.process import child_main; child_main(*map(int, sys.argv[2:]))"
)


#: The first frame to the child: how to read, where its numbers begin, and the number of threads.
_Order: TypeAlias = tuple[ClientConfig, int, int, int]


class _Report(msgspec.Struct, array_like=True):
    """A frame from the child; an empty one is a heartbeat."""

    reads: list[Read] = []
    reason: str | None = None
    settings_error: str | None = None


class Process(Reader[Task, Read]):
    """Reads made by the threads of a `Pool` in a child process.

    A thread sends, and another receives, so that a child that has stopped holds up neither `take`
    nor `stop`. They end when the child does.
    """

    def __init__(
        self,
        config: ClientConfig,
        numbers: SequenceNumbers,
        threads: int,
        *,
        most_silent: float | None = None,
    ) -> None:
        """Start the child.

        Args:
            config: how to read the provider.
            numbers: where each read takes its number.
            threads: how many threads read.
            most_silent: seconds without a sign of life after which a child is replaced; None: more
                than an attempt may take.
        """
        super().__init__()
        self._order = (config, numbers, threads)
        self._most_silent = most_silent or min(config.timeout, _LONGEST_SILENCE) + _MARGIN
        self._reason: str | None = None
        self._replaced = 0
        self._stopped = False
        self._start()

    def _start(self) -> None:
        self._ended = False
        self._end_reason = "ended unexpectedly"
        self._silent, self._checked_at = 0.0, time.monotonic()
        child_orders, orders = Pipe(duplex=False)
        reports, child_reports = Pipe(duplex=False)
        # Blocked until the child ignores them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_PARENT)
        try:
            numbers = (child_orders.fileno(), child_reports.fileno())
            # Safe path (-P): nothing is imported from whatever folder we stand in.
            command = [sys.executable, "-P", "-c", _CHILD, str(Path(__file__).parents[2])]
            self._child = subprocess.Popen(  # noqa: S603 - this very program
                [*command, *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=numbers,
                env=environment_without_settings(),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            child_orders.close()
            child_reports.close()
        self._outbox: SimpleQueue[object] = SimpleQueue()
        outbox = self._outbox
        self._sender = start_thread("tasks", lambda: _send_all(orders, outbox), self._give_up)
        self._listener = start_thread("reads", lambda: self._listen(reports), self._give_up)
        config, sequence, threads = self._order
        self._outbox.put((config, sequence.offset, sequence.take(), threads))

    @property
    def reason(self) -> str | None:
        """Why going on has no point, or None."""
        return self._reason

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue tasks, each of an object that is not being read."""
        if tasks:
            super().submit(tasks)
            self._outbox.put(tasks)

    def take(self, entries: int, *, timeout: float) -> list[Read]:
        """Take finished reads.

        Args:
            entries: about how many list entries to take at most; a read with none counts as one.
            timeout: how long to wait for that many, in seconds.

        Raises:
            SettingsError: the token command failed.
            CutOff: the child ended before its work did, and so did those in its place.
        """
        reads = super().take(entries, timeout=timeout)
        self._kill_if_silent()
        if self._ended and not (reads or self._stopped or self.idle):
            self._replace()
        return reads

    def _kill_if_silent(self) -> None:
        """Kill a child that has sent nothing for too long: it was stopped, and not continued.

        The clock also runs while this process itself is stopped, and cannot receive. So the time
        since the last check counts as one heartbeat at most.
        """
        with self._lock:
            moment = time.monotonic()
            self._silent += min(moment - self._checked_at, _HEARTBEAT)
            self._checked_at = moment
            if self._silent <= self._most_silent or self._ended:
                return
            self._end_reason = f"gave no sign of life for {self._most_silent:.0f} s"
        self._child.kill()  # so the pipes break, and the threads end

    def _replace(self) -> None:
        """Start another child, which reads the tasks that are left."""
        if self._replaced == _MOST_REPLACED:
            raise CutOff(f"the reading process {self._end_reason}; run again with --resume")
        self._replaced += 1
        _log.warning("the reading process %s; a new one replaced it", self._end_reason)
        self._end_child()
        self._start()
        self._outbox.put(list(self._unread.values()))

    def _listen(self, reports: Connection) -> None:
        """Receive what the child sends, until it ends."""
        decoder = msgspec.msgpack.Decoder(_Report)
        with closing(reports), suppress(EOFError):
            while True:
                report = decoder.decode(reports.recv_bytes(_LARGEST_FRAME))
                self._reason = self._reason or report.reason
                if report.settings_error is not None:
                    self.end(SettingsError(report.settings_error))
                with self._lock:
                    self._silent = 0.0
                    self._may_read.wait_for(lambda: self._stopped or not self._is_full())
                self._put(report.reads)
        self.end()

    def _give_up(self, error: Exception) -> None:
        """Kill a child that cannot be spoken with, so that it is replaced."""
        if not isinstance(error, OSError):  # which is the end of a child within a frame
            self._end_reason = f"sent an unreadable frame ({type(error).__name__})"
        self._child.kill()
        self.end()

    def stop(self) -> None:
        """Begin no more reads, and abandon those under way; what has been read can be taken."""
        with self._lock:
            self._stopped = True
            self._may_read.notify_all()
        self._end_child(_LAST_SECONDS)
        with self._lock:
            self._unread.clear()

    def _end_child(self, seconds: float = 0.0) -> None:
        self._outbox.put(None)
        self._listener.join(seconds)
        self._child.kill()  # even if it is stopped
        self._child.wait()
        # The kernel has closed its ends of the pipes, so neither thread waits for it any longer.
        self._listener.join()
        self._sender.join()


def _send_all(orders: Connection, outbox: SimpleQueue[object]) -> None:
    """Send the values of a queue; None ends it."""
    with closing(orders), suppress(BrokenPipeError):  # take() sees that the child has ended
        while (value := outbox.get()) is not None:
            orders.send_bytes(msgspec.msgpack.encode(value))


def child_main(orders: int, reports: int) -> None:
    """Read what the parent asks for, until it closes the pipe.

    Args:
        orders: the descriptor of the pipe of tasks.
        reports: the descriptor of the pipe of reads.
    """
    for number in _FOR_THE_PARENT:  # which says when to stop
        signal.signal(number, signal.SIG_IGN)
    sys.stdout = sys.stderr
    for descriptor in (orders, reports):  # a token command gets neither
        os.set_inheritable(descriptor, False)
    status = 1
    try:
        with suppress(EOFError, BrokenPipeError):  # the parent has gone
            _serve(Connection(orders, writable=False), Connection(reports, readable=False))
        status = 0
    except Exception:  # noqa: BLE001 - the parent puts another process in our place
        traceback.print_exc()
    finally:
        os._exit(status)  # nothing is left to be tidied up, and the parent waits for our end


def _serve(orders: Connection, reports: Connection) -> None:
    config, offset, last_number, threads = msgspec.msgpack.decode(orders.recv_bytes(), type=_Order)
    numbers = SequenceNumbers(offset, last_number)
    try:
        _report_all(Pool(config, numbers, threads, rule=GiveUpRule()), orders, reports)
    except SettingsError as error:
        reports.send_bytes(msgspec.msgpack.encode(_Report(settings_error=str(error))))


def _report_all(pool: Pool[Task, Read], orders: Connection, reports: Connection) -> None:
    over = threading.Event()
    decoder = msgspec.msgpack.Decoder(list[Task])

    def listen() -> None:
        with suppress(EOFError):
            while True:
                pool.submit(decoder.decode(orders.recv_bytes()))
        pool.stop()
        over.set()

    start_thread("tasks", listen, pool.end)
    reported: str | None = None
    sent_at = 0.0
    while not (over.is_set() and pool.idle):
        reads = pool.take(_FRAME_ENTRIES, timeout=_FRAME_SECONDS)
        is_due = time.monotonic() - sent_at >= _HEARTBEAT
        if reads or pool.reason != reported or is_due:
            reported, sent_at = pool.reason, time.monotonic()
            reports.send_bytes(msgspec.msgpack.encode(_Report(reads, reported)))
        elif pool.idle or reported is not None:
            over.wait(_FRAME_SECONDS)
