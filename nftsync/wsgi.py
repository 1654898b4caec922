"""Serve a WSGI app on a port with waitress, and stop without losing a response.

waitress reads each request whole before a thread works on it, so slow clients cost a connection and
no thread. It neither cuts off requests that drip in for minutes nor makes room where all
connections are held: a web server in front of it does (docs/operate/operations.md).
"""

from __future__ import annotations

import errno
import logging
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import waitress
from werkzeug.wsgi import ClosingIterator

from nftsync.errors import InputError, NftsyncError
from nftsync.threads import start_thread

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


_log = logging.getLogger("nftsync.wsgi")

#: How long a stop waits for the requests in work, whatever they do.
_WORK_SECONDS = 10.0
#: How long a stop waits for clients that do not take their replies.
_SENT_SECONDS = 2.0
#: Bytes of a body that are held in memory while it comes in; a larger one goes into a file.
_HELD_IN_MEMORY = 128 * 1024
#: Files that the database, replay and syncs may have open, besides two of each connection.
_OTHER_FILES = 200
#: Bytes. Python takes no integer of more than 4,300 digits, so a longer Content-Length would end
#: waitress's reading of the connection with a traceback in the log.
_LARGEST_HEAD = 4_096


class Listener:
    """A port that is taken, for a server whose app must know its address beforehand.

    Args:
        host: the address to listen on; a name, IPv4 or IPv6.
        port: the port; 0 takes any free one.
        flag: the flag that names the port, for messages.

    Attributes:
        socket: listens already: a port that is only bound can still be taken by someone else.
        port: the port it listens on.
        url: the base URL, without a slash at its end.

    Raises:
        InputError: the port is taken or may not be used.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0, *, flag: str = "--port") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            if not 0 <= port <= 65_535:
                raise ValueError("it is not from 0 to 65535")  # noqa: TRY301 - as one of these
            self.socket = socket.create_server((host, port), family=family, backlog=1024)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                said = f"port {port} on {host} is taken"
            else:
                reason = getattr(error, "strerror", None) or error
                said = f"cannot listen on port {port} of {host}: {reason}"
            raise InputError(f"{said}; choose another with {flag}") from error
        self.port: int = self.socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}"

    def close(self) -> None:
        """Free the port, where no server has taken it over."""
        self.socket.close()


class HttpServer(AbstractContextManager["HttpServer"]):
    """A WSGI app on a port, in threads; a context manager that stops it on leaving.

    Args:
        app: the app.
        listener: where it listens, closed with the server; None: any free port of 127.0.0.1.
        threads: requests worked on at once; more wait for one of them.
        connections: clients connected at once; more wait to be accepted. Fewer, with a warning,
            if this process may not open twice as many files.
        idle_seconds: how long a client may send nothing while the server waits for its request.
        largest_body: bytes of a body that are taken in before the app is asked; what is larger is
            answered 413 by waitress, and the reply may be lost as the client still sends.
        ident: the `Server` header.
        on_broken: called once, from another thread, with what ends the server though nobody closed
            it. If None, it is only logged.

    Attributes:
        port: the port it listens on.
        url: the base URL, without a slash at its end.

    Raises:
        NftsyncError: so many threads cannot be started.
    """

    def __init__(
        self,
        app: WSGIApplication,
        listener: Listener | None = None,
        *,
        threads: int = 48,
        connections: int = 2_000,
        idle_seconds: int = 20,
        largest_body: int = 1024 * 1024,
        ident: str = "nftsync",
        on_broken: Callable[[Exception], object] | None = None,
    ) -> None:
        listener = listener or Listener()
        self.port, self.url = listener.port, listener.url
        self._app = _Draining(app)
        self._map: dict[int, Any] = {}  # all that waitress has open
        self._closing = threading.Lock()
        self._closed = False
        with enough_threads():
            self._server = waitress.create_server(
                self._app,
                map=self._map,
                sockets=[listener.socket],
                threads=threads,
                # It counts the port and the pipe that wakes it, too.
                connection_limit=_as_descriptors_allow(connections) + 2,
                channel_timeout=idle_seconds,
                cleanup_interval=max(1, idle_seconds // 4),
                inbuf_overflow=_HELD_IN_MEMORY,
                max_request_body_size=largest_body + 1,
                max_request_header_size=_LARGEST_HEAD,
                asyncore_use_poll=True,
                clear_untrusted_proxy_headers=False,  # no app looks at them
                ident=ident,
            )
            self._loop = start_thread("http", self._run, on_broken)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Refuse new requests, let those in work be answered, then close all connections."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._app.end(_WORK_SECONDS)
            until = time.monotonic() + _SENT_SECONDS
            while time.monotonic() < until and any(x.writable() for x in list(self._map.values())):
                time.sleep(0.01)
            self._server.task_dispatcher.shutdown(timeout=1)
            self._server.trigger.pull_trigger(self._close_all)  # in the thread that polls them
            self._loop.join()
            if self._map:  # that thread had failed
                self._close_all()

    def _run(self) -> None:
        self._server.run()
        if not self._closed:
            raise NftsyncError("the HTTP server ended, though nobody closed it")

    def _close_all(self) -> None:
        self._server.close()
        for connection in list(self._map.values()):
            connection.handle_close()


class _Draining:
    """An app that can be told to take no more requests."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app
        self._changed = threading.Condition()
        self._working = 0
        self._ended = False

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with self._changed:
            if self._ended:
                start_response("503 Service Unavailable", [("Content-Type", "application/json")])
                return iter([b'{"error":"stopping"}\n'])  # of no known length: waitress closes
            self._working += 1
        with ExitStack() as stack:
            stack.callback(self._answered)
            parts = self._app(environ, start_response)
            return ClosingIterator(parts, stack.pop_all().close)

    def end(self, seconds: float) -> None:
        """Refuse requests from here on, and wait until those in work are answered."""
        with self._changed:
            self._ended = True
            self._changed.wait_for(lambda: not self._working, seconds)

    def _answered(self) -> None:
        with self._changed:
            self._working -= 1
            self._changed.notify()


