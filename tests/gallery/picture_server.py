"""A provider of pictures on loopback: good ones, missing ones, and what is no picture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from browser.seen_browser import answering
from gallery_frames import RUN

GOOD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><rect width="4" height="4"/></svg>'
)
SCRIPTED = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4" onload="{RUN}">'
    f'<script>{RUN}</script><image href="/from-svg.png" width="4" height="4"/></svg>'
)
PAGE = f"<!doctype html><script>{RUN}</script>"


class Pictures(ThreadingHTTPServer):
    """Attributes:
    seen: path and headers of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.seen: list[tuple[str, dict[str, str]]] = []

    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]


class _Handler(BaseHTTPRequestHandler):
    server: Pictures

    def do_GET(self) -> None:
        self.server.seen.append((self.path, dict(self.headers)))
        name = self.path.rpartition("/")[2]
        kind, body = {
            "page.png": ("text/html", PAGE),
            "scripted.svg": ("image/svg+xml", SCRIPTED),
        }.get(name, ("image/svg+xml", GOOD) if name.startswith("good") else ("text/plain", ""))
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def pictures() -> Iterator[Pictures]:
    server = Pictures()
    with answering(server):
        yield server
