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
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import WSGITask

from nftsync.errors import InputError

if TYPE_CHECKING:
    from types import TracebackType

    from _typeshed.wsgi import WSGIApplication


__all__ = [
    "RECEIVED_AT",
    "Channel",
    "Connections",
    "HttpServer",
    "Later",
    "Listener",
    "Pending",
    "QuickPath",
    "QuickRequest",
    "Reply",
    "Workers",
    "stop_signals",
    "wait_for_signal",
]


class Reply(NamedTuple):
    """A whole reply.

    Attributes:
        status: the status line without the protocol ("200 OK").
        headers: names and values; `Content-Length` is the server's to add.
        body: the bytes.
    """

    status: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class QuickRequest(NamedTuple):
    """A request to a quick path.

    Attributes:
        body: all of it.
        headers: by name, in capitals with underscores, as in a WSGI environ without its `HTTP_`;
            a header that came twice is joined with a comma.
        remote: the client's address.
        received_at: when all of it was here (monotonic seconds).
    """

    body: bytes
    headers: Mapping[str, str]
    remote: str
    received_at: float


class Pending:
    """A request whose reply comes later: when that is known, or at a deadline.

    Attributes:
        channel: the client's connection.
        deadline: when the reply is sent at the latest (monotonic seconds).
        reply: makes the reply; called once, in the server's own thread.
    """

    __slots__ = ("channel", "deadline", "reply")

    def __init__(self, channel: Channel, deadline: float, reply: Callable[[], Reply]) -> None:
        self.channel = channel
        self.deadline = deadline
        self.reply = reply

    def done(self) -> None:
        """The reply can be made now; for any thread. It is sent when somebody calls `wake`."""
        self.channel.server.finished.append(self)

    @property
    def wake(self) -> Callable[[], None]:
        """What has the server send all replies that are done; for any thread."""
        wake: Callable[[], None] = self.channel.server.pull_trigger
        return wake


#: Given the deadline and what makes the reply (see `Pending`); where it is called, the app is to
#: return None.
Later: TypeAlias = Callable[[float, Callable[[], Reply]], Pending]


def _nothing() -> None:
    pass


class QuickPath(NamedTuple):
    """Requests that need no thread, as the app never waits while it works on them.

    Larger ones than a quick request may be, and other methods, are the WSGI app's as ever.

    Attributes:
        method: the method, in capitals.
        path: the path.
        answer: gives the reply, or None if it has called what it is given to reply later.
        before_wait: called in the same thread when all requests that are here were answered or put
            off, and it is about to wait for more; must be quick and not fail.
    """

    method: str
    path: str
    answer: Callable[[QuickRequest, Later], Reply | None]
    before_wait: Callable[[], None] = _nothing


#: The key of a request's environ that tells when all of it was here (monotonic seconds).
RECEIVED_AT = "nftsync.received_at"

#: Bytes of a body, and of replies that were not taken yet, with which a request is still quick.
_QUICK_BYTES = 64 * 1024
#: How often the loop looks for replies that are overdue.
_LATE_SECONDS = 0.05


