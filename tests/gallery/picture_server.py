"""A provider of pictures on loopback: good ones, missing ones, and what is no picture."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gallery_frames import RUN

GOOD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><rect width="4" height="4"/></svg>'
)
SCRIPTED = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4" onload="{RUN}">'
    f'<script>{RUN}</script><image href="/from-svg.png" width="4" height="4"/></svg>'
)
PAGE = f"<!doctype html><script>{RUN}</script>"


def huge() -> bytes:
    """A picture of 50 MB: 4,096 by 4,096 grey points, uncompressed."""
    side = 4_096
    points = b"\x80" * (3 * side * side)
    file = struct.pack("<2sIHHI", b"BM", 54 + len(points), 0, 0, 54)
    form = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 24, 0, len(points), 2_835, 2_835, 0, 0)
    return file + form + points


class Pictures(ThreadingHTTPServer):
    """Attributes:
    seen: path and headers of each request.
    release: set it and slow pictures come.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.release = threading.Event()

    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]


class _Handler(BaseHTTPRequestHandler):
    server: Pictures

    def do_GET(self) -> None:
        self.server.seen.append((self.path, dict(self.headers)))
        name = self.path.rpartition("/")[2].partition("?")[0]
        if name == "slow.svg":
            self.server.release.wait(60)
        answers = {
            "page.png": ("text/html", PAGE),
            "scripted.svg": ("image/svg+xml", SCRIPTED),
            "slow.svg": ("image/svg+xml", GOOD),
        }
        if name.startswith("good"):
            answers[name] = ("image/svg+xml", GOOD)
        if name == "huge.bmp":
            self._send(200, "image/bmp", huge())
            return
        kind, body = answers.get(name, ("text/plain", "not found"))
        self._send(200 if name in answers else 404, kind, body.encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def pictures() -> Iterator[Pictures]:
    with Pictures() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.release.set()
            server.shutdown()
            thread.join()
