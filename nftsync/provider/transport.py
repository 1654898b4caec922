"""Send one request and receive the complete response in limited time.

httpx speaks HTTP, TLS and to proxies. Its timeouts are for each wait, so a peer that sends a byte
now and then would hold a request up for ever: a thread watches over the deadlines, and shuts the
connection of an attempt that is over its own. Nothing follows a redirect or keeps a cookie.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - else looked for in a thread, maybe without a descriptor
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

from nftsync.errors import NoConnection, ProxyFailed, ReadError, Stopped, UnusableAnswer
from nftsync.provider.access import Network
from nftsync.provider.wire import CutShort
from nftsync.threads import start_thread

#: A connection that was idle for longer is not used again, in seconds.
_LONGEST_IDLE = 30.0
#: Seconds for each of connecting and the TLS handshake. Some servers without TLS leave a handshake
#: unanswered, and whoever mixed up the port should not wait for the whole timeout, even though one
#: handshake that gets lost is tried once more.
_LONGEST_CONNECT = 3.5
_CONNECTED = (".connect_tcp.complete", ".start_tls.complete")
#: What OpenSSL says of a peer that answers a TLS handshake with something else, such as HTTP.
_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"}
#: What OpenSSL says of a certificate whose issuer is unknown.
_UNKNOWN_ISSUER = {18, 19, 20, 21}
#: Of the body of a response that is no success, so much is read to keep the connection.
_REFUSAL_BYTES = 64 * 1024
#: So many threads hold a large answer at once, and so long, in seconds, another one waits.
_MOST_LARGE = 2
_LONGEST_WAIT_FOR_A_PLACE = 10.0
HTTPS_HINT = "; base_url says http: does the server expect https?"


class Response(NamedTuple):
    """A whole response.

    Attributes:
        status: the HTTP status.
        headers: by their names in lower case; the values of a repeated one joined by commas.
        body: decompressed; of a response that is no success, nothing.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class LargeAnswers:
    """Lets few threads of a client hold a large answer at once.

    Else as many wallets as are read at once could each be as large as just one may be; and what is
    decoded takes some times as much memory as the bytes.
    """

    def __init__(self, large_bytes: int) -> None:
        self._large_bytes = large_bytes
        self._places = threading.Semaphore(_MOST_LARGE)
        self._thread = threading.local()

    @property
    def held(self) -> bool:
        """Whether this thread holds one."""
        return getattr(self._thread, "held", False)

    def hold(self, size: int) -> None:
        """Note how many bytes this thread's answer has by now; take a place once it is large.

        Raises:
            ReadError: others hold all places; another try may find one.
        """
        if size > self._large_bytes and not self.held:
            if not self._places.acquire(timeout=_LONGEST_WAIT_FOR_A_PLACE):
                error = ReadError("too many large answers came at once, and this one was not kept")
                error.passing = True
                raise error
            self._thread.held = True

    def release(self) -> None:
        """Note that this thread has handed on its answer."""
        if self.held:
            self._thread.held = False
            self._places.release()


class Transports:
    """Sends requests from any number of threads, over a kept-alive connection for each.

    Attributes:
        answered: set once a response came over any connection.
    """

    def __init__(
        self,
        network: Network,
        timeout: float,
        max_bytes: int,
        large: LargeAnswers,
        stopped: threading.Event,
    ) -> None:
        """Prepare to connect.

        Args:
            network: the proxy and the certificates.
            timeout: seconds for a whole attempt, connecting included.
            max_bytes: the greatest body, decompressed, that is read.
            large: bounds how many large ones are held at once.
            stopped: once it is set, no request is sent.
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
        """Send a request and read the whole response.

        Args:
            request: the request.
            sending: called as the request is about to be sent, and again if it first had to
                connect.

        Raises:
            NoConnection: no whole response came in time.
            CutShort: what came whole ends within its compression.
            ReadError: the body is large, and too many that are come at once.
            UnusableAnswer: the body is too large or cannot be decompressed.
            Stopped: the stop event was set.
            Exception: what ended the thread that watches the deadlines.
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

    def cut(self) -> None:
        """End the attempts under way."""
        for link in list(self._links):
            link.cut(math.inf)

    def close(self) -> None:
        """End the attempts under way, and close all connections."""
        self._closed.set()
        for link in list(self._links):
            link.close()

    def _fail(self, error: Exception) -> None:
        """Send nothing more, and end the attempts under way: nothing watches their deadlines."""
        self._failure = error
        self.cut()

    def _watch(self) -> None:
        wait = 0.0
        while not self._closed.wait(wait):
            now = time.monotonic()
            # What begins from now on is not over before its timeout.
            deadlines = [link.cut(now) for link in list(self._links)]
            wait = min([now + self.timeout, *deadlines]) - now