class Workers:
    """The threads that work on requests; what waitress calls a task dispatcher.

    Each request handed over costs one wake-up here, and several in waitress's own. All threads
    start at once: to start one takes long while others want to run.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._queue: SimpleQueue[Channel | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"nftsync-http-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def add_task(self, channel: Channel) -> None:
        """Have a thread work on the first request of a connection."""
        self._queue.put(channel)

    def end(self) -> None:
        """End the threads that have nothing to do; called when no request is left, or too late."""
        for _ in self._threads:
            self._queue.put(None)
        until = time.monotonic() + 1.0
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        while (channel := self._queue.get()) is not None:
            channel.service()


class _Request(HTTPRequestParser):  # type: ignore[misc]  # waitress has no types
    """A request that comes in."""

    received_at = 0.0

    def received(self, data: bytes) -> int:
        taken: int = super().received(data)
        if self.completed:
            self.received_at = time.monotonic()
        return taken


class _Task(WSGITask):  # type: ignore[misc]
    """Work on a request."""

    def get_environment(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environment()
        environ[RECEIVED_AT] = self.request.received_at
        return environ

    def execute(self) -> None:
        reply = self.channel.reply
        if reply is None:
            super().execute()
            return
        self.channel.reply = None
        if isinstance(reply, Exception):
            raise reply  # it is logged, and answered 500, where the app's own are
        self.status = reply.status
        self.response_headers.extend(reply.headers)
        self.content_length = len(reply.body)
        self.complete = True
        self.write(reply.body)

    def set_close_on_finish(self) -> None:
        """End the connection after this reply, though not because a 304 or 204 has no length."""
        asked = self.request.headers.get("CONNECTION", "").lower() == "close"
        if self.has_body or asked or self.version == "1.0":
            super().set_close_on_finish()


class Channel(HTTPChannel):  # type: ignore[misc]
    """A client's connection.

    Attributes:
        partial_since: when the request that is coming in began to come (monotonic), or None.
    """

    parser_class = _Request
    task_class = _Task
    partial_since: float | None = None
    #: What the app said to a quick request, until it is written.
    reply: Reply | Exception | None = None

    def handle_read(self) -> None:
        """Read, and begin with what needs no thread."""
        super().handle_read()
        self.server.begin_quick()

    def received(self, data: bytes) -> bool:
        """Take in data, and note whether it ends inside a request."""
        before = self.request
        taken: bool = super().received(data)
        if self.request is None:
            self.partial_since = None
        elif self.request is not before:
            self.partial_since = time.monotonic()
        return taken

    def service(self) -> None:
        """Work on one request."""
        if self.server.draining and len(self.requests) == 1 and self.request is None:
            self.requests[0].headers["CONNECTION"] = "close"
        super().service()
        if self.partial_since is not None:
            # Nothing is read while a request is worked on, so that time is not the client's.
            self.partial_since = time.monotonic()

    def is_quick(self, path: QuickPath) -> bool:
        """Whether the first request needs no thread, neither for the app nor to be answered."""
        request = self.requests[0]
        return (
            request.error is None
            and request.path == path.path
            and request.command == path.method
            and len(request.body_rcv or b"") <= _QUICK_BYTES
            and self.total_outbufs_len <= _QUICK_BYTES
        )

    def begin_quick(self, path: QuickPath) -> None:
        """Have the app answer the first request, now or later; in the loop's thread."""
        request = self.requests[0]
        body = b"" if request.body_rcv is None else request.body_rcv.getbuf().get()
        quick = QuickRequest(body, request.headers, self.addr[0], request.received_at)
        self._answer_by(lambda: path.answer(quick, self._later))

    def finish_quick(self, pending: Pending) -> None:
        """Send the reply that was waited for; in the loop's thread."""
        self._answer_by(pending.reply)

    def _answer_by(self, make: Callable[[], Reply | None]) -> None:
        try:
            self.reply = make()
        except Exception as error:  # noqa: BLE001 - of any app; raised again where those are
            self.reply = error
            # This is the reply, whatever the app had put off before it failed.
            self.server.pending -= {each for each in self.server.pending if each.channel is self}
        if self.reply is not None:
            self.service()
            if self.connected:
                wasyncore.write(self)

    def _later(self, deadline: float, reply: Callable[[], Reply]) -> Pending:
        pending = Pending(self, deadline, reply)
        self.server.pending.add(pending)
        return pending


