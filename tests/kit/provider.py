"""A provider on a real port, with scripted answers and faults, for tests and benchmarks.

It speaks HTTP/1.1 over plain sockets, because server libraries do not send faulty answers. It
records every connection and request in their order.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.kit.worlds import PATIENCE

Sender = Callable[["Peer"], bool]
"""Sends an answer to `peer.seen`; True keeps the connection for the next request."""


class Seen(NamedTuple):
    """A received request."""

    number: int
    connection: int
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    at: float


def uuid(number: int, kind: int = 1) -> str:
    return f"{kind:08x}-0000-4000-8000-{number:012x}"


def wallet(number: int) -> str:
    return uuid(number, 0xA)


def token(number: int) -> str:
    return uuid(number, 0xB)


def path_of(number: int) -> str:
    """Return the path of a wallet's balances."""
    return f"/v1/wallets/{wallet(number)}/nft-balances"


def wallets_file(numbers: Iterable[int], name: str = "wallets") -> str:
    """Write the ids of some wallets to a file of the working directory; return its name."""
    Path(name).write_text("\n".join(map(wallet, numbers)))
    return name


def entry(token_id: str, amount: str = "1", **fields: Any) -> dict[str, Any]:
    return {"tokenId": token_id, "amount": amount, "token": {"id": token_id, **fields}}


def balances(*entries: Mapping[str, Any], **beside: Any) -> bytes:
    return json.dumps({"nftTokenBalances": entries, **beside}).encode()


def reply(
    body: bytes = b"", status: int = 200, *, length: int | None = None, **headers: str
) -> Sender:
    """A complete answer; `length` is a false length. `if_x="y"` is the header `If-X: y`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    head = {"content-length": str(len(body) if length is None else length), **named}
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    data = "\r\n".join(lines).encode("latin-1") + body
    return raw(data, then="keep" if length is None else "close")


def raw(*parts: bytes, pause: float = 0.0, then: str = "close") -> Sender:
    """Bytes with pauses between them; then `keep`, `close`, `reset` or `hold` the connection."""

    def send(peer: Peer) -> bool:
        for number, part in enumerate(parts):
            if number and peer.wait(pause):
                return False
            peer.sock.sendall(part)
        return peer.end(then)

    return send


def endless(part: bytes, head: bytes = b"", *, pause: float = 0.0) -> Sender:
    """The same bytes until the client disconnects."""

    def send(peer: Peer) -> bool:
        peer.sock.sendall(head)
        while not peer.wait(pause):
            peer.sock.sendall(part)
        return False

    return send


class CountedAnswer:
    """An answer that takes some time, and the most requests that overlapped."""

    def __init__(self, answer: Sender, seconds: float) -> None:
        self.most_at_once = self._here = 0
        self._answer, self._seconds = answer, seconds
        self._lock = threading.Lock()

    def __call__(self, peer: Peer) -> bool:
        with self._lock:
            self._here += 1
            self.most_at_once = max(self.most_at_once, self._here)
        time.sleep(self._seconds)  # so that concurrent requests overlap
        # Before the answer: its client may send the next request while this thread still waits.
        with self._lock:
            self._here -= 1
        return self._answer(peer)


def silence() -> Sender:
    return raw(then="hold")


def head(*headers: str, status: int = 200) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} X", *headers, "", ""]).encode()


def one_token_each(peer: Peer) -> bool:
    """Answer that each wallet holds the token of its number."""
    return reply(balances(entry(token(peer.number))))(peer)


class Peer:
    """A connection to a client, and its last request."""

    def __init__(self, sock: socket.socket, closing: threading.Event) -> None:
        self.sock = sock
        self.closing = closing
        self.seen: Seen
        self.reset = False

    @property
    def number(self) -> int:
        """Number of the wallet or token in the request's path."""
        return int(self.seen.path.split("/")[3][-12:], 16)

    def wait(self, seconds: float) -> bool:
        """Wait; return True when the provider is closing."""
        return self.closing.wait(seconds) if seconds else self.closing.is_set()

    def end(self, how: str) -> bool:
        if how == "reset":
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.reset = True
        elif how == "hold":
            with contextlib.suppress(OSError):
                while self.sock.recv(65536):
                    pass
        return how == "keep"


