"""A server in a thread for a block, and the forwarding of bytes between sockets."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self


class ThreadServer(socketserver.ThreadingTCPServer):
    """A server on a port of 127.0.0.1 with a thread for each connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler: type[socketserver.BaseRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.port: int = self.server_address[1]

    def handle_error(self, *_: Any) -> None:
        """Ignore it: the other side may disconnect."""

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


def carry(
    source: socket.socket, target: socket.socket, seen: Callable[[bytes], object] = len
) -> None:
    """Forward bytes until one side ends; then end both."""
    with suppress(OSError):
        while data := source.recv(65536):
            seen(data)
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