@contextmanager
def enough_threads() -> Iterator[None]:
    """Say in one line that the system does not let this process start its threads.

    Raises:
        NftsyncError: it does not.
    """
    try:
        yield
    except RuntimeError as error:  # what `threading` raises
        raise NftsyncError(
            f"{error}: this process needs about 100 threads; allow it more (ulimit -u, the pids "
            "limit of its container or service), or more memory"
        ) from error


def _as_descriptors_allow(connections: int) -> int:
    """Raise the limit of open files as far as needed; return how many connections it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed >= wanted:
        return connections
    fewer = min(connections, allowed // 2)
    _log.warning(
        "at most %s clients at once, as this process may open only %s files; raise its limit"
        " (ulimit -n, LimitNOFILE) to %s",
        fewer,
        allowed,
        wanted,
    )
    return fewer


@contextmanager
def stop_signals() -> Iterator[Callable[[], int]]:
    """Catch SIGTERM, SIGHUP and Ctrl-C from here on; for the main thread.

    Yields:
        A function that waits for one of them and returns its number.
    """
    caught: list[int] = []
    # SIGINT too: a shell that starts us in the background makes us ignore that.
    # SIGHUP not where `nohup` has it ignored.
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before: dict[int, Any] = {n: signal.signal(n, lambda n, _: caught.append(n)) for n in numbers}

    def wait() -> int:
        while not caught:  # no wait for a lock: a signal that came just before it would be missed
            time.sleep(0.1)
        # A second one does not cut short what the first began, to the very end of the process.
        before.update({signal.SIGTERM: signal.SIG_IGN, signal.SIGHUP: signal.SIG_IGN})
        return caught[0]

    try:
        yield wait
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wake_main_thread() -> None:
    """Let the main thread's wait of `stop_signals` end."""
    # To that thread alone: any other one would take the signal, and the main thread sleep on.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
