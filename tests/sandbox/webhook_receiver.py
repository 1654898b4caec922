"""A receiver on a real port that writes down what it gets and answers as it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import httpx

from nftsync.sandbox.server import SandboxServer

SECRET = "s3cret-ключ-🔑"
CONFIG = "/api/organization/v1/current-organization/webhook-config"


class Received(NamedTuple):
    """One request: its headers by lower-case name, and its body."""

    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Answers 200 unless `answer`, called with what came and its number from 0, says otherwise."""

    def __init__(self) -> None:
        self.got: list[Received] = []
        self.answer: Callable[[Received, int], int] = lambda _received, _number: 200
        #: Sends the rest of an answer byte by byte, so slowly that it never ends in time.
        self.drips: str = ""
        self.url = ""
        self._came = threading.Condition()

    def wait_for(self, count: int) -> list[Received]:
        """What came, once it is so many or more."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.got) >= count, 30), self.got
            return list(self.got)

    def add(self, received: Received) -> int:
        with self._came:
            self.got.append(received)
            self._came.notify_all()
            return len(self.got) - 1


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A running receiver."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = self.rfile.read(length)
            if len(body) < length:
                return  # the sender was killed in the middle of it
            headers = {name.lower(): value for name, value in self.headers.items()}
            received = Received(self.path, headers, body)
            status = receiver.answer(received, receiver.add(received))
            if receiver.drips:
                self._drip(receiver.drips)
                return
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", receiver.url + "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _drip(self, what: str) -> None:
            head = "HTTP/1.1 200 OK\r\n"
            if what == "body":
                head += "Content-Length: 10000\r\n\r\n"
            try:
                self.wfile.write(head.encode())
                while receiver.drips:
                    self.wfile.write(b"a")
                    self.wfile.flush()
                    time.sleep(0.1)
            except OSError:
                pass
            self.close_connection = True

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *args: object) -> None:
            pass  # the other side was killed

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_port}/webhooks"
    loop = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    loop.start()
    try:
        yield receiver
    finally:
        receiver.drips = ""
        server.shutdown()
        loop.join()
        server.server_close()


def enable(client: httpx.Client, receiver: Receiver, **fields: object) -> None:
    """Let nft webhooks go to a receiver."""
    settings: dict[str, object] = {
        "url": receiver.url,
        "enabled": True,
        "sharedSecret": SECRET,
        "webhookTypes": ["nft"],
    }
    response = client.patch(CONFIG, json=settings | fields)
    assert response.status_code == 200, response.text


def deliveries(client: httpx.Client) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = client.get("/sandbox/deliveries").json()
    return listed


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what is sure to come."""
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


def finished(server: SandboxServer) -> list[dict[str, Any]]:
    """The deliveries once none is pending."""
    wait_until(lambda: all(each["state"] != "pending" for each in server.sandbox.deliveries()))
    return server.sandbox.deliveries()  # type: ignore[return-value]
