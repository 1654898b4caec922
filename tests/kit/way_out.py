"""A proxy that records and refuses all requests of a browser to other machines.

Playwright does not report requests of a frame before it is attached, but they use this proxy.
"""

from __future__ import annotations

import re
from socketserver import StreamRequestHandler

from tests.kit.servers import ThreadServer

#: Services of Chromium's vendor: updates, accounts, forms and push messages.
_OWN = re.compile(r"[A-Z]+ (http://)?([a-z0-9-]+\.)+google(apis)?\.com[:/]")


class WayOut(ThreadServer):
    """The proxy; `wanted` has the first line of each request, without Chromium's own."""

    def __init__(self) -> None:
        self.wanted: list[str] = []
        super().__init__(_Refuse)
        self.url = f"http://127.0.0.1:{self.port}"


class _Refuse(StreamRequestHandler):
    server: WayOut

    def handle(self) -> None:
        line = self.rfile.readline(10_000).decode("latin-1").strip()
        if line and not _OWN.match(line):
            self.server.wanted.append(line)
        self.wfile.write(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
