"""Server for a WSGI app, with waitress; it stops without losing a response.

Slow clients occupy a connection but no thread. Against many of them, put a web server in front
(docs/operate/webhooks.md).
"""

from __future__ import annotations

import errno
import logging
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import waitress
from werkzeug.wsgi import ClosingIterator

from nftsync.errors import InputError, NftsyncError
from nftsync.text import visible
from nftsync.threads import start_thread

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


_log = logging.getLogger("nftsync.wsgi")

#: Longest wait for running requests at a stop, in seconds.
_WORK_SECONDS = 10.0
#: Longest wait for clients to receive their responses at a stop, in seconds.
_SENT_SECONDS = 2.0
#: Largest request body to buffer in memory; a larger one goes to a file.
_HELD_IN_MEMORY = 128 * 1024
#: Open files for the database, replay and syncs, in addition to two per connection.
_OTHER_FILES = 200
_FEW_FILES = (
    "at most %s clients at once, because this process may open only %s files; raise its limit"
    " (ulimit -n, LimitNOFILE) to %s"
)
#: In bytes. Python parses no integer over 4,300 digits, so a longer Content-Length would make
#: waitress fail with a traceback in the log.
_MAX_HEADER = 4_096

#: An empty line, or a chunk's size that ends in a bare line feed, which waitress accepts.
_ENDS = re.compile(rb"\r\n(?=(\r\n)|([0-9A-Fa-f]++(?:;[^\r\n]*)?\n))")
#: Lines that any parser could read as a body's length, with their folded lines.
_LENGTHS = re.compile(rb"(?i)\n[\0- ]*(?:content.length|transfer.encoding)[^\n]*(?:\n[ \t][^\n]*)*")
#: A socket that listens on a port in /proc/net/tcp, and an nftsync's command in its cmdline.
_LISTENING = r":%04X \S+ 0A (?:\S+ +){5}(\d+)"
_NFTSYNC = re.compile(r"(?:^|[/\0])nftsync\0([a-z-]+)")
_PLAIN = re.compile(rb"(?i)\n(?:content-length:[ \t]*\d+|transfer-encoding:[ \t]*chunked)[ \t]*\r")


class _CheckedSocket(socket.socket):
    """A socket whose connections refuse a length that can be read in two ways (RFC 9112, 6).

    waitress 3.0.2 accepts such requests, and hides their headers from the app.
    """

    _unchecked = b""  # from the last empty line on, with its end

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        return _CheckedSocket(fileno=connection.detach()), address

    def recv(self, *size: int) -> bytes:
        """Instead of the end of an ambiguous head, return one that waitress refuses."""
        data = super().recv(*size)
        text, start, checked = self._unchecked + data, 0, len(self._unchecked)
        for end in _ENDS.finditer(text):
            # A body before the head does no harm: it can only add lines.
            lengths = _LENGTHS.findall(text, start, end.end())
            if end[2] or lengths[1:] or not all(map(_PLAIN.fullmatch, lengths)):
                return data[: max(0, end.end(end.lastindex or 0) - 1 - checked)] + b"x\n\n\r\n\r\n"
            start = end.end()
        self._unchecked = text[start:][-_MAX_HEADER - 4 :]
        return data


