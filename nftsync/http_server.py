"""waitress as we run it: bounded against slow and greedy clients, stopped without losing a reply.

waitress reads each request whole before a thread works on it, so slow clients cost a connection,
not a thread. What it lacks, and what is here: an end to requests that drip in for ever, room for a
good client when slow ones hold all connections, a thread for each request that waits for something,
and a stop that lets requests finish.
"""

from __future__ import annotations

import errno
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from waitress import wasyncore
from waitress.adjustments import Adjustments

from nftsync.errors import InputError
from nftsync.http_connections import Connections, Workers
from nftsync.http_quick import QuickPath

if TYPE_CHECKING:
    from types import TracebackType

    from _typeshed.wsgi import WSGIApplication

__all__ = ["HttpServer", "Listener", "stop_signals", "wait_for_signal"]

#: How long a stop goes on accepting: what a busy machine has received may not be here yet, and a
#: port that is closed before resets it.
_LAST_CALL_SECONDS = 0.1
#: How long a stop waits for requests that are still coming in, and for replies nobody takes.
_DRAIN_SECONDS = 2.0
#: How long a stop waits for a request in work, whatever it does.
_WORK_SECONDS = 10.0
_LARGEST_HEADER = 16 * 1024


class Listener:
    """A port that is taken, for a server whose app must know its address beforehand.

    Args:
        host: the address to listen on; a name, IPv4 or IPv6.
        port: the port; 0 takes any free one.
        flag: the flag that names the port, for messages.

    Attributes:
        socket: listens already: a port that is only bound can still be taken by someone else.
        host: the address it was given.
        port: the port it listens on.
        url: the base URL, without a slash at its end.

    Raises:
        InputError: the port is taken or may not be used.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0, *, flag: str = "--port") -> None:
        self.socket = _listen(host, port, flag)
        self.host = host
        self.port: int = self.socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}"

    def close(self) -> None:
        """Free the port, where no server has taken it over."""
        self.socket.close()


class HttpServer:
    """A WSGI app on a port, in threads; a context manager that stops it on leaving.

    Args:
        app: the app.
        listener: where it listens, closed with the server; None: any free port of 127.0.0.1.
        threads: requests worked on at once; None: as many as there may be connections, so that
            none waits for a thread while others wait for something else.
        connections: clients connected at once; for one more, the one that has been sending a
            request for longest is cut off.
        largest_body: bytes of a body that are taken in before the app is asked; what is larger is
            answered 413 by the server itself, and the reply may be lost as the client still sends.
        request_seconds: how long a request may take to come in.
        idle_seconds: how long a connection may do nothing.
        ident: the `Server` header.
        quick: requests that need no thread; None: there are none such.

    Attributes:
        port: the port it listens on.
        url: the base URL, without a slash at its end.
    """

    def __init__(
        self,
        app: WSGIApplication,
        listener: Listener | None = None,
        *,
        threads: int | None = None,
        connections: int = 500,
        largest_body: int = 1024 * 1024,
        request_seconds: float = 10.0,
        idle_seconds: float = 60.0,
        ident: str = "nftsync",
        quick: QuickPath | None = None,
    ) -> None:
        # waitress counts its own two sockets too, and stops accepting where we make room.
        limit = connections + 50
        adjustments = Adjustments(
            connection_limit=limit,
            max_request_body_size=largest_body + 1,
            max_request_header_size=_LARGEST_HEADER,
            cleanup_interval=1,
            asyncore_use_poll=True,
            clear_untrusted_proxy_headers=False,
            ident=ident,
        )
        # The loop sends what the threads write, many replies in one turn.
        adjustments.send_bytes = 18_000
        listener = listener or Listener()
        self.port = listener.port
        self.url = listener.url
        self._channels: dict[int, Any] = {}
        self._stopping = threading.Event()
        self._threads = Workers(threads or limit)
        self._server = Connections(
            app, self._channels, listener.socket, self._threads, adjustments, connections, quick
        )
        self._server.request_seconds = request_seconds
        self._server.idle_seconds = idle_seconds
        self._loop = threading.Thread(target=self._run, name="nftsync-http", daemon=True)
        self._loop.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop accepting, let requests finish and their replies go out, close all connections."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._server.trigger.pull_trigger()  # whether it is awake or not
        self._loop.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._turn(1.0)
        self._server.draining = True
        began = time.monotonic()
        while time.monotonic() - began < _LAST_CALL_SECONDS:
            self._turn(_LAST_CALL_SECONDS / 4)
        self._server.accept_waiting()
        self._server.stop_listening()
        self._turn(0.0)  # takes in what clients had sent by now
        while (passed := time.monotonic() - began) < _WORK_SECONDS:
            if not self._server.close_finished(late=passed > _DRAIN_SECONDS):
                break
            self._turn(0.05)
        self._threads.end()
        self._server.end()
        wasyncore.close_all(self._channels)

    def _turn(self, seconds: float) -> None:
        self._server.work()
        seconds = self._server.begin_wait(seconds)
        wasyncore.loop(timeout=seconds, use_poll=True, map=self._channels, count=1)


@contextmanager
def stop_signals() -> Iterator[Callable[[], int]]:
    """Catch SIGTERM and Ctrl-C from here on; for the main thread.

    Yields:
        A function that waits for one of them and returns its number.
    """
    # Through a socket: Python runs its handlers when the main thread next runs, which it never does
    # if the signal came just before that began to wait for a lock.
    caught, sent = socket.socketpair()
    sent.setblocking(False)
    # SIGINT too: a shell that starts us in the background makes us ignore that.
    before = {
        number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)
    }
    before_fd = signal.set_wakeup_fd(sent.fileno(), warn_on_full_buffer=False)

    def wait() -> int:
        while (number := caught.recv(1)[0]) not in before:
            pass
        return number

    try:
        yield wait
    finally:
        signal.set_wakeup_fd(before_fd)
        caught.close()
        sent.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for_signal() -> int:
    """Wait for SIGTERM or Ctrl-C, and return its number; for the main thread."""
    with stop_signals() as wait:
        return wait()


def _listen(host: str, port: int, flag: str) -> socket.socket:
    """Bind and listen at once: a port that is only bound can still be taken by someone else."""
    if not 0 <= port <= 65_535:  # which getaddrinfo would wrap around
        raise InputError(f"cannot listen on port {port} of {host}: it is not from 0 to 65535")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # Of a name that has both, as localhost does, the address that every client tries.
        family, kind, protocol, _, address = min(found, key=lambda x: x[0] != socket.AF_INET)
        listener = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, UnicodeError) as error:
        raise InputError(f"cannot listen on {host}: {_reason(error)}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(1024)
    except (OSError, OverflowError) as error:
        listener.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise InputError(
                f"port {port} on {host} is taken; choose another with {flag}"
            ) from error
        raise InputError(f"cannot listen on port {port} of {host}: {_reason(error)}") from error
    return listener


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
