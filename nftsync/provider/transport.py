"""Send one request and receive the complete response within a deadline.

httpx limits only single waits, so a peer that sends a byte now and then could delay a request
forever. A thread therefore watches the deadlines and shuts down late connections. Redirects are not
followed, and no cookie is kept.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - a later import in a thread may lack a descriptor
import math
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import httpx

from nftsync.errors import NoConnection, ProxyFailed, ReadError, Stopped, UnusableResponse
from nftsync.provider.access import Network
from nftsync.provider.wire import CutShort
from nftsync.threads import start_thread

#: Connections idle for longer are not reused, in seconds.
_LONGEST_IDLE = 30.0
#: Limit for connecting, and again for the TLS handshake, in seconds. Some servers without TLS leave
#: a handshake unanswered; a wrong port should fail before the whole timeout, even with one retry.
_LONGEST_CONNECT = 3.5
_CONNECTED = (".connect_tcp.complete", ".start_tls.complete")
#: OpenSSL's reasons for a peer that answers a handshake without TLS, such as with HTTP.
_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"}
#: OpenSSL's codes for a certificate with an unknown issuer.
_UNKNOWN_ISSUER = {18, 19, 20, 21}
#: The most bytes of an error response that are read to keep the connection.
_REFUSAL_BYTES = 64 * 1024
#: The most large responses in memory at once, and how long others wait for a place, in seconds.
_MOST_LARGE = 2
_LONGEST_WAIT_FOR_A_PLACE = 10.0
HTTPS_HINT = "; base_url starts with http: does the server expect https?"


class Response(NamedTuple):
    """A complete response: the headers have lower-case names, and an error has no body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class LargeResponses:
    """Bound on the large responses in memory, as decoding takes several times their size."""

    def __init__(self, large_bytes: int) -> None:
        self._large_bytes = large_bytes
        self._places = threading.Semaphore(_MOST_LARGE)
        self._thread = threading.local()

    @property
    def has_place(self) -> bool:
        """Whether this thread has a place."""
        return getattr(self._thread, "has_place", False)

    def reserve(self, size: int) -> None:
        """Take a place once this thread's response is large.

        Raises:
            ReadError: no place became free; a retry may find one.
        """
        if size > self._large_bytes and not self.has_place:
            if not self._places.acquire(timeout=_LONGEST_WAIT_FOR_A_PLACE):
                error = ReadError("too many large responses arrived at once; discarded this one")
                error.passing = True
                raise error
            self._thread.has_place = True

    def release(self) -> None:
        """Free this thread's place, if any."""
        if self.has_place:
            self._thread.has_place = False
            self._places.release()


class Transports:
    """Keep-alive connections, one per thread.

    Attributes:
        answered: set after the first response over any connection.
    """

    def __init__(
        self,
        network: Network,
        timeout: float,
        max_bytes: int,
        large: LargeResponses,
        stopped: threading.Event,
    ) -> None:
        """Prepare to connect.

        Args:
            network: the proxy and the certificates.
            timeout: limit per attempt, including connecting.
            max_bytes: limit per decompressed body.
            large: bounds the large responses in memory.
            stopped: once set, no request is sent.
        """
        self.network = network
        self.timeout = timeout
        self.max_bytes = max_bytes
        self.large = large
        self.stopped = stopped
        self.answered = threading.Event()
        self._local = threading.local()
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self._failure: Exception | None = None
        self._closed = threading.Event()

    def send(self, request: httpx.Request, sending: Callable[[], None]) -> Response:
        """Send a request and return the complete response.

        Calls `sending` before the request is sent, and again after a new connection.

        Raises:
            NoConnection: no complete response came in time.
            ReadError: too many large responses arrived at once.
            UnusableResponse: the body is too large or cannot be decompressed.
            Exception: the failure that ended the deadline thread.
        """
        link: _Link | None = getattr(self._local, "link", None)
        if link is None:
            link = _Link(self)
            with self._lock:
                if not self._links:
                    start_thread("deadlines", self._watch, self._fail)
                self._links.append(link)
            self._local.link = link
        if self._failure is not None:
            raise self._failure
        return link.send(request, sending)

    def abort(self) -> None:
        """End the attempts in flight."""
        for link in list(self._links):
            link.abort(math.inf)

    def close(self) -> None:
        """End the attempts in flight, and close all connections."""
        self._closed.set()
        for link in list(self._links):
            link.close()

    def _fail(self, error: Exception) -> None:
        """Send nothing more, as nothing watches the deadlines."""
        self._failure = error
        self.abort()

    def _watch(self) -> None:
        wait = 0.0
        while not self._closed.wait(wait):
            now = time.monotonic()
            # Later attempts cannot expire before one whole timeout.
            deadlines = [link.abort(now) for link in list(self._links)]
            wait = min([now + self.timeout, *deadlines]) - now