class Listener:
    """A listening port, for a server whose app must know its address beforehand.

    Port 0 takes any free one. `advice`: what to do if the port is taken.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0, advice: str = "") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            plain = socket.create_server((host, port), family=family, backlog=1024)
            self.socket = _CheckedSocket(fileno=plain.detach())
        except (OSError, ValueError, OverflowError) as error:
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                problem = f"port {port} on {host} is taken by {_holder(port)}"
            else:
                reason = getattr(error, "strerror", None) or error
                problem = f"cannot listen on port {port} of {host}: {reason}"
            advice = advice or "choose another with --port"
            raise InputError(f"{problem}; {advice}") from error
        self.port: int = self.socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}"

    def close(self) -> None:
        """Free the port, unless a server owns it."""
        self.socket.close()


def _holder(port: int) -> str:
    """Return the program that listens on a port, as far as /proc shows it."""
    with suppress(OSError):
        tables = "".join(table.read_text() for table in Path("/proc/net").glob("tcp*"))
        sockets = {f"socket:[{inode}]" for inode in re.findall(_LISTENING % port, tables)}
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # another user's process, or one that has ended
                if any(str(file.readlink()) in sockets for file in (process / "fd").iterdir()):
                    command = _NFTSYNC.search((process / "cmdline").read_text("latin-1"))
                    name = f"nftsync {command[1]}" if command else (process / "comm").read_text()
                    return f"{visible(name.strip())} (process {process.name})"
    return "another program, perhaps Dask's dashboard" if port == 8787 else "another program"


class HttpServer(AbstractContextManager["HttpServer"]):
    """Threaded server for a WSGI app; a context manager that stops it.

    Args:
        connections: concurrent clients; reduced, with a warning, if the process may not open twice
            as many files.
        idle_seconds: how long a client may send nothing within a request.
        largest_body: in bytes. A larger one gets 413; a client that is still sending may miss it.
        on_broken: called once, in the server's thread, if that ends unexpectedly.
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
        self._map: dict[int, Any] = {}  # waitress's open sockets
        self._closing = threading.Lock()
        self._closed = False
        with enough_threads():
            self._server = waitress.create_server(
                self._app,
                map=self._map,
                sockets=[listener.socket],
                threads=threads,
                # waitress also counts the port and its wake-up pipe.
                connection_limit=_as_descriptors_allow(connections) + 2,
                channel_timeout=idle_seconds,
                cleanup_interval=max(1, idle_seconds // 4),
                inbuf_overflow=_HELD_IN_MEMORY,
                max_request_body_size=largest_body + 1,
                max_request_header_size=_MAX_HEADER,
                asyncore_use_poll=True,
                clear_untrusted_proxy_headers=False,  # no app reads them
                ident=ident,
            )
            self._loop = start_thread("http", self._run, on_broken)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Refuse new requests, finish running ones, then close all connections."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._app.end(_WORK_SECONDS)
            until = time.monotonic() + _SENT_SECONDS
            while time.monotonic() < until and any(x.writable() for x in list(self._map.values())):
                time.sleep(0.01)
            self._server.task_dispatcher.shutdown(timeout=1)
            self._server.trigger.pull_trigger(self._close_all)  # in the polling thread
            self._loop.join()
            if self._map:  # the polling thread has failed
                self._close_all()

    def _run(self) -> None:
        self._server.run()
        if not self._closed:
            raise NftsyncError("the HTTP server ended unexpectedly")

    def _close_all(self) -> None:
        self._server.close()
        for connection in list(self._map.values()):
            connection.handle_close()


class _Draining:
    def __init__(self, app: WSGIApplication) -> None:
        self._app = app
        self._changed = threading.Condition()
        self._working = 0
        self._ended = False

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with self._changed:
            if self._ended:
                start_response("503 Service Unavailable", [("Content-Type", "application/json")])
                return iter([b'{"error":"stopping"}\n'])  # unknown length: waitress closes
            self._working += 1
        if environ["SERVER_PROTOCOL"] != "HTTP/1.1":  # or another that waitress takes for 1.0
            start_response = _without_length(start_response)
        with ExitStack() as stack:
            stack.callback(self._answered)
            parts = self._app(environ, start_response)
            return ClosingIterator(parts, stack.pop_all().close)

    def end(self, seconds: float) -> None:
        """Refuse new requests, and wait until the running ones are answered."""
        with self._changed:
            self._ended = True
            self._changed.wait_for(lambda: not self._working, seconds)

    def _answered(self) -> None:
        with self._changed:
            self._working -= 1
            self._changed.notify()


def _without_length(start_response: StartResponse) -> StartResponse:
    """Leave the length out, so that waitress closes the connection."""
    return lambda status, headers, *error: start_response(
        status, [(name, value) for name, value in headers if name != "Content-Length"], *error
    )


@contextmanager
def enough_threads() -> Iterator[None]:
    """Raise a one-line NftsyncError if the system allows too few threads."""
    try:
        yield
    except RuntimeError as error:  # from `threading`
        raise NftsyncError(
            f"{error}: this process needs about 100 threads; allow it more (ulimit -u, the pids "
            "limit of its container or service), or more memory"
        ) from error


def _as_descriptors_allow(connections: int) -> int:
    """Raise the limit of open files; return the connections it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        connections = min(connections, allowed // 2)
        _log.warning(_FEW_FILES, connections, allowed, wanted)
    return connections


@contextmanager
def stop_signals() -> Iterator[Callable[[], int]]:
    """Catch SIGTERM and Ctrl-C, and ignore SIGHUP; main thread only.

    Yields a function that waits for one of them and returns its number.
    """
    caught: list[int] = []
    # SIGINT too, because a shell ignores it for background processes.
    numbers = (signal.SIGINT, signal.SIGTERM)
    before: dict[int, Any] = {n: signal.signal(n, lambda n, _: caught.append(n)) for n in numbers}
    # By convention, it means to reload. Not SIG_IGN, which programs inherit.
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: None)

    def wait() -> int:
        while not caught:  # waiting for a lock could miss a signal
            time.sleep(0.1)
        # Ignore further signals until the process ends, so that the stop is not interrupted.
        before.update({signal.SIGTERM: signal.SIG_IGN, signal.SIGHUP: signal.SIG_IGN})
        return caught[0]

    try:
        yield wait
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wake_main_thread() -> None:
    """End the main thread's wait in `stop_signals`."""
    # Only to the main thread: a signal to another one would not end its sleep.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
