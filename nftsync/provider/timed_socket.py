"""Sockets whose every wait ends with the attempt under way, however slowly bytes drip in.

httpcore's timeouts are for each wait, so a peer that sends a byte now and then holds a request up
for ever. Here one deadline counts for all of an attempt: the connection, the TLS handshake and
each wait for bytes.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Any

import httpcore

from nftsync.errors import Stopped

__all__ = ["Attempt", "TimedBackend"]

#: How long a wait may go on after the stop event was set, in seconds.
_SLICE = 0.25


class Attempt:
    """When the attempt under way must be over: at its deadline, or when the caller stops.

    Attributes:
        deadline: of the monotonic clock; set anew for each attempt.
    """

    def __init__(self, stopped: threading.Event) -> None:
        self.deadline = 0.0
        self._stopped = stopped

    def left(self, *, connecting: str = "") -> float:
        """The seconds that are left.

        Args:
            connecting: what to say if there are none and no connection either.

        Raises:
            Stopped: the caller has stopped.
            httpcore.ConnectTimeout: there are none, and no connection either.
            httpcore.ReadTimeout: there are none.
        """
        if self._stopped.is_set():
            raise Stopped("stopped")
        left = self.deadline - time.monotonic()
        if left <= 0:
            if connecting:
                raise httpcore.ConnectTimeout(connecting)
            raise httpcore.ReadTimeout("out of time")
        return left


class _TimedStream(httpcore.NetworkStream):
    """A socket whose every wait ends with the attempt, however slowly the bytes drip in.

    The timeouts that httpcore hands down are those of a request, and ours carry none.
    """

    def __init__(self, connected: socket.socket, attempt: Attempt) -> None:
        self._socket = connected
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
        self._socket.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        """Go on over TLS; this very stream does."""
        try:
            secure = ssl_context.wrap_socket(
                self._socket, server_hostname=server_hostname, do_handshake_on_connect=False
            )
            self._socket = secure
            self._shake_hands(secure)
        except OSError as error:
            self.close()
            raise httpcore.ConnectError(str(error)) from error
        except BaseException:
            self.close()
            raise
        secure.settimeout(_SLICE)
        self._timeout = _SLICE
        return self

    def _shake_hands(self, secure: ssl.SSLSocket) -> None:
        while True:
            left = self._attempt.left(connecting="the TLS handshake timed out")
            secure.settimeout(min(left, _SLICE))
            with suppress(TimeoutError):  # it goes on where it was
                return secure.do_handshake()

    def get_extra_info(self, info: str) -> Any:
        """What connection and pool ask: whether it is over TLS, and whether it can be read."""
        if info == "ssl_object":
            return self._socket if isinstance(self._socket, ssl.SSLSocket) else None
        if info == "is_readable":  # so is one that is closed: it gives its end
            return self._socket.fileno() < 0 or _is_ready(self._socket, select.POLLIN, 0.0)
        return None


class TimedBackend(httpcore.SyncBackend):
    """Opens sockets whose every wait ends with an attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        """Connect within the attempt; looking up a name is not part of it.

        Of several addresses, each is tried for an even share of the time that is left.
        """
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError:  # out of the resolver, for a label too long
            raise httpcore.ConnectError(f"{host[:80]!r} is no host name") from None
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        failure: OSError | None = None
        for number, (family, kind, protocol, _, address) in enumerate(found):
            share = self._attempt.left(connecting="timed out") / (len(found) - number)
            with ExitStack() as opened:
                try:
                    connecting = opened.enter_context(socket.socket(family, kind, protocol))
                    self._connect(connecting, address, time.monotonic() + share)
                except OSError as error:
                    failure = error
                    continue
                opened.pop_all()
                return _TimedStream(connecting, self._attempt)
        if isinstance(failure, TimeoutError):
            raise httpcore.ConnectTimeout("timed out") from failure
        raise httpcore.ConnectError(str(failure)) from failure

    def _connect(self, connecting: socket.socket, address: Any, until: float) -> None:
        connecting.setblocking(False)
        code = connecting.connect_ex(address)
        while code == errno.EINPROGRESS:
            share = max(0.0, until - time.monotonic())
            wait = min(self._attempt.left(connecting="timed out"), _SLICE, share)
            if _is_ready(connecting, select.POLLOUT, wait):
                code = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            elif time.monotonic() >= until:
                code = errno.ETIMEDOUT
        if code:
            raise OSError(code, os.strerror(code))
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _is_ready(waiting: socket.socket, what: int, seconds: float) -> bool:
    """Wait until a socket can be read or written, or has failed."""
    poll = select.poll()
    poll.register(waiting, what)
    return bool(poll.poll(seconds * 1000))
