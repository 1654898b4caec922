"""Reads made by a process of their own, so that reading and writing do not share one interpreter.

HTTP and SQLite each keep an interpreter busy. In one process they wait for its lock in turn; with
the reading threads in a process beside it, a large sync takes about half the time. There is one
such process, not several: the rate limit and the pause after a 429 hold for all its threads, and
what it reads keeps the one writer busy.

The two talk through the child's standard input and output, in frames of a length and msgpack. The
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
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeAlias, cast

import msgspec

from nftsync.errors import CutOff, SettingsError
from nftsync.provider.client import ClientConfig
from nftsync.provider.credentials import without_our_settings
from nftsync.pull.pool import Pool
from nftsync.pull.reads import Read, Reader, Task
from nftsync.records import SequenceNumbers

__all__ = ["Process", "child_main"]

_LENGTH = struct.Struct("<I")
#: A frame holds about so many list entries, or what came in so many seconds.
_FRAME_ENTRIES = 400
_FRAME_SECONDS = 0.05
#: How long the child is given to hand over what it has read, in seconds.
_LAST_SECONDS = 1.0
#: How often a child that ended before its work did is replaced.
_MOST_REPLACED = 2
#: A terminal and systemd send these to the whole group of processes; they are the parent's alone.
_FOR_THE_PARENT = (signal.SIGINT, signal.SIGTERM)

#: The child finds this very package, however this process found it.
_CHILD = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    " from nftsync.pull.process import child_main; child_main()"
)


#: What the child is told first: how to read, where its numbers begin, and by how many threads.
_Order: TypeAlias = tuple[ClientConfig, int, int, int]


class _Report(msgspec.Struct, array_like=True):
    """What the child tells."""

    reads: list[Read] = []
    reason: str | None = None
    settings_error: str | None = None


def _send(stream: IO[bytes], value: object) -> None:
    payload = msgspec.msgpack.encode(value)
    stream.write(_LENGTH.pack(len(payload)) + payload)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes | None:
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    payload = stream.read(length)
    return payload if len(payload) == length else None


class Process(Reader[Task, Read]):
    """Reads made by the threads of a `Pool` in a child process."""

    def __init__(self, config: ClientConfig, numbers: SequenceNumbers, threads: int) -> None:
        """Start the child.

        Args:
            config: how to read the provider.
            numbers: where each read takes its number.
            threads: how many threads read.
        """
        super().__init__()
        self._order = (config, numbers, threads)
        self._reason: str | None = None
        self._replaced = 0
        self._stopped = False
        self._start()

    def _start(self) -> None:
        self._ended = False
        # Until the child ignores them, they are held back.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_PARENT)
        try:
            self._child = subprocess.Popen(  # noqa: S603 - this very program
                # Safe path (-P): nothing is imported from whatever folder we stand in.
                [sys.executable, "-P", "-c", _CHILD, str(Path(__file__).parents[2])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=without_our_settings(),  # it is told what it needs
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._to_child = cast("IO[bytes]", self._child.stdin)
        self._from_child = cast("IO[bytes]", self._child.stdout)
        self._listener = threading.Thread(target=self._listen, name="nftsync-fetch", daemon=True)
        self._listener.start()
        config, numbers, threads = self._order
        self._tell((config, numbers.offset, numbers.take(), threads))

    def _tell(self, value: object) -> None:
        with suppress(BrokenPipeError):  # take() sees that the child has ended
            _send(self._to_child, value)

    @property
    def reason(self) -> str | None:
        """Why going on has no point, or None."""
        return self._reason

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue tasks, each of an object that is not being read."""
        if tasks:
            super().submit(tasks)
            self._tell(tasks)

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
        if self._ended and not (reads or self._stopped or self.idle):
            self._replace()
        return reads

    def _replace(self) -> None:
        """Give what a child that ended has not read to another one."""
        if self._replaced == _MOST_REPLACED:
            raise CutOff("the reading process ended unexpectedly; run again with --resume")
        self._replaced += 1
        self._end_child()
        self._start()
        self._tell(list(self._unread.values()))

    def _listen(self) -> None:
        decoder = msgspec.msgpack.Decoder(_Report)
        while (payload := _receive(self._from_child)) is not None:
            report = decoder.decode(payload)
            self._reason = self._reason or report.reason
            if report.settings_error is not None:
                self._end(SettingsError(report.settings_error))
            with self._lock:
                self._may_read.wait_for(lambda: self._stopped or not self._is_full())
            self._put(report.reads)
        self._end()

    def stop(self) -> None:
        """Begin no more reads, and abandon those under way; what has been read can be taken."""
        with self._lock:
            self._stopped = True
            self._may_read.notify_all()
        self._end_child(_LAST_SECONDS)
        with self._lock:
            self._unread.clear()

    def _end_child(self, seconds: float = 0.0) -> None:
        with suppress(BrokenPipeError):
            self._to_child.close()
        self._listener.join(seconds)
        self._child.kill()
        self._child.wait()
        self._listener.join()
        self._from_child.close()


def child_main() -> None:
    """Read what the parent asks for, until it closes our input."""
    for number in _FOR_THE_PARENT:  # which says when to stop
        signal.signal(number, signal.SIG_IGN)
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    first = _receive(stdin)
    if first is None:
        return
    config, offset, last_number, threads = msgspec.msgpack.decode(first, type=_Order)
    numbers = SequenceNumbers(offset, last_number)
    with suppress(BrokenPipeError):  # the parent has gone
        try:
            _serve(Pool[Task, Read](config, numbers, threads), stdin, stdout)
        except SettingsError as error:
            _send(stdout, _Report(settings_error=str(error)))
    os._exit(0)  # nothing is left to be tidied up, and the parent waits for our end


def _serve(pool: Pool[Task, Read], stdin: IO[bytes], stdout: IO[bytes]) -> None:
    over = threading.Event()
    decoder = msgspec.msgpack.Decoder(list[Task])

    def listen() -> None:
        while (payload := _receive(stdin)) is not None:
            pool.submit(decoder.decode(payload))
        pool.stop()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    told: str | None = None
    while not (over.is_set() and pool.idle):
        reads = pool.take(_FRAME_ENTRIES, timeout=_FRAME_SECONDS)
        if reads or pool.reason != told:
            told = pool.reason
            _send(stdout, _Report(reads, told))
        elif pool.idle:
            over.wait(_FRAME_SECONDS)
