"""Receivers on real ports, with real databases."""

import io
import json
import logging
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from nftsync.provider.webhooks import HEADER, sign
from nftsync.receiver.app import close_app, create_app
from nftsync.serve.log import log_lines
from nftsync.wsgi import HttpServer
from tests.kit.serve_process import SECRET, post, query, webhook


def body(**changed: Any) -> bytes:
    """The body of a good webhook with a new id."""
    return webhook("Wallet", str(uuid.uuid4()), **changed)


def fields(**changed: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body(**changed))
    return found


def raw(content: bytes, *, secret: str = SECRET) -> bytes:
    """A signed request as it goes over the wire."""
    head = f"POST /webhooks HTTP/1.1\r\nHost: receiver\r\n{HEADER}: {sign(secret, content)}\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


class Running(NamedTuple):
    """A running receiver."""

    server: HttpServer
    database: Path
    client: httpx.Client

    def post(self, content: bytes, secret: str = SECRET) -> int:
        return post("/webhooks", content, secret, self.client)

    def webhooks(self, columns: str = "webhook_id, state, deliveries") -> list[Any]:
        return query(self.database, f"SELECT {columns} FROM webhooks ORDER BY webhook_no")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=20)

    def replies(self, requests: bytes) -> bytes:
        """Send requests over one connection; return all bytes until its end."""
        with self.connect() as link:
            link.sendall(requests)
            return link.makefile("rb").read()


@contextmanager
def running(database: Path, **options: Any) -> Iterator[Running]:
    app = create_app(database=database, **{"secrets": [SECRET]} | options)
    try:
        with (
            HttpServer(app) as server,
            httpx.Client(base_url=server.url, trust_env=False, verify=False, timeout=30) as client,
        ):
            yield Running(server, database, client)
    finally:
        close_app(app)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start a receiver of its own, with options of `create_app`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(running(tmp_path / "nftsync.db", **options))


@contextmanager
def logged() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Log as `serve` does; yield a function that returns the lines of the receiver."""
    log, root = io.StringIO(), logging.getLogger()
    level = root.level
    handler = log_lines(logging.DEBUG, log)
    try:
        yield lambda: [
            line
            for line in map(json.loads, log.getvalue().splitlines())
            if line["logger"] == "nftsync.receiver"
        ]
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("receiver") / "nftsync.db") as receiver:
        yield receiver


@pytest.fixture
def receiver(shared: Running) -> Running:
    """A receiver whose inbox is empty."""
    query(shared.database, "DELETE FROM webhooks")
    return shared