class _Link:
    """One thread's connection."""

    def __init__(self, shared: Transports) -> None:
        self._shared = shared
        network = shared.network
        self._proxy = network.proxy
        self._is_plain = network.base_url.scheme == "http"
        # Without a user name or password.
        address = f"{network.base_url.scheme}://{network.base_url.netloc.decode('ascii')}"
        self._no_connection = f"no connection to {address}"
        self._connect = partial(
            httpx.HTTPTransport,
            verify=network.tls,
            proxy=network.proxy and network.proxy.for_httpx,
            limits=httpx.Limits(max_connections=1, keepalive_expiry=_LONGEST_IDLE),
        )
        self._http = self._connect()
        self._lock = threading.Lock()
        self._deadline = math.inf  # while no attempt is under way
        self._is_aborted = False
        self._socket: socket.socket | None = None
        self._in_tunnel = False
        self._unanswered_handshakes = 0
        self._sending: Callable[[], None]
        self._extensions = {
            # The deadline ends all other waits.
            "timeout": {"connect": min(shared.timeout / 2, _LONGEST_CONNECT)},
            "trace": self._trace,
        }

    def send(self, request: httpx.Request, sending: Callable[[], None]) -> Response:
        request.extensions.update(self._extensions)
        self._sending = sending
        with self._lock:
            self._deadline = time.monotonic() + self._shared.timeout
            self._is_aborted = False
        try:
            if self._shared.stopped.is_set():
                raise Stopped("stopped")
            sending()
            response = self._http.handle_request(request)
            if not self._shared.answered.is_set():
                self._shared.answered.set()
            try:
                body = self._read(response)
            finally:
                response.close()
        except (httpx.TransportError, UnicodeError) as error:
            # httpcore keeps a tunnel whose TLS failed, and would wait forever for it.
            self._http.close()
            self._http = self._connect()
            raise self._explain(error) from None
        except zlib.error as error:
            raise UnusableResponse(f"the body cannot be decompressed: {error}") from None
        finally:
            with self._lock:
                self._deadline = math.inf
        if self._is_aborted and response.is_success:  # the body may be incomplete
            raise self._explain(None)
        return Response(response.status_code, _plain(response.headers), body)

    def abort(self, now: float) -> float:
        """End the attempt in flight if it is late; return the next deadline."""
        with self._lock:
            if self._deadline == math.inf or now < self._deadline:
                return self._deadline
            self._is_aborted = True
            self._shut()
            return math.inf

    def close(self) -> None:
        """Close the connection, or let its thread close it after use."""
        self.abort(math.inf)
        if self._deadline == math.inf:
            self._http.close()

    def _shut(self) -> None:
        if self._socket is not None:
            # Not its TLS layer, which another thread may be using.
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Get each new socket from httpx's trace events."""
        if event.endswith(_CONNECTED):
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
                if self._is_aborted or self._shared.stopped.is_set():
                    self._shut()
            self._sending()
        elif event.endswith(".connect_tcp.started"):
            self._socket, self._in_tunnel = None, False
        elif event.endswith(".start_tls.started"):
            self._in_tunnel = not event.startswith("connection.")

    def _explain(self, error: Exception | None) -> Exception:
        if self._shared.stopped.is_set():
            return Stopped("stopped")
        if isinstance(error, httpx.ProxyError):
            return ProxyFailed(  # a 4xx, such as for a wrong password, would repeat
                f"the proxy {self._proxy} refused: {error}", final=str(error)[:1] == "4"
            )
        if isinstance(error, UnicodeError):  # from the resolver, for a label that is too long
            return NoConnection(f"{self._no_connection}: not a valid host name", connected=False)
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return self._not_connected(error)
        if self._is_aborted or error is None:
            return NoConnection(f"no complete response within {self._shared.timeout:g} s")
        if isinstance(error, httpx.LocalProtocolError):  # its message may show a secret
            return NoConnection("the connection broke: the request cannot be sent as HTTP")
        hint = HTTPS_HINT if self._is_plain and not self._shared.answered.is_set() else ""
        return NoConnection(f"the connection broke: {error or type(error).__name__}{hint}")

    def _not_connected(self, error: httpx.TransportError) -> NoConnection:
        at_proxy = self._proxy is not None and not self._in_tunnel
        problem, final = None, False
        if self._socket is not None:  # so the handshake failed
            problem = _tls_problem(error, "the proxy's URL" if at_proxy else "base_url")
            # If the server has answered before, a retry may reach a working machine.
            final = problem is not None and not self._shared.answered.is_set()
            if isinstance(error, httpx.ConnectTimeout):
                # A busy server or network may leave one handshake unanswered.
                self._unanswered_handshakes += 1
                final &= self._unanswered_handshakes > 1
        reason = problem or str(error) or type(error).__name__
        if at_proxy:
            return ProxyFailed(f"no connection to the proxy {self._proxy}: {reason}", final=final)
        return NoConnection(f"{self._no_connection}: {reason}", connected=False, final=final)

    def _read(self, response: httpx.Response) -> bytes:
        if not response.is_success:
            with suppress(httpx.TransportError):  # the status is enough
                _pass_over(response.iter_raw())
            return b""
        gzip = _gunzip(response.headers.get("content-encoding", ""))
        max_bytes = self._shared.max_bytes
        chunks: list[bytes] = []
        size = 0
        for raw in response.iter_raw():
            # Bounded, because 64 KiB may decompress to 64 MiB.
            left = max_bytes - size
            chunk = raw if gzip is None else gzip.unpack(raw, left + 1)
            if len(chunk) > left:
                raise UnusableResponse(
                    f"the body is larger than {max_bytes:,} bytes; reading stopped",
                    status=response.status_code,
                )
            size += len(chunk)
            self._shared.large.reserve(size)
            chunks.append(chunk)
        if chunks and gzip is not None and not gzip.is_whole and not self._is_aborted:
            raise CutShort("the compressed body is cut short")
        return b"".join(chunks)


