"""One thread's connection to the provider: a request out, a whole answer back, in bounded time.

Transport-level httpx: for plain requests to one origin it costs two thirds of `httpx.Client`, and
it follows no redirect, keeps no cookies and reads no settings of its own.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import httpcore
import httpx

from nftsync.errors import NoConnection, UnusableAnswer

__all__ = ["Answer", "Connection", "shared_tls"]


class Answer(NamedTuple):
    """A whole answer.

    Attributes:
        status: the HTTP status.
        headers: its headers.
        body: its body, decompressed.
    """

    status: int
    headers: httpx.Headers
    body: bytes


def shared_tls() -> ssl.SSLContext:
    """The TLS context that all connections of a run share; loading the certificates is slow."""
    return httpx.create_ssl_context()


class _Deadline:
    """The moment at which the attempt under way must be over."""

    at = 0.0

    def left(self, timeout: float | None) -> float:
        left = self.at - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("out of time")
        return left if timeout is None else min(left, timeout)


class _TimedStream(httpcore.NetworkStream):
    """A socket whose every wait ends with the attempt, however slowly the bytes drip in."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: _Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._deadline.left(timeout))
        return _TimedStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _TimedBackend(httpcore.SyncBackend):
    def __init__(self, deadline: _Deadline) -> None:
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        stream = super().connect_tcp(
            host, port, self._deadline.left(timeout), local_address, socket_options
        )
        return _TimedStream(stream, self._deadline)


class Connection:
    """A kept-alive connection to one origin, for one thread."""

    def __init__(self, tls: ssl.SSLContext, *, timeout: float, max_bytes: int) -> None:
        """Prepare to connect.

        Args:
            tls: from `shared_tls`.
            timeout: seconds for a whole attempt, connecting included.
            max_bytes: the greatest body, decompressed, that is read.
        """
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._deadline = _Deadline()
        self._transport = httpx.HTTPTransport(verify=tls)
        # httpx offers no other way to a network backend of one's own.
        self._transport._pool = httpcore.ConnectionPool(
            ssl_context=tls,
            max_connections=1,
            max_keepalive_connections=1,
            keepalive_expiry=30.0,
            network_backend=_TimedBackend(self._deadline),
        )

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def send(
        self, method: str, url: httpx.URL, headers: dict[str, str], body: bytes | None = None
    ) -> Answer:
        """Send one request and read the whole answer.

        Raises:
            NoConnection: no whole answer came in time.
            UnusableAnswer: the body is too large or cannot be decompressed.
        """
        self._deadline.at = time.monotonic() + self._timeout
        request = httpx.Request(method, url, headers=headers, content=body)
        try:
            response = self._transport.handle_request(request)
            try:
                return Answer(response.status_code, response.headers, self._read(response))
            finally:
                response.close()
        except httpx.TimeoutException:
            raise NoConnection(f"no whole answer within {self._timeout:g} s") from None
        except httpx.TransportError as error:
            raise NoConnection(_say(error)) from None
        except httpx.DecodingError as error:
            raise UnusableAnswer(f"the body cannot be decompressed: {error}") from None

    def _read(self, response: httpx.Response) -> bytes:
        chunks: list[bytes] = []
        size = 0
        for chunk in response.iter_bytes():
            size += len(chunk)
            if size > self._max_bytes:
                raise UnusableAnswer(
                    f"the body is larger than {self._max_bytes:,} bytes and was not read further",
                    status=response.status_code,
                )
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _say(error: httpx.TransportError) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError):
        return f"no connection: {text}"
    return f"the connection broke: {text}"
