"""A forward proxy, and a network with faults, between a client and the provider.

`ForwardProxy` supports CONNECT, absolute-form requests and Basic auth. Only this proxy resolves the
name `provider.test`, to this machine. `Relay` forwards bytes to a port, with faults.
"""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import BaseRequestHandler
from typing import NamedTuple

from tests.kit.servers import ThreadServer, carry

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
            back = threading.Thread(target=carry, args=(far, near), daemon=True)
            back.start()
            carry(near, far)
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


class ForwardProxy(ThreadServer):
    """The proxy.

    Attributes:
        asked: method and target of every request, in order.
        credentials: the required `user:password`, or None.
        refuse_with: a status for all requests, or None.
    """

    def __init__(self, certificate: str | None = None) -> None:
        super().__init__(_Handler)
        self.asked: list[str] = []
        self.credentials: str | None = None
        self.refuse_with: int | None = None
        scheme = "http"
        if certificate is not None:
            scheme = "https"
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.address = f"{scheme}://127.0.0.1:{self.port}"

    def with_credentials(self, credentials: str) -> str:
        """Return its URL with a user and a password."""
        return self.address.replace("://", f"://{credentials}@")


class Fault(NamedTuple):
    """A fault of a connection, after this number of bytes of its answers."""

    kind: str
    after: int


#: Faults before the first byte.
AT_ONCE = ("refused", "deaf")
#: Faults within answers.
WITHIN = (
    *("closed", "reset", "half-closed", "silent", "dripping", "late", "junk"),
    *("flood", "headers without end"),
)


#: A changed byte. Only TLS detects it: without TLS, a digit may become another.
SPOILED = "spoiled"


class _Relayed(BaseRequestHandler):
    server: Relay

    def handle(self) -> None:
        self.server.relay(self.request)


class Relay(ThreadServer):
    """Forwards connections to a port of this machine, with faults.

    Attributes:
        fault: returns the fault of each new connection; None for no fault.
        counts: connections, bytes of answers, and faults of each kind.
    """

    def __init__(self, url: str, fault: Callable[[], Fault | None]) -> None:
        super().__init__(_Relayed)
        scheme, _, self._far = url.rpartition("//")
        self.url = f"{scheme}//127.0.0.1:{self.port}"
        self.fault = fault
        self.counts: Counter[str] = Counter()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()

    def __exit__(self, *_: object) -> None:
        """End all connections."""
        self._closing.set()
        super().__exit__()
        for sock in list(self._sockets):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        while self._sockets:
            time.sleep(0.01)

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] += number

    def relay(self, near: socket.socket) -> None:
        self._sockets.add(near)
        self.count("connections")
        fault = self.fault()
        try:
            if fault is not None and fault.kind in AT_ONCE:
                self.count(fault.kind)
                if fault.kind == "refused":
                    _reset_at_close(near)
                else:
                    _read_on(near)
                return
            host, _, port = self._far.partition(":")
            with socket.create_connection((host, int(port))) as far:
                asking = threading.Thread(target=carry, args=(near, far), daemon=True)
                asking.start()
                with suppress(OSError):
                    self._answers(far, near, fault, asking)
                for end in (near, far):
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
                asking.join(10)
        except OSError:
            pass  # one side has disconnected
        finally:
            near.close()
            self._sockets.discard(near)

    def _answers(
        self, far: socket.socket, near: socket.socket, fault: Fault | None, asking: threading.Thread
    ) -> None:
        passed = 0
        while data := far.recv(65536):
            self.count("bytes", len(data))
            if fault is not None and passed + len(data) >= fault.after:
                self.count(fault.kind)
                near.sendall(data[: fault.after - passed])
                data, fault, kind = data[fault.after - passed :], None, fault.kind
                if not self._strike(kind, near, data, asking):
                    return
            else:
                near.sendall(data)
            passed += len(data)

    def _strike(
        self, kind: str, near: socket.socket, rest: bytes, asking: threading.Thread
    ) -> bool:
        """Inject a fault; return whether the connection continues."""
        if kind == "reset":
            _reset_at_close(near)
        elif kind in {"half-closed", "silent"}:
            if kind == "half-closed":
                near.shutdown(socket.SHUT_WR)
            while asking.is_alive() and not self._closing.wait(0.02):
                pass
        elif kind == "dripping":
            for place in range(len(rest)):
                near.sendall(rest[place : place + 1])
                if self._closing.wait(0.004):
                    return False
        elif kind == "late":
            self._closing.wait(0.1)
            near.sendall(rest)
        elif kind == "spoiled":
            near.sendall(bytes([rest[0] ^ 1]) + rest[1:] if rest else rest)
        elif kind == "junk":
            near.sendall(b"\0junk\r\n" + rest)
        elif kind in {"flood", "headers without end"}:
            junk = (b"x" if kind == "flood" else b"x: y\r\n") * 10_000
            while not self._closing.is_set():
                near.sendall(junk)
                self.count("bytes", len(junk))
        return kind in {"dripping", "late", "junk", "spoiled"}


def _reset_at_close(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def _read_on(sock: socket.socket) -> None:
    with suppress(OSError):
        while sock.recv(65536):
            pass
