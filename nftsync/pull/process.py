"""Reads made by a process of their own, so that reading and writing do not share one interpreter.

HTTP and SQLite each keep an interpreter busy. In one process they wait for its lock in turn; with
the reading threads in a process beside it, a large sync takes about half the time.

The two talk through the child's standard input and output, in frames of a header and msgpack. The
settings go the same way, so no secret is an argument. The child ends when its input does, which is
also what happens when its parent is killed. When the child is killed, another takes its place.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from nftsync.errors import CutOff, NftsyncError, SettingsError
from nftsync.provider import ClientConfig
from nftsync.pull.pool import FetchThreads, Reader
from nftsync.pull.reads import Read, Task, WalletTask
from nftsync.records import WalletRead
from nftsync.store.clock import TicketClock

__all__ = ["FetchProcess", "child_main"]

#: Length of the payload, number of reads, number of their list entries.
_HEADER = struct.Struct("<III")
#: What may wait to be written, in list entries.
_MOST_ENTRIES = 20_000
#: A frame holds about so many list entries, or what came in so many seconds.
_FRAME_ENTRIES = 400
_FRAME_SECONDS = 0.05
#: Tasks that the child is given ahead, so that it has work while the parent writes.
_MOST_AHEAD = 2_500
#: How long the child is given to end by itself, in seconds.
_LAST_SECONDS = 5.0
#: How often a child that ended before its work did is replaced.
_MOST_REPLACED = 2
#: A terminal and systemd send these to the whole group of processes; they are the parent's alone.
_FOR_THE_PARENT = (signal.SIGINT, signal.SIGTERM)

#: The child finds this very package, however this process found it.
_CHILD = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    " from nftsync.pull.process import child_main; child_main()"
)


class _Order(msgspec.Struct, array_like=True):
    """What the child is told first."""

    config: ClientConfig
    ticket_offset: int
    last_ticket: int
    threads: int


class _News(msgspec.Struct, array_like=True):
    """What the child tells."""

    reads: list[Read] = []
    verdict: str | None = None
    settings_error: str | None = None


_order_decoder = msgspec.msgpack.Decoder(_Order)
_tasks_decoder = msgspec.msgpack.Decoder(list[Task])
_news_decoder = msgspec.msgpack.Decoder(_News)


def _send(stream: IO[bytes], value: object, reads: int = 0, entries: int = 0) -> None:
    payload = msgspec.msgpack.encode(value)
    stream.write(_HEADER.pack(len(payload), reads, entries) + payload)
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[bytes, int, int] | None:
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    length, reads, entries = _HEADER.unpack(header)
    payload = stream.read(length)
    return (payload, reads, entries) if len(payload) == length else None


class FetchProcess:
    """Reads made by threads of a child process.

    It takes a fifth of a second until it can read, so it is made early and told later.
    """

    def __init__(self) -> None:
        """Start the child, which waits for `begin`."""
        self.verdict: str | None = None
        self._lock = threading.Lock()
        self._may_receive = threading.Condition(self._lock)
        self._may_take = threading.Condition(self._lock)
        self._frames: deque[tuple[bytes, int]] = deque()
        self._waiting_entries = 0
        self._outstanding = 0
        self._most_outstanding = 0
        self._untaken: dict[str, Task] = {}
        self._replaced = 0
        self._stopped = False
        self._start()

    def _start(self) -> None:
        self._ended = False
        self._child = _start_child()
        if self._child.stdin is None or self._child.stdout is None:
            raise NftsyncError("the reading process has no pipes")
        self._to_child = self._child.stdin
        self._from_child = self._child.stdout
        self._receiver = threading.Thread(target=self._listen, name="nftsync-fetch", daemon=True)

    def begin(self, config: ClientConfig, tickets: TicketClock, threads: int) -> None:
        """Say how to read; tasks may follow.

        Args:
            config: how to read the provider.
            tickets: where each read takes its number.
            threads: how many threads read.
        """
        self._most_outstanding = 4 * threads + _MOST_AHEAD
        self._begun_with = (config, tickets, threads)
        with suppress(BrokenPipeError):  # take() sees that the child has ended
            _send(self._to_child, _Order(config, tickets.offset, tickets.take(), threads))
        self._receiver.start()

    def _replace(self) -> None:
        """Give what a child that ended left undone to another one."""
        if self._replaced == _MOST_REPLACED:
            raise CutOff("the reading process ended unexpectedly; run again with --resume")
        self._replaced += 1
        self.close()
        self._stopped = False
        self._outstanding = 0
        self._start()
        self.begin(*self._begun_with)
        self.submit(list(self._untaken.values()))

    @property
    def room(self) -> int:
        """How many more tasks it takes before it has caught up."""
        with self._lock:
            return max(0, self._most_outstanding - self._outstanding)

    @property
    def idle(self) -> bool:
        """Nothing waits, is being read, or has still to be taken."""
        with self._lock:
            return not self._frames and (self._stopped or not self._outstanding)

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue tasks."""
        if not tasks or self._stopped:
            return
        with self._lock:
            self._outstanding += len(tasks)
        self._untaken |= {_object_id(task): task for task in tasks}
        with suppress(BrokenPipeError):  # take() sees that the child has ended
            _send(self._to_child, tasks)

    def take(self, entries: int, *, patience: float) -> list[Read]:
        """Take finished reads.

        Args:
            entries: about how many list entries to take at most; a read with none counts as one.
            patience: how long to wait for that many, in seconds.

        Raises:
            SettingsError: the token command failed.
            CutOff: the child ended before its work did, and so did those in its place.
        """
        with self._lock:
            self._may_take.wait_for(
                lambda: self._ended or self._waiting_entries >= entries or self._outstanding == 0,
                timeout=patience,
            )
            lost = self._ended and not (self._frames or self._stopped) and self._outstanding > 0
            payloads: list[bytes] = []
            while self._frames and entries > 0:
                payload, weight = self._frames.popleft()
                payloads.append(payload)
                entries -= weight
                self._waiting_entries -= weight
            self._may_receive.notify()
        if lost:
            self._replace()
        reads = [read for payload in payloads for read in self._open(payload)]
        for read in reads:
            self._untaken.pop(_object_id(read), None)
        return reads

    def _open(self, payload: bytes) -> list[Read]:
        news = _news_decoder.decode(payload)
        if news.settings_error is not None:
            raise SettingsError(news.settings_error)
        self.verdict = self.verdict or news.verdict
        return news.reads

    def _listen(self) -> None:
        while (frame := _receive(self._from_child)) is not None:
            payload, reads, entries = frame
            with self._lock:
                self._may_receive.wait_for(
                    lambda: self._stopped or self._waiting_entries < _MOST_ENTRIES
                )
                self._frames.append((payload, entries))
                self._waiting_entries += entries
                self._outstanding -= reads
                self._may_take.notify()
        with self._lock:
            self._ended = True
            self._may_take.notify()

    def stop(self) -> None:
        """Begin no more reads, and end those under way; what has been read can still be taken."""
        with self._lock:
            self._stopped = True
            self._may_receive.notify()
        with suppress(BrokenPipeError):
            self._to_child.close()
        try:
            self._child.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if self._receiver.is_alive():
            self._receiver.join()

    def close(self) -> None:
        """Stop, and close the pipe."""
        self.stop()
        self._from_child.close()


