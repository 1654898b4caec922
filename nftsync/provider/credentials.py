"""Who we are to the provider.

The scheme is not shown (provider's document, section Authentication), so it is a setting: a bearer
token, a command that prints one, or any headers at all.
"""

from __future__ import annotations

import os
import re
import selectors
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, cast

from nftsync.errors import SettingsError

#: What a token command may print, in bytes.
_LONGEST_OUTPUT = 64 * 1024
_COMMAND = "token_command (NFTSYNC_TOKEN_COMMAND)"


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        problem = str(error)
    raise SettingsError(f"{_COMMAND} is no command line: {problem}")


def without_our_settings() -> dict[str, str]:
    """The environment for programs that have no use for our settings, secrets among them."""
    return {name: value for name, value in os.environ.items() if not name.startswith("NFTSYNC_")}


class _TooMuch(Exception):
    """The command printed more than any token has."""


def _output_of(command: list[str], timeout: float) -> tuple[int, bytes]:
    """Run a command; kill it, with all that it has started, if it is too slow or prints too much.

    Raises:
        OSError: it cannot be run.
        ValueError: it holds a NUL.
        TimeoutExpired: it took too long.
        _TooMuch: it printed too much.
    """
    ends_at = time.monotonic() + timeout
    with subprocess.Popen(  # noqa: S603 - the operator's own command
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=without_our_settings(),
        start_new_session=True,  # Ctrl-C is for us, not for it; and it is the first of its group
    ) as process:
        try:
            output = _read_all(process, ends_at)
            process.wait(max(0.0, ends_at - time.monotonic()))
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output


def _read_all(process: subprocess.Popen[bytes], ends_at: float) -> bytes:
    """Return what a command prints until it closes its output."""
    stream = cast("IO[bytes]", process.stdout)
    output = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while len(output) <= _LONGEST_OUTPUT:
            left = ends_at - time.monotonic()
            if left <= 0.0 or not selector.select(left):
                raise subprocess.TimeoutExpired(process.args, left)
            part = os.read(stream.fileno(), _LONGEST_OUTPUT)
            if not part:
                return output
            output += part
    raise _TooMuch


class Auth:
    """The headers that every request carries, and how to get a new token after a 401.

    Attributes:
        can_renew: whether another token can be had after a 401.
    """

    def __init__(
        self,
        token: str | None = None,
        *,
        token_command: str | None = None,
        command_timeout: float = 60.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Remember the credentials; the command runs when the first request needs it.

        Args:
            token: sent as `Authorization: Bearer ...`.
            token_command: a command line whose standard output is the token.
            command_timeout: seconds that it may take.
            headers: sent as they are; settings refuse what HTTP cannot carry.

        Raises:
            SettingsError: the command is no command line.
        """
        self._command = _split(token_command or "")
        self._timeout = command_timeout
        self.can_renew = bool(self._command)
        self._fixed = dict(headers or {})
        self._token = token
        self._lock = threading.Lock()
        self._generation = 0
        self._failures = 0
        self._problem = ""

    def headers(self) -> tuple[dict[str, str], int]:
        """The headers, and the generation of the token in them.

        Raises:
            SettingsError: the token command failed.
        """
        if self._command and not self._generation:
            self.renew(0)
        # Before the token: an older one under a newer number would be renewed once too often.
        generation = self._generation
        if self._token is None:
            return self._fixed, generation
        # The token is the more specific setting; two such headers would be refused.
        others = {k: v for k, v in self._fixed.items() if k.lower() != "authorization"}
        return {**others, "Authorization": f"Bearer {self._token}"}, generation

    def renew(self, generation: int) -> None:
        """Run the token command, once for all threads whose token was of that generation.

        Raises:
            SettingsError: it failed, or printed nothing that can be sent.
        """
        failures = self._failures
        with self._lock:
            if self._generation != generation:
                return
            if self._failures != failures:  # while this thread waited for the lock
                raise SettingsError(self._problem)
            try:
                self._token = self._run_command()
            except SettingsError as error:
                self._failures += 1
                self._problem = str(error)
                raise
            self._generation += 1

    def _run_command(self) -> str:
        # What the command prints, on either stream, may hold a secret and is never shown.
        try:
            code, output = _output_of(self._command, self._timeout)
        except OSError as error:
            problem = f"cannot be run: {error.strerror}"
        except ValueError:
            problem = "cannot be run: it holds a NUL"
        except _TooMuch:
            problem = (
                f"printed more than {_LONGEST_OUTPUT // 1024} KiB: expected one line, the token"
            )
        except subprocess.TimeoutExpired:
            problem = f"took more than {self._timeout:g} s"
        else:
            token = output.decode("ascii", "replace").strip()
            if code:
                problem = f"ended with exit code {code}; run it by hand to see why"
            elif re.fullmatch("[!-~]+", token):
                return token
            else:
                problem = "printed no token: expected one line of printable ASCII without spaces"
        # Out here, so that no exception with the output hangs on to it.
        raise SettingsError(f"{_COMMAND} {problem}")