class _Link:
    """One thread's connection, and the attempt under way on it."""

    def __init__(self, shared: Transports) -> None:
        self._shared = shared
        network = shared.network
        self._proxy = network.proxy
        self._is_plain = network.base_url.scheme == "http"
        # Without what may stand before an @.
        where = f"{network.base_url.scheme}://{network.base_url.netloc.decode('ascii')}"
        self._none = f"no connection to {where}"
        self._connect = partial(
            httpx.HTTPTransport,
            verify=network.tls,
            proxy=network.proxy and network.proxy.made,
            limits=httpx.Limits(max_connections=1, keepalive_expiry=_LONGEST_IDLE),
        )
        self._http = self._connect()
        self._lock = threading.Lock()
        self._deadline = math.inf  # while no attempt is under way
        self._is_cut = False
        self._socket: socket.socket | None = None
        self._in_tunnel = False
        self._unanswered_handshakes = 0
        self._sending: Callable[[], None]
        self._extensions = {
            # All else ends by being cut.
            "timeout": {"connect": min(shared.timeout / 2, _LONGEST_CONNECT)},
            "trace": self._trace,
        }

    def send(self, request: httpx.Request, sending: Callable[[], None]) -> Response:
        request.extensions.update(self._extensions)
        self._sending = sending
        with self._lock:
            self._deadline = time.monotonic() + self._shared.timeout
            self._is_cut = False
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
            # httpcore keeps a tunnel whose TLS failed, and waits for ever until it can be used.
            self._http.close()
            self._http = self._connect()
            raise self._explained(error) from None
        except zlib.error as error:
            raise UnusableAnswer(f"the body cannot be decompressed: {error}") from None
        finally:
            with self._lock:
                self._deadline = math.inf
        if self._is_cut and response.is_success:  # what came may end where it was cut
            raise self._explained(None)
        return Response(response.status_code, _plain(response.headers), body)

    def cut(self, now: float) -> float:
        """End the attempt under way if its deadline is over; else the deadline."""
        with self._lock:
            if self._deadline == math.inf or now < self._deadline:
                return self._deadline
            self._is_cut = True
            self._shut()
            return math.inf

    def close(self) -> None:
        """Close the connection; one in use is closed by the thread that uses it."""
        self.cut(math.inf)
        if self._deadline == math.inf:
            self._http.close()

    def _shut(self) -> None:
        if self._socket is not None:
            # Of the socket, not of the TLS in it, which its own thread may be working with.
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Is told by httpx what it does: get hold of each new socket."""
        if event.endswith(_CONNECTED):
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
                if self._is_cut or self._shared.stopped.is_set():
                    self._shut()
            self._sending()
        elif event.endswith(".connect_tcp.started"):
            self._socket, self._in_tunnel = None, False
        elif event.endswith(".start_tls.started"):
            self._in_tunnel = not event.startswith("connection.")

    def _explained(self, error: Exception | None) -> Exception:
        if self._shared.stopped.is_set():
            return Stopped("stopped")
        if isinstance(error, httpx.ProxyError):
            return ProxyFailed(  # a 4xx, as for a wrong password, comes again
                f"the proxy {self._proxy} refused: {error}", final=str(error)[:1] == "4"
            )
        if isinstance(error, UnicodeError):  # out of the resolver, for a label too long
            return NoConnection(f"{self._none}: that is no host name", connected=False)
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return self._not_connected(error)
        if self._is_cut or error is None:
            return NoConnection(f"no whole answer within {self._shared.timeout:g} s")
        if isinstance(error, httpx.LocalProtocolError):  # whose text may show a secret
            return NoConnection("the connection broke: the request cannot be sent as HTTP")
        hint = HTTPS_HINT if self._is_plain and not self._shared.answered.is_set() else ""
        return NoConnection(f"the connection broke: {error or type(error).__name__}{hint}")

    def _not_connected(self, error: httpx.TransportError) -> NoConnection:
        at_proxy = self._proxy is not None and not self._in_tunnel
        problem, final = None, False
        if self._socket is not None:  # so what failed is the handshake
            problem = _tls_problem(error, "the proxy's URL" if at_proxy else "base_url")
            # Where the server has answered before, a repeat may reach a machine set up well.
            final = problem is not None and not self._shared.answered.is_set()
            if isinstance(error, httpx.ConnectTimeout):
                # A busy server or network may leave one handshake unanswered.
                self._unanswered_handshakes += 1
                final &= self._unanswered_handshakes > 1
        why = problem or str(error) or type(error).__name__
        if at_proxy:
            return ProxyFailed(f"no connection to the proxy {self._proxy}: {why}", final=final)
        return NoConnection(f"{self._none}: {why}", connected=False, final=final)

    def _read(self, response: httpx.Response) -> bytes:
        if not response.is_success:
            with suppress(httpx.TransportError):  # the status says all that matters
                _pass_over(response.iter_raw())
            return b""
        gzip = _gunzip(response.headers.get("content-encoding", ""))
        most = self._shared.max_bytes
        chunks: list[bytes] = []
        size = 0
        for raw in response.iter_raw():
            # Bounded, as 64 KiB may hold 64 MiB.
            left = most - size
            chunk = raw if gzip is None else gzip.unpack(raw, left + 1)
            if len(chunk) > left:
                raise UnusableAnswer(
                    f"the body is larger than {most:,} bytes and was not read further",
                    status=response.status_code,
                )
            size += len(chunk)
            self._shared.large.hold(size)
            chunks.append(chunk)
        if chunks and gzip is not None and not gzip.is_whole and not self._is_cut:
            raise CutShort("the compressed body is cut short")
        return b"".join(chunks)


def _plain(headers: httpx.Headers) -> dict[str, str]:
    """Return headers as a dict, which is looked into several times faster."""
    plain: dict[str, str] = {}
    for raw_name, raw_value in headers.raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("utf-8", "replace")
        plain[name] = f"{plain[name]}, {value}" if name in plain else value
    return plain


class Gunzip:
    """Unpacks gzip: any number of members, one behind the other (RFC 1952, section 2.2)."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)

    @property
    def is_whole(self) -> bool:
        """A member has just ended, so what came may be all."""
        return self._member.eof

    def unpack(self, packed: bytes, most: int) -> bytes:
        """Unpack so many bytes at most; what is behind them is lost.

        Raises:
            zlib.error: it is no gzip.
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
    """What unpacks a body, where that is needed.

    Raises:
        UnusableAnswer: the body is packed in a way that was not asked for, or more than once.
    """
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    codings = [coding for coding in codings if coding not in {"", "identity", "utf-8"}]
    if not codings:
        return None
    if codings not in (["gzip"], ["x-gzip"]):
        raise UnusableAnswer(f"the body has the content encoding {content_encoding[:80]!r}")
    return Gunzip()


def _pass_over(chunks: Iterator[bytes]) -> None:
    """Read on to the next response, unless that is too far off; then the connection is closed."""
    size = 0
    while size <= _REFUSAL_BYTES and (chunk := next(chunks, None)) is not None:
        size += len(chunk)


def _tls_problem(error: Exception, setting: str) -> str | None:
    """Return what is wrong with the peer's TLS, and what to do; None for any other trouble.

    Args:
        error: what connecting ended with.
        setting: what names the peer's address.
    """
    if isinstance(error, httpx.ConnectTimeout):
        return (
            "the TLS handshake timed out; does the server speak TLS at this port? If not, "
            f"use http:// in {setting}, or the right port"
        )
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__context__  # httpcore suppresses it as a cause
    if isinstance(cause, ssl.SSLCertVerificationError):
        advice = f"check {setting}, or ask those who run the server"
        if cause.verify_code in _UNKNOWN_ISSUER:
            advice = "if your own CA issued it, set ca_file"
        return f"certificate verify failed: {cause.verify_message}; {advice}"
    if cause is not None and cause.reason in _NO_TLS:
        return (
            "the server does not speak TLS at this port; "
            f"use http:// in {setting}, or the right port"
        )
    return None
