"""A receiver on a real port, with a real database."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from receiver_webhooks import SECRET, headers

from nftsync.receiver import close_app, create_app
from nftsync.wsgi import HttpServer


class Running(NamedTuple):
    """A running receiver."""

    server: HttpServer
    database: Path
    client: httpx.Client

    def post(self, content: bytes, secret: str = SECRET) -> int:
        return self.client.post(
            "/webhooks", content=content, headers=headers(content, secret)
        ).status_code

    def webhooks(self, columns: str = "webhook_id, state, deliveries") -> list[Any]:
        with closing(sqlite3.connect(self.database)) as connection:
            return connection.execute(
                f"SELECT {columns} FROM webhooks ORDER BY webhook_no"
            ).fetchall()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=20)


@contextmanager
def running(database: Path, limits: dict[str, Any], **options: Any) -> Iterator[Running]:
    app = create_app(database=database, **{"secrets": [SECRET]} | options)
    try:
        with (
            HttpServer(app, **limits) as server,
            httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client,
        ):
            yield Running(server, database, client)
    finally:
        close_app(app)
