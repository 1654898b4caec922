"""One thread's connection to the provider: a request out, a whole answer back, in bounded time.

httpx and httpcore open it; what goes over it is written and read by `http1`, at a fifth of what
they cost for plain requests to one origin. It follows no redirect, keeps no cookies and reads no
settings of its own.
"""

from __future__ import annotations

import ssl
import threading
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import h11
import httpcore

from nftsync.errors import NoConnection, UnusableAnswer
from nftsync.provider.http1 import Response, begin_response, request_bytes
from nftsync.provider.timed_socket import Attempt, TimedBackend
from nftsync.provider.wire import CutShort

__all__ = ["Answer", "Connection", "Origin", "shared_tls"]

#: Of the body of an answer that is no success, so much is read to keep the connection.
_REFUSAL_BYTES = 64 * 1024
#: A connection that was idle for longer is not used again, in seconds.
_LONGEST_IDLE = 30.0
_BREAKS = (httpcore.NetworkError, h11.RemoteProtocolError)


class Origin(NamedTuple):
    """Where requests go.

    Attributes:
        host: the host's name as it is looked up, or its address.
        port: its port.
        secure: over TLS.
    """

    host: str
    port: int
    secure: bool


class Answer(NamedTuple):
    """A whole answer.

    Attributes:
        status: the HTTP status.
        headers: its headers, by their names in lower case.
        body: its body, decompressed; of an answer that is no success, nothing.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


def shared_tls() -> ssl.SSLContext:
    """The TLS context that all connections of a run share; loading the certificates is slow."""
    import httpx  # slow to import; a plain HTTP origin goes without

    context = httpx.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Connection:
    """A kept-alive connection to one origin, for one thread."""

    def __init__(
        self,
        origin: Origin,
        tls: ssl.SSLContext | None,
        *,
        timeout: float,
        max_bytes: int,
        stopped: threading.Event | None = None,
    ) -> None:
        """Prepare to connect.

        Args:
            origin: where requests go.
            tls: from `shared_tls`; None where the origin is not asked over TLS.
            timeout: seconds for a whole attempt, connecting included.
            max_bytes: the greatest body, decompressed, that is read.
            stopped: once it is set, the attempt under way ends in `Stopped`.
        """
        self._origin = origin
        self._tls = tls
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._attempt = Attempt(stopped or threading.Event())
        self._backend = TimedBackend(self._attempt)
        self._stream: httpcore.NetworkStream | None = None
        self._idle_since = 0.0

    def close(self) -> None:
        """Close the connection."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def send(self, method: str, target: bytes, headers: bytes, body: bytes | None = None) -> Answer:
        """Send one request and read the whole answer.

        Args:
            method: the HTTP method.
            target: path and query, already encoded.
            headers: from `http1.header_lines`.
            body: what to send.

        Raises:
            NoConnection: no whole answer came in time.
            CutShort: what came whole ends within its compression.
            UnusableAnswer: the body is too large or cannot be decompressed.
            Stopped: the stop event was set first.
        """
        self._attempt.deadline = time.monotonic() + self._timeout
        reusable = False
        try:
            stream = self._open_stream()
            stream.write(request_bytes(method, target, headers, body))
            response = begin_response(stream, method)
            answer = Answer(response.status, response.headers, self._read(response))
            reusable = response.reusable
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            raise NoConnection(f"no connection: {_say(error)}", connected=False) from None
        except httpcore.TimeoutException:
            raise NoConnection(f"no whole answer within {self._timeout:g} s") from None
        except _BREAKS as error:
            raise NoConnection(f"the connection broke: {_say(error)}") from None
        except zlib.error as error:
            raise UnusableAnswer(f"the body cannot be decompressed: {error}") from None
        finally:
            if reusable:
                self._idle_since = time.monotonic()
            else:
                self.close()
        return answer

    def _open_stream(self) -> httpcore.NetworkStream:
        """The kept connection if it is still good, else a new one."""
        stream = self._stream
        if stream is not None:
            # What is there to be read before we asked is the end of the connection, or no answer.
            idle = time.monotonic() - self._idle_since
            if idle <= _LONGEST_IDLE and not stream.get_extra_info("is_readable"):
                return stream
            self.close()
        self._stream = stream = self._backend.connect_tcp(self._origin.host, self._origin.port)
        if self._tls is not None:
            self._stream = stream = stream.start_tls(self._tls, self._origin.host)
        return stream

    def _read(self, response: Response) -> bytes:
        if not 200 <= response.status < 300:
            return _pass_over(response)
        gzip = _gzip(response.headers.get("content-encoding", ""))
        chunks: list[bytes] = []
        room = self._max_bytes
        for raw in response.body():
            # Bounded, as 64 KiB may hold 64 MiB.
            chunk = raw if gzip is None else gzip.decompress(raw, room + 1)
            room -= len(chunk)
            if room < 0:
                raise UnusableAnswer(
                    f"the body is larger than {self._max_bytes:,} bytes and was not read further",
                    status=response.status,
                )
            chunks.append(chunk)
        if chunks and gzip is not None and not gzip.eof:
            raise CutShort("the compressed body is cut short")
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _pass_over(response: Response) -> bytes:
    """Read on to the next answer, unless that is too far off; then the connection is closed."""
    size = 0
    with suppress(httpcore.TimeoutException, *_BREAKS):  # the status says all that matters
        for raw in response.body():
            size += len(raw)
            if size > _REFUSAL_BYTES:
                break
    return b""


def _gzip(content_encoding: str) -> Any:
    """A decompressor where one is needed.

    Raises:
        UnusableAnswer: the body is packed in a way that was not asked for, or more than once.
    """
    if not content_encoding:
        return None
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    codings = [coding for coding in codings if coding not in {"", "identity", "utf-8"}]
    if not codings:
        return None
    if codings not in (["gzip"], ["x-gzip"]):
        raise UnusableAnswer(f"the body has the content encoding {content_encoding[:80]!r}")
    return zlib.decompressobj(zlib.MAX_WBITS | 16)


def _say(error: Exception) -> str:
    return str(error) or type(error).__name__
