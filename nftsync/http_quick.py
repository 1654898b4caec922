"""What an app says to requests that no thread works on.

A request is handed to a thread, which may wait for something as long as it works on it. That costs
two changes of threads for each request, and more where the thread waits. So an app can name one
path whose requests never wait (`QuickPath`): the thread that serves all connections works on them
itself, and where a reply depends on something else, it is sent when that tells (`Pending`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from nftsync.http_connections import Channel

__all__ = ["Later", "Pending", "QuickPath", "QuickRequest", "Reply"]


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