class Provider:
    """The provider; paths without a script are answered from `bodies`, or with 404."""

    def __init__(
        self, *, certificate: str | None = None, tls: ssl.SSLContext | None = None, port: int = 0
    ) -> None:
        self.bodies: dict[str, bytes] = {}
        self.seen: list[Seen] = []
        self.connections = 0
        self._scripts: dict[str, tuple[Sender, ...]] = {}
        self._default: tuple[Sender, ...] = ()
        self._sent: dict[str, int] = defaultdict(int)
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._closing = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._tls = tls
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)
        self._listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self.port = self._listener.getsockname()[1]
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            sockets = list(self._sockets)
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def always(self, *answers: Sender) -> None:
        """Answer all other paths with these in turn, and then always with the last."""
        with self._lock:
            self._default = answers
            self._sent[""] = 0

    def on(self, path: str, *answers: Sender) -> None:
        """Answer a path with these in turn, then always with the last; none: without a script."""
        with self._lock:
            self._scripts[path] = answers
            self._sent[path] = 0

    def holds(self, wallet_id: str, *entries: Mapping[str, Any], **beside: Any) -> None:
        self.bodies[f"/v1/wallets/{wallet_id}/nft-balances"] = balances(*entries, **beside)

    def requests(self, path: str | None = None) -> list[Seen]:
        with self._lock:
            return [seen for seen in self.seen if path is None or seen.path == path]

    def attempts(self) -> Counter[str]:
        """Return the number of requests of each path."""
        return Counter(seen.path for seen in self.requests())

    def wait_for(self, count: int) -> None:
        """Wait for this number of requests."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.seen) >= count, PATIENCE)

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._sockets.add(sock)
                self.connections += 1
                number = self.connections
            self._start(self._serve, sock, number)

    def _serve(self, sock: socket.socket, number: int) -> None:
        peer = Peer(sock, self._closing)
        try:
            if self._tls is not None:
                peer.sock = self._tls.wrap_socket(sock, server_side=True)
                with self._lock:
                    self._sockets ^= {sock, peer.sock}
            with peer.sock.makefile("rb") as stream:
                while (seen := self._read(stream, number)) is not None:
                    peer.seen = seen
                    if not self._answer(seen)(peer):
                        break
        except OSError:
            pass  # the client has gone
        finally:
            with self._lock:
                self._sockets -= {sock, peer.sock}
            if not peer.reset:
                with contextlib.suppress(OSError):
                    peer.sock.shutdown(socket.SHUT_RDWR)
            peer.sock.close()

    def _read(self, stream: Any, connection: int) -> Seen | None:
        lines = []
        while (line := stream.readline()) not in {b"\r\n", b""}:
            lines.append(line.decode("latin-1").rstrip("\r\n"))
        if not lines:
            return None
        method, target, _ = lines[0].split(" ")
        headers: dict[str, str] = {}
        for text in lines[1:]:
            name, _, value = text.partition(":")
            assert name.lower() not in headers, "a header was sent twice"
            headers[name.lower()] = value.strip()
        length = int(headers.get("content-length", "0"))
        if len(body := stream.read(length)) < length:
            return None  # the client was killed meanwhile
        path, _, query = target.partition("?")
        with self._arrived:
            seen = Seen(
                len(self.seen), connection, method, path, query, headers, body, time.monotonic()
            )
            self.seen.append(seen)
            self._arrived.notify_all()
        return seen

    def _answer(self, seen: Seen) -> Sender:
        with self._lock:
            key = seen.path if self._scripts.get(seen.path) else ""
            answers = self._scripts[key] if key else self._default
            sent = self._sent[key]
            self._sent[key] += 1
        if answers:
            return answers[min(sent, len(answers) - 1)]
        body = self.bodies.get(seen.path)
        return reply(b"no such object", 404) if body is None else reply(body)
