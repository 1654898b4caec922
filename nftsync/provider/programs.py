"""Programs from the settings, run without nftsync's secrets and with a time limit."""

from __future__ import annotations

import atexit
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, cast

from nftsync.provider.config import environment_without_settings

#: Limit for a program's output, in bytes.
LONGEST_OUTPUT = 64 * 1024
#: Seconds between checks for a stop.
_SLICE = 0.25
#: The process groups of running programs, which no Ctrl-C reaches.
_groups: set[int] = set()


class TooMuchOutput(Exception):
    """A program printed more than `LONGEST_OUTPUT`."""


def run_program(
    command: Sequence[str],
    timeout: float,
    *,
    stdin: bytes | None = None,
    variables: Mapping[str, str] = {},
    stopped: threading.Event | None = None,
) -> tuple[int, bytes]:
    """Run a program, and return its exit code and output; finally, kill its process group.

    With `stdin`, the output is discarded, `stopped` ends the program, and its background children
    have the rest of the time after its success.

    Raises:
        OSError, ValueError: the program cannot be run.
        subprocess.TimeoutExpired: `timeout` seconds are over, or `stopped` is set.
        TooMuchOutput: the output is too long.
    """
    ends_at = time.monotonic() + timeout
    stopped = stopped or threading.Event()
    with (
        # A file gives the program its whole input, even if this process ends.
        TemporaryFile() as standard_input,
        subprocess.Popen(  # noqa: S603 - the operator's own command
            command,
            stdin=subprocess.DEVNULL if stdin is None else _filled(standard_input, stdin),
            stdout=subprocess.PIPE if stdin is None else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**environment_without_settings(), **variables},
            start_new_session=True,  # its own process group, which Ctrl-C does not reach
        ) as process,
    ):
        _groups.add(process.pid)
        atexit.unregister(kill_programs)  # keeps one registration
        atexit.register(kill_programs)
        try:
            output = _output_of(process, ends_at) if stdin is None else b""
            _wait(process, ends_at, stopped)
            has_children = stdin is not None and process.returncode == 0
            while has_children and time.monotonic() < ends_at and not stopped.is_set():
                has_children = _signal_group(process.pid, 0) and not stopped.wait(_SLICE)
        finally:
            _signal_group(process.pid, signal.SIGKILL)
            _groups.discard(process.pid)
    return process.returncode, output


def kill_programs() -> None:
    for number in list(_groups):
        _signal_group(number, signal.SIGKILL)


def _signal_group(number: int, signal_number: int) -> bool:
    """Send a signal to a process group; return whether it exists."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(number, signal_number)
        return True
    return False


def _filled(file: IO[bytes], content: bytes) -> IO[bytes]:
    file.write(content)
    file.seek(0)
    return file


def _wait(process: subprocess.Popen[bytes], ends_at: float, stopped: threading.Event) -> None:
    while (left := max(0.0, ends_at - time.monotonic())) and not stopped.is_set():
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(left, _SLICE))
            return
    raise subprocess.TimeoutExpired(process.args, left)


def _output_of(process: subprocess.Popen[bytes], ends_at: float) -> bytes:
    stream = cast("IO[bytes]", process.stdout)
    output = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while len(output) <= LONGEST_OUTPUT:
            left = ends_at - time.monotonic()
            if left <= 0.0 or not selector.select(left):
                raise subprocess.TimeoutExpired(process.args, left)
            part = os.read(stream.fileno(), LONGEST_OUTPUT)
            if not part:
                return output
            output += part
    raise TooMuchOutput
