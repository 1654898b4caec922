"""The sandbox on a real port: in a thread for tests and the demo, or until a signal ends it."""

from __future__ import annotations

import errno
import logging
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Self, TypeAlias

from waitress import create_server, wasyncore

from nftsync.errors import InputError
from nftsync.sandbox.service import create_app
from nftsync.sandbox.world import World

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["SandboxServer", "WorldSource", "serve_forever"]

#: A world, or what builds one once the base URL is known (pictures are served from there).
WorldSource: TypeAlias = World | Callable[[str], World]

_THREADS = 64
_CONNECTIONS = 1000


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

    Attributes:
        url: the base URL, without a slash at its end.
        port: the port it listens on.
        world: what it serves.
        app: the Flask app.

    Raises:
        InputError: the port is taken or may not be used, or a figure is out of its range.
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
    ) -> None:
        listener = _listen(host, port)
        try:
            self.port: int = listener.getsockname()[1]
            self.url = f"http://{host}:{self.port}"
            self.world = world if isinstance(world, World) else world(self.url)
            self.app = create_app(
                self.world,
                latency=latency,
                fail_rate=fail_rate,
                rate_limit=rate_limit,
                seed=seed,
            )
        except BaseException:
            listener.close()
            raise
        # Every worker busy is what a delay is for, and no news.
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        self._channels: dict[int, object] = {}
        self._server = create_server(
            self.app,
            map=self._channels,
            sockets=[listener],
            threads=_THREADS,
            connection_limit=_CONNECTIONS,
            asyncore_use_poll=True,
            ident="nftsync-sandbox",
        )
        self._stopping = threading.Event()
        self._loop = threading.Thread(target=self._run, name="nftsync-sandbox", daemon=True)
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
        """Finish the requests in work, close every connection and free the port."""
        if self._stopping.is_set():
            return
        # The loop goes on meanwhile, as it sends what the workers have written.
        self._server.task_dispatcher.shutdown()
        self._stopping.set()
        self._server.pull_trigger()
        self._loop.join()
        wasyncore.close_all(self._channels)

    def _run(self) -> None:
        while not self._stopping.is_set():
            wasyncore.loop(timeout=1, use_poll=True, map=self._channels, count=1)


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
    # SIGINT too: a shell that starts it in the background makes it ignore that.
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        with suppress(KeyboardInterrupt), start() as server:
            ready(server)
            threading.Event().wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listen(host: str, port: int) -> socket.socket:
    """Bind and listen at once: a port that is only bound can still be taken by someone else."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except (OSError, OverflowError) as error:
        listener.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise InputError(
                f"port {port} on {host} is taken; choose another with --port"
            ) from error
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InputError(f"cannot listen on port {port} of {host}: {reason}") from error
    return listener
