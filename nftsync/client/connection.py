"""One thread's connection to the provider: a request out, a whole answer back, in bounded time.

Transport-level httpx: for plain requests to one origin it costs two thirds of `httpx.Client`, and
it follows no redirect, keeps no cookies and reads no settings of its own.
"""

from __future__ import annotations

import ssl
import threading
import time
import zlib
from contextlib import suppress
from typing import Any, NamedTuple

import httpcore
import httpx

from nftsync.errors import NoConnection, UnusableAnswer
from nftsync.timed_socket import Attempt, TimedBackend
from nftsync.wire import CutShort

__all__ = ["Answer", "Connection", "shared_tls"]

#: Of the body of an answer that is no success, so much is read to keep the connection.
_REFUSAL_BYTES = 64 * 1024


class Answer(NamedTuple):
    """A whole answer.

    Attributes:
        status: the HTTP status.
        headers: its headers.
        body: its body, decompressed; of an answer that is no success, nothing.
    """

    status: int
    headers: httpx.Headers
    body: bytes


def shared_tls() -> ssl.SSLContext:
    """The TLS context that all connections of a run share; loading the certificates is slow."""
    return httpx.create_ssl_context()


class Connection:
    """A kept-alive connection to one origin, for one thread."""

    def __init__(
        self,
        origin: httpx.URL,
        tls: ssl.SSLContext,
        *,
        timeout: float,
        max_bytes: int,
        stopped: threading.Event | None = None,
    ) -> None:
        """Prepare to connect.

        Args:
            origin: where requests go; its path does not count.
            tls: from `shared_tls`.
            timeout: seconds for a whole attempt, connecting included.
            max_bytes: the greatest body, decompressed, that is read.
            stopped: once it is set, the attempt under way ends in `Stopped`.
        """
        self._origin = origin
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._attempt = Attempt(stopped or threading.Event())
        self._transport = httpx.HTTPTransport(verify=tls)
        # httpx offers no other way to a network backend of one's own.
        self._transport._pool = httpcore.ConnectionPool(
            ssl_context=tls,
            max_connections=1,
            max_keepalive_connections=1,
            keepalive_expiry=30.0,
            network_backend=TimedBackend(self._attempt),
        )

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def send(
        self, method: str, target: bytes, headers: dict[str, str], body: bytes | None = None
    ) -> Answer:
        """Send one request and read the whole answer.

        Args:
            method: the HTTP method.
            target: path and query, already encoded.
            headers: beside those that HTTP itself needs.
            body: what to send.

        Raises:
            NoConnection: no whole answer came in time.
            CutShort: what came whole ends within its compression.
            UnusableAnswer: the body is too large or cannot be decompressed.
            Stopped: the stop event was set first.
        """
        self._attempt.deadline = time.monotonic() + self._timeout
        # The target goes as an extension: parsing a URL for each costs a fifth of the request.
        request = httpx.Request(
            method, self._origin, headers=headers, content=body, extensions={"target": target}
        )
        try:
            response = self._transport.handle_request(request)
            try:
                return Answer(response.status_code, response.headers, self._read(response))
            finally:
                response.close()
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NoConnection(_say(error), connected=False) from None
        except httpx.TimeoutException:
            raise NoConnection(f"no whole answer within {self._timeout:g} s") from None
        except httpx.TransportError as error:
            raise NoConnection(_say(error)) from None
        except zlib.error as error:
            raise UnusableAnswer(f"the body cannot be decompressed: {error}") from None

    def _read(self, response: httpx.Response) -> bytes:
        if not response.is_success:
            return _pass_over(response)
        gzip = _gzip(response.headers.get("content-encoding", ""))
        chunks: list[bytes] = []
        room = self._max_bytes
        for raw in response.iter_raw():
            # Bounded, as 64 KiB may hold 64 MiB.
            chunk = raw if gzip is None else gzip.decompress(raw, room + 1)
            room -= len(chunk)
            if room < 0:
                raise UnusableAnswer(
                    f"the body is larger than {self._max_bytes:,} bytes and was not read further",
                    status=response.status_code,
                )
            chunks.append(chunk)
        if chunks and gzip is not None and not gzip.eof:
            raise CutShort("the compressed body is cut short")
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _pass_over(response: httpx.Response) -> bytes:
    """Read on to the next answer, unless that is too far off; then the connection is closed."""
    size = 0
    with suppress(httpx.TransportError):  # the status says all that matters
        for raw in response.iter_raw():
            size += len(raw)
            if size > _REFUSAL_BYTES:
                break
    return b""


def _gzip(content_encoding: str) -> Any:
    """A decompressor where one is needed.

    Raises:
        UnusableAnswer: the body is packed in a way that was not asked for, or more than once.
    """
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    codings = [coding for coding in codings if coding not in {"", "identity", "utf-8"}]
    if not codings:
        return None
    if codings not in (["gzip"], ["x-gzip"]):
        raise UnusableAnswer(f"the body has the content encoding {content_encoding[:80]!r}")
    return zlib.decompressobj(zlib.MAX_WBITS | 16)


def _say(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.LocalProtocolError):
        return "the request cannot be sent as HTTP"  # its text may quote a header's value
    text = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return f"no connection: {text}"
    return f"the connection broke: {text}"