def _object_id(of: Task | Read) -> str:
    return of.wallet_id if isinstance(of, WalletTask | WalletRead) else of.token_id


def _start_child() -> subprocess.Popen[bytes]:
    # Until the child ignores them, they are held back.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_PARENT)
    try:
        return subprocess.Popen(  # noqa: S603 - this very program
            # Safe path (-P): nothing is imported from whatever folder we stand in.
            [sys.executable, "-P", "-c", _CHILD, str(Path(__file__).parents[2])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def child_main() -> None:
    """Read what the parent asks for, until it closes our input."""
    for number in _FOR_THE_PARENT:  # which says when to stop
        signal.signal(number, signal.SIG_IGN)
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    first = _receive(stdin)
    if first is None:
        return
    order = _order_decoder.decode(first[0])
    tickets = TicketClock(order.ticket_offset, order.last_ticket)
    with suppress(BrokenPipeError):  # the parent has gone
        try:
            reader = FetchThreads[Task, Read](order.config, tickets, order.threads)
            _serve(reader, stdin, stdout)
        except SettingsError as error:
            _send(stdout, _News(settings_error=str(error)))
    os._exit(0)  # nothing is left to be tidied up, and the parent waits for our end


def _serve(reader: Reader, stdin: IO[bytes], stdout: IO[bytes]) -> None:
    over = threading.Event()

    def listen() -> None:
        while (frame := _receive(stdin)) is not None:
            reader.submit(_tasks_decoder.decode(frame[0]))
        over.set()
        reader.stop()

    threading.Thread(target=listen, daemon=True).start()
    told: str | None = None
    while not (over.is_set() and reader.idle):
        reads = reader.take(_FRAME_ENTRIES, patience=_FRAME_SECONDS)
        if reads or reader.verdict != told:
            told = reader.verdict
            entries = sum(1 + len(getattr(read, "entries", ())) for read in reads)
            _send(stdout, _News(reads, told), len(reads), entries)
        elif reader.idle:
            over.wait(_FRAME_SECONDS)
