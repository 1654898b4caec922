"""A receiver on a real port that records requests and gives scripted answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from nftsync.provider.webhooks import sign
from nftsync.sandbox.server import SandboxServer
from tests.kit.servers import ThreadServer
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE

SECRET = "s3cret-ключ-🔑"
CONFIG = "/api/organization/v1/current-organization/webhook-config"
#: An unknown id.
UNKNOWN = "99999999-9999-4999-8999-999999999999"


class Received(NamedTuple):
    """A request: headers by lower-case name, and the body."""

    path: str
    headers: dict[str, str]
    body: bytes

    def is_signed_with(self, secret: str) -> bool:
        return self.headers["x-service-webhook-hmac"] == sign(secret, self.body)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Receiver

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:
            return  # the sender was killed meanwhile
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(self.path, headers, body)
        status = self.server.answer(received, self.server.add(received))
        if self.server.drips:
            self._drip()
            return
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", self.server.url + "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _drip(self) -> None:
        head = b"HTTP/1.1 200 OK\r\n"
        if self.server.drips == "body":
            head += b"Content-Length: 10000\r\n\r\n"
        self.wfile.write(head)
        while self.server.drips:
            self.wfile.write(b"a")
            time.sleep(0.1)
        self.close_connection = True

    def log_message(self, *args: object) -> None:
        pass


class Receiver(ThreadServer):
    """A receiver; `answer` returns the status of a request and its number from 0."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.got: list[Received] = []
        self.answer: Callable[[Received, int], int] = lambda _received, _number: 200
        #: "head" or "body": sends the rest of it byte by byte without end.
        self.drips = ""
        self.url = f"http://127.0.0.1:{self.port}/webhooks"
        self._came = threading.Condition()

    def wait_for(self, count: int) -> list[Received]:
        """Wait for this number of requests; return all."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.got) >= count, PATIENCE), self.got
            return list(self.got)

    def add(self, received: Received) -> int:
        with self._came:
            self.got.append(received)
            self._came.notify_all()
            return len(self.got) - 1

    def __exit__(self, *_: object) -> None:
        self.drips = ""
        super().__exit__()


def enable(server: SandboxServer, receiver: Receiver, **fields: object) -> None:
    """Let the sandbox send nft webhooks to a receiver."""
    config = {"url": receiver.url, "enabled": True, "sharedSecret": SECRET, "webhookTypes": ["nft"]}
    server.sandbox.configure(json.dumps(config | fields).encode())


def finished(server: SandboxServer) -> list[dict[str, Any]]:
    """Wait until no delivery is pending; return all."""
    wait_until(lambda: all(each["state"] != "pending" for each in server.sandbox.deliveries()))
    return server.sandbox.deliveries()
