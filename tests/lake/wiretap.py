"""A TCP proxy that records all bytes that pass through it."""

from __future__ import annotations

import base64
import socket
import socketserver
import threading
from contextlib import suppress

from tests.kit.servers import ThreadServer, carry


class _Handler(socketserver.BaseRequestHandler):
    server: Wiretap

    def handle(self) -> None:
        here, sent, received = self.request, bytearray(), bytearray()
        self.server.records += [sent, received]
        with suppress(OSError), socket.create_connection(self.server.target) as there:
            back = threading.Thread(target=carry, args=(there, here, received.extend), daemon=True)
            back.start()
            carry(here, there, sent.extend)
            back.join()


class Wiretap(ThreadServer):
    """The proxy.

    Attributes:
        target: the host and port that it connects to.
        address: its own, as Dask writes addresses.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__(_Handler)
        self.target = target
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.records: list[bytearray] = []  # one for each direction of a connection

    def size(self) -> int:
        """Return the number of recorded bytes."""
        return sum(map(len, self.records))

    def count(self, text: str) -> int:
        """Return how often a text passed, in plain or base64."""
        return sum(bytes(r).count(form) for r in self.records for form in forms_of(text))


def forms_of(text: str) -> set[bytes]:
    """Return a text in plain and in base64, wherever it starts in a group of three bytes.

    The first and the last letters of a base64 form are left out where they also depend on the
    bytes around the text.
    """
    plain = text.encode()
    forms = {plain}
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + plain)
        start = (8 * before + 5) // 6
        forms.add(encoded[start : (before + len(plain)) * 8 // 6])
    return forms
