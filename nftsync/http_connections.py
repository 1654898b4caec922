"""The connections of our HTTP server, which are cut off, and who works on their requests."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import WSGITask

from nftsync.http_quick import Pending, QuickPath, QuickRequest, Reply

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

__all__ = [
    "RECEIVED_AT",
    "Channel",
    "Connections",
    "Workers",
]

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
