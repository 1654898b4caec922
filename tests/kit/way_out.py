"""The only way from the browser to other machines: a proxy that notes what is wanted and refuses.

Playwright does not report what a frame asks for in the moment before it is attached to it; whatever
asks, it cannot pass by here.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import StreamRequestHandler, ThreadingTCPServer

#: What Chromium asks of its own accord: for updates, accounts, and how to fill a form.
_OWN = re.compile(
    r"[A-Z]+ (http://)?(update\.googleapis|accounts\.google|content-autofill\.googleapis)\.com[:/]"
)


class WayOut(ThreadingTCPServer):
    """The proxy; `wanted` has the first line of each request but Chromium's own."""

    daemon_threads = True

    def __init__(self) -> None:
        self.wanted: list[str] = []
        super().__init__(("127.0.0.1", 0), _Refuse)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Refuse(StreamRequestHandler):
    server: WayOut

    def handle(self) -> None:
        line = self.rfile.readline(10_000).decode("latin-1").strip()
        if line and not _OWN.match(line):
            self.server.wanted.append(line)
        self.wfile.write(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@contextmanager
def way_out() -> Iterator[WayOut]:
    """The proxy, for the length of a block."""
    with WayOut() as proxy:
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        yield proxy
        proxy.shutdown()
        thread.join()
