"""A small real forward proxy on loopback: CONNECT, absolute-form requests and Basic auth.

It knows one name that nobody else knows, `provider.test`, and finds it on this machine.
"""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

HOST = "provider.test"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ForwardProxy

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _asked(self) -> bool:
        self.server.asked.append(f"{self.command} {self.path}")
        if self.server.refuse_with is not None:
            self.send_error(self.server.refuse_with)
            return False
        expected = self.server.credentials
        given = self.headers.get("proxy-authorization")
        if expected and given != f"Basic {base64.b64encode(expected.encode()).decode()}":
            self.send_error(407)
            return False
        return True

    def _upstream(self, authority: str) -> tuple[str, int]:
        host, _, port = authority.rpartition(":")
        return ("127.0.0.1" if host == HOST else host), int(port)

    def do_CONNECT(self) -> None:
        if not self._asked():
            return
        self.close_connection = True
        with socket.create_connection(self._upstream(self.path)) as far:
            self.send_response(200)
            self.end_headers()
            near = self.connection
            back = threading.Thread(target=_carry, args=(far, near), daemon=True)
            back.start()
            _carry(near, far)
            back.join(10)

    def do_GET(self) -> None:
        if not self._asked():
            return
        authority, _, path = self.path.removeprefix("http://").partition("/")
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        headers = {k: v for k, v in self.headers.items() if k.lower() != "proxy-authorization"}
        upstream = http.client.HTTPConnection(*self._upstream(authority), timeout=30)
        upstream.request(self.command, f"/{path}", body or None, headers)
        response = upstream.getresponse()
        content = response.read()
        upstream.close()
        self.send_response(response.status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_PATCH(self) -> None:
        self.do_GET()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class ForwardProxy(ThreadingHTTPServer):
    """The proxy.

    Attributes:
        asked: method and target of every request, in their order.
        credentials: `user:password` that it wants, or None.
        refuse_with: a status that it answers everything with, or None.
    """

    daemon_threads = True

    def __init__(self, certificate: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        self.credentials: str | None = None
        self.refuse_with: int | None = None
        scheme = "http"
        if certificate is not None:
            scheme = "https"
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.address = f"{scheme}://127.0.0.1:{self.server_address[1]}"

    def with_credentials(self, credentials: str) -> str:
        """Its URL, with a user and a password."""
        return self.address.replace("://", f"://{credentials}@")

    def handle_error(self, *_: Any) -> None:
        """Whoever breaks off, does."""

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
