"""Sockets whose every wait ends with the attempt under way, however slowly bytes drip in.

httpcore's timeouts are for each wait, so a peer that sends a byte now and then holds a request up
for ever. Here one deadline counts for all of an attempt.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterable
from typing import Any

import httpcore

from nftsync.errors import Stopped

__all__ = ["Attempt", "TimedBackend"]

#: How long a wait for bytes may go on after the stop event was set, in seconds.
_SLICE = 0.25


class Attempt:
    """When the attempt under way must be over: at its deadline, or when the caller stops.

    Attributes:
        deadline: of the monotonic clock; set anew for each attempt.
    """

    def __init__(self, stopped: threading.Event) -> None:
        self.deadline = 0.0
        self._stopped = stopped

    def left(self) -> float:
        """The seconds that are left.

        Raises:
            Stopped: the caller has stopped.
            httpcore.ReadTimeout: there are none.
        """
        if self._stopped.is_set():
            raise Stopped("stopped")
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("out of time")
        return left


class _TimedStream(httpcore.NetworkStream):
    """A socket whose every wait ends with the attempt, however slowly the bytes drip in.

    The timeouts that httpcore hands down are those of a request, and ours carry none.
    """

    def __init__(self, stream: httpcore.NetworkStream, attempt: Attempt) -> None:
        self._stream = stream
        self._socket: socket.socket = stream.get_extra_info("socket")
        self._socket.settimeout(_SLICE)
        self._timeout = _SLICE
        self._attempt = attempt

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        while True:
            self._wait_no_longer()
            try:
                return self._socket.recv(max_bytes)
            except TimeoutError:
                continue
            except OSError as error:
                raise httpcore.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        while buffer:
            self._wait_no_longer()
            try:
                buffer = buffer[self._socket.send(buffer) :]
            except TimeoutError:
                continue
            except OSError as error:
                raise httpcore.WriteError(str(error)) from error

    def _wait_no_longer(self) -> None:
        """Let the next wait for bytes end with the attempt, and overlook a stop for a moment only.

        The socket's own methods are used, as httpcore's set the timeout anew for each: a system
        call, for which a thread gives up the interpreter.
        """
        timeout = min(self._attempt.left(), _SLICE)
        if timeout != self._timeout:
            self._socket.settimeout(timeout)
            self._timeout = timeout

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._attempt.left())
        return _TimedStream(stream, self._attempt)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class TimedBackend(httpcore.SyncBackend):
    """Opens sockets whose every wait ends with an attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect within the attempt; looking up a name is not part of it."""
        try:
            stream = super().connect_tcp(
                host, port, self._attempt.left(), local_address, socket_options
            )
        except UnicodeError:  # out of the resolver, for a label too long
            raise httpcore.ConnectError(f"{host[:80]!r} is no host name") from None
        return _TimedStream(stream, self._attempt)
