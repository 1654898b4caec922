"""The sandbox on a real port: in a thread for tests and the demo, or until a signal ends it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Self, TypeAlias

from nftsync.sandbox.control import Sandbox
from nftsync.sandbox.service import EXTENSION, create_app
from nftsync.sandbox.world import World
from nftsync.wsgi import HttpServer, Listener, stop_signals

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["SandboxServer", "WorldSource", "serve_forever"]

#: A world, or what builds one once the base URL is known (pictures are served from there).
WorldSource: TypeAlias = World | Callable[[str], World]

_THREADS = 64
_CONNECTIONS = 1000
#: Bytes; above what the app takes, so that the app answers what is a bit too large.
_LARGEST_BODY = 8 * 1024 * 1024


class SandboxServer:
    """A running sandbox; a context manager that stops it on leaving.

    Args:
        world: what it serves, or a function from the base URL to it.
        host: the address to listen on.
        port: the port; 0 takes any free one.
        latency: see `create_app`.
        fail_rate: see `create_app`.
        rate_limit: see `create_app`.
        seed: see `create_app`.
        time_scale: see `create_app`.
        state: see `create_app`.

    Attributes:
        url: the base URL, without a slash at its end.
        port: the port it listens on.
        world: what it serves; edits of it send no webhooks.
        sandbox: all that is behind it; edits here send the webhooks that follow.
        app: the Flask app.

    Raises:
        InputError: the port is taken or may not be used, a figure is out of its range, or the
            state file cannot be used.
        StoreError: the state file cannot be written.
    """

    def __init__(
        self,
        world: WorldSource,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        latency: float = 0.0,
        fail_rate: float = 0.0,
        rate_limit: float | None = None,
        seed: int = 0,
        time_scale: float = 1.0,
        state: str | PathLike[str] | None = None,
    ) -> None:
        listener = Listener(host, port)
        try:
            self.app = create_app(
                world if isinstance(world, World) else partial(world, listener.url),
                latency=latency,
                fail_rate=fail_rate,
                rate_limit=rate_limit,
                seed=seed,
                time_scale=time_scale,
                state=state,
            )
        except BaseException:
            listener.close()
            raise
        self.port = listener.port
        self.url = listener.url
        self.sandbox: Sandbox = self.app.extensions[EXTENSION]
        self.world = self.sandbox.world
        self._server = HttpServer(
            self.app,
            listener,
            threads=_THREADS,
            connections=_CONNECTIONS,
            largest_body=_LARGEST_BODY,
            ident="nftsync-sandbox",
        )
        self.sandbox.start()

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
        """Finish the requests in work, close every connection, free the port, end deliveries."""
        self._server.close()
        self.sandbox.close()


def serve_forever(
    start: Callable[[], SandboxServer], ready: Callable[[SandboxServer], None]
) -> None:
    """Serve until Ctrl-C or SIGTERM, then return; for the main thread.

    Args:
        start: makes the server.
        ready: called once it serves.

    Raises:
        InputError: what `start` raises.
    """
    with stop_signals() as wait, start() as server:
        ready(server)
        wait()
