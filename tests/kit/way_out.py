"""The only way from the browser to other machines: a proxy that notes what is wanted and refuses.

Playwright does not report what a frame asks for in the moment before it is attached to it; whatever
asks, it cannot pass by here.
"""

from __future__ import annotations

import re
from socketserver import StreamRequestHandler

from tests.kit.servers import ThreadServer

#: Services of its vendor that Chromium contacts by itself: for updates, accounts, forms and, after
#: some minutes, push messages.
_OWN = re.compile(r"[A-Z]+ (http://)?([a-z0-9-]+\.)+google(apis)?\.com[:/]")


class WayOut(ThreadServer):
    """The proxy; `wanted` has the first line of each request but Chromium's own."""

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