def _plain(headers: httpx.Headers) -> dict[str, str]:
    plain: dict[str, str] = {}
    for raw_name, raw_value in headers.raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("utf-8", "replace")
        plain[name] = f"{plain[name]}, {value}" if name in plain else value
    return plain


class Gunzip:
    """Decompressor for gzip with any number of members (RFC 1952, section 2.2)."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)

    @property
    def is_whole(self) -> bool:
        """Whether the data so far ends with a complete member."""
        return self._member.eof

    def unpack(self, packed: bytes, most: int) -> bytes:
        """Decompress up to `most` bytes, and drop the rest.

        Raises:
            zlib.error: the data is not gzip.
        """
        parts: list[bytes] = []
        while packed and most > 0:
            if self._member.eof:
                self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            parts.append(self._member.decompress(packed, most))
            most -= len(parts[-1])
            packed = self._member.unused_data
        return b"".join(parts)


def _gunzip(content_encoding: str) -> Gunzip | None:
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    codings = [coding for coding in codings if coding not in {"", "identity", "utf-8"}]
    if not codings:
        return None
    if codings not in (["gzip"], ["x-gzip"]):
        raise UnusableResponse(
            f"the body has an unusable content encoding {content_encoding[:80]!r}"
        )
    return Gunzip()


def _pass_over(chunks: Iterator[bytes]) -> None:
    """Skip to the next response; if that is too far, the connection closes."""
    size = 0
    while size <= _REFUSAL_BYTES and (chunk := next(chunks, None)) is not None:
        size += len(chunk)


def _tls_problem(error: Exception, setting: str) -> str | None:
    if isinstance(error, httpx.ConnectTimeout):
        return (
            "the TLS handshake timed out; does the server speak TLS on this port? If not, "
            f"use http:// in {setting}, or correct the port"
        )
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__context__  # httpcore suppresses it as a cause
    if isinstance(cause, ssl.SSLCertVerificationError):
        advice = f"check {setting}, or ask the server's operator"
        if cause.verify_code in _UNKNOWN_ISSUER:
            advice = "if your own CA issued it, set ca_file"
        return f"certificate verify failed: {cause.verify_message}; {advice}"
    if cause is not None and cause.reason in _NO_TLS:
        return (
            "the server does not speak TLS on this port; "
            f"use http:// in {setting}, or correct the port"
        )
    return None
