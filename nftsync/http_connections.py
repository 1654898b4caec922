"""The connections of our HTTP server, which of them are cut off, and the threads that work."""

from __future__ import annotations

import socket
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import WSGITask

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

__all__ = ["RECEIVED_AT", "Channel", "Connections", "Workers"]

#: The key of a request's environ that tells when all of it was here (monotonic seconds).
RECEIVED_AT = "nftsync.received_at"


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


class Channel(HTTPChannel):  # type: ignore[misc]
    """A client's connection.

    Attributes:
        partial_since: when the request that is coming in began to come (monotonic), or None.
    """

    parser_class = _Request
    task_class = _Task
    partial_since: float | None = None

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


class Connections(TcpWSGIServer):  # type: ignore[misc]
    """The socket that listens, and the rules for the connections that come from it."""

    channel_class = Channel
    draining = False
    _woken = False
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
    ) -> None:
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

    def pull_trigger(self) -> None:
        """Wake the loop, unless someone has since its last turn began."""
        if not self._woken:
            self._woken = True
            super().pull_trigger()

    def begin_turn(self) -> None:
        """The loop is about to look at all connections; what changes from now on must wake it."""
        self._woken = False

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
