"""Programs from the settings, run without nftsync's secrets and with a time limit."""

from __future__ import annotations

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
    """Run a program, and return its exit code and output; on an error, kill its process group.

    With `stdin`, the output is discarded, and setting `stopped` ends the program.

    Raises:
        OSError, ValueError: the program cannot be run.
        subprocess.TimeoutExpired: `timeout` seconds are over, or `stopped` is set.
        TooMuchOutput: the output is too long.
    """
    ends_at = time.monotonic() + timeout
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
        try:
            output = _output_of(process, ends_at) if stdin is None else b""
            _wait(process, ends_at, stopped or threading.Event())
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output


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