class Connections(TcpWSGIServer):  # type: ignore[misc]
    """The socket that listens, and the rules for the connections that come from it.

    Attributes:
        draining: whether the server is being stopped.
        pending: quick requests that wait for their replies; the loop's thread's own.
        finished: those whose replies are known.
    """

    channel_class = Channel
    draining = False
    _woken = False
    _look_for_late_at = 0.0
    request_seconds = 10.0
    idle_seconds = 60.0

    def __init__(
        self,
        app: WSGIApplication,
        channels: dict[int, Any],
        listener: socket.socket,
        threads: Workers,
        adjustments: Adjustments,
        connections: int,
        quick: QuickPath | None,
    ) -> None:
        self._quick = quick
        self._quick_channels: deque[Channel] = deque()
        self.pending: set[Pending] = set()
        self.finished: deque[Pending] = deque()
        self._waking = threading.Lock()
        self._ended = False
        super().__init__(
            app,
            channels,
            _sock=listener,
            dispatcher=threads,
            adj=adjustments,
            sockinfo=(listener.family, listener.type, listener.proto, listener.getsockname()),
            bind_socket=False,
        )
        self._connections = connections

    def handle_accept(self) -> None:
        """Take a connection, and end another where there are too many."""
        super().handle_accept()
        if len(self.active_channels) > self._connections:
            quiet = [channel for channel in self._channels() if not channel.requests]
            if quiet:
                min(quiet, key=_who_goes_first).handle_close()

    def add_task(self, channel: Channel) -> None:
        """Have the first request of a connection worked on."""
        if self._quick is not None and channel.is_quick(self._quick):
            self._quick_channels.append(channel)
        else:
            super().add_task(channel)

    def pull_trigger(self) -> None:
        """Wake the loop, unless it is awake or someone has woken it; for any thread."""
        if not self._woken:
            self._woken = True
            with self._waking:
                if not self._ended:
                    super().pull_trigger()

    def end(self) -> None:
        """No more turns will come: the pipe that wakes the loop is closed, its number reused."""
        with self._waking:
            self._ended = True

    def work(self) -> None:
        """Do what needs no thread; called by the loop in each turn."""
        self._woken = True  # what comes up meanwhile is seen here, or before the loop waits
        self._finish_late()
        while self.finished or self._quick_channels:
            while self.finished:
                self._finish(self.finished.popleft())
            self.begin_quick()

    def begin_quick(self) -> None:
        """Begin with the quick requests that are here; in the loop's thread."""
        while self._quick_channels and self._quick is not None:
            self._quick_channels.popleft().begin_quick(self._quick)

    def begin_wait(self, seconds: float) -> float:
        """The loop is about to look at all connections; what changes from now on must wake it.

        Args:
            seconds: how long it would wait.

        Returns:
            How long it may.
        """
        if self._quick is not None:
            self._quick.before_wait()
        self._woken = False
        if self.finished or self._quick_channels:
            return 0.0
        return min(seconds, _LATE_SECONDS) if self.pending else seconds

    def _finish(self, pending: Pending) -> None:
        if pending in self.pending:
            self.pending.remove(pending)
            pending.channel.finish_quick(pending)

    def _finish_late(self) -> None:
        moment = time.monotonic()
        if self.pending and moment >= self._look_for_late_at:
            self._look_for_late_at = moment + _LATE_SECONDS
            for pending in [each for each in self.pending if each.deadline <= moment]:
                self._finish(pending)

    def maintenance(self, now: float) -> None:
        """End connections whose request drips in, and idle ones; called each second."""
        begun_before = time.monotonic() - self.request_seconds
        active_before = now - self.idle_seconds
        for channel in self._channels():
            if channel.requests:
                continue
            since = channel.partial_since
            idle = since is None and channel.last_activity < active_before
            if idle or (since is not None and since < begun_before):
                channel.handle_close()

    def accept_waiting(self) -> None:
        """Take the connections that clients have made by now."""
        self.socket.setblocking(False)
        before = -1
        while before != len(self.active_channels):
            before = len(self.active_channels)
            self.handle_accept()

    def stop_listening(self) -> None:
        """Free the port; the connections stay."""
        wasyncore.dispatcher.close(self)

    def close_finished(self, *, late: bool) -> bool:
        """End the connections that owe no reply, and tell whether any is left.

        Args:
            late: also those whose request is still coming in, or whose reply is not taken.
        """
        for channel in self._channels():
            busy = channel.request is not None or channel.total_outbufs_len
            if not channel.requests and (late or not busy):
                channel.handle_close()
        return bool(self.active_channels)

    def _channels(self) -> list[Channel]:
        return list(self.active_channels.values())


def _who_goes_first(channel: Channel) -> tuple[bool, float]:
    since = channel.partial_since
    return (since is None, channel.last_activity if since is None else since)


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
