"""HTTP connections to the provider: requests, and responses in time.

httpx limits only single waits, so a thread watches the deadlines and shuts down late connections.
Redirects are not followed, and no cookie is kept.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - a later import in a thread may lack a descriptor
import math
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import Any, NamedTuple

import httpx

from nftsync.errors import NoConnection, ProxyFailed, ReadError, Stopped, UnusableResponse
from nftsync.provider.compression import decompressor
from nftsync.provider.config import HTTPS_HINT, ClientConfig
from nftsync.provider.network import Network, tls_problem
from nftsync.provider.rate_limit import Auth
from nftsync.provider.wire import CutShort
from nftsync.threads import start_thread
from nftsync.version import __version__

#: A path that needs no encoding by httpx.
_PLAIN_PATH = re.compile(r"[/\w-]+", re.ASCII)
#: The longest timeout, in seconds; clock functions fail on far longer ones.
_LONGEST_TIMEOUT = 86_400.0
#: Connections idle for longer are not reused, in seconds.
_LONGEST_IDLE = 30.0
#: Limit for connecting, and again for the TLS handshake, in seconds. Some servers without TLS leave
#: a handshake unanswered; a wrong port should fail before the whole timeout, even with one retry.
_LONGEST_CONNECT = 3.5
_CONNECTED = (".connect_tcp.complete", ".start_tls.complete")
#: The most bytes of an error response that are read to keep the connection.
_REFUSAL_BYTES = 64 * 1024
#: Bytes to keep of an error response.
_SHOWN_BYTES = 500
#: The most large responses in memory at once, and how long others wait for a place, in seconds.
_MOST_LARGE = 2
_LONGEST_WAIT_FOR_A_PLACE = 10.0


class Requests:
    """Maker of the requests to one provider."""

    def __init__(self, network: Network, auth: Auth) -> None:
        self.base_url = str(network.base_url).rstrip("/")
        # Made once, because making them takes longer than the rest of a request.
        self._base = httpx.URL(self.base_url)
        self._base_path = self._base.raw_path.rstrip(b"/")
        self._no_body = httpx.ByteStream(b"")
        self._network = network
        self._auth = auth
        self._headers: tuple[httpx.Headers, int] | None = None

    def make(
        self, method: str, path: str, etag: str | None, body: bytes | None
    ) -> tuple[httpx.Request, int]:
        """Return a request, and the generation of its token."""
        if self._headers is None or self._headers[1] != self._auth.generation:
            self._headers = self._headers_with_token()
        headers, generation = self._headers
        url, extensions = self._base, {"target": self._base_path + path.encode("ascii")}
        if self._network.proxy is not None or not _PLAIN_PATH.fullmatch(path):
            url, extensions = httpx.URL(self.base_url + path), {}
        stream = self._no_body if body is None else httpx.ByteStream(body)
        request = httpx.Request(method, url, headers=headers, stream=stream, extensions=extensions)
        if body is not None:
            request.headers["content-type"] = "application/json"
            request.headers["content-length"] = str(len(body))
        if etag is not None:
            request.headers["if-none-match"] = etag
        return request, generation

    def _headers_with_token(self) -> tuple[httpx.Headers, int]:
        credentials, generation = self._auth.headers()
        host = self._network.base_url.netloc.decode("ascii")
        headers = httpx.Headers({"host": host, "accept": "application/json"})
        headers["user-agent"] = f"nftsync/{__version__}"
        headers.update(credentials)  # a configured header replaces ours
        headers["accept-encoding"] = "gzip"
        return headers, generation


class Response(NamedTuple):
    """A complete response, or the start of an error's body; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class LargeResponses:
    """Bound on large responses in memory, as decoding takes several times their size."""

    def __init__(self, large_bytes: int, timeout: float) -> None:
        self._large_bytes = large_bytes
        self._timeout = min(timeout, _LONGEST_WAIT_FOR_A_PLACE)
        self._places = threading.Semaphore(_MOST_LARGE)
        self._thread = threading.local()

    @property
    def has_place(self) -> bool:
        return getattr(self._thread, "has_place", False)

    def reserve(self, size: int) -> None:
        """Take a place once this thread's response is large; ReadError: none became free."""
        if size > self._large_bytes and not self.has_place:
            if not self._places.acquire(timeout=self._timeout):
                error = ReadError("too many large responses arrived at once; discarded this one")
                error.passing = True
                raise error
            self._thread.has_place = True

    def release(self) -> None:
        if self.has_place:
            self._thread.has_place = False
            self._places.release()


class Transports:
    """Keep-alive connections, one per thread.

    Attributes:
        timeout: limit per attempt, including connecting.
        accepts: whether a connected IP address may get anything; None: all may.
    """

    def __init__(
        self,
        network: Network,
        config: ClientConfig,
        stopped: threading.Event,
        accepts: Callable[[str], bool] | None = None,
    ) -> None:
        """Prepare to connect; once `stopped` is set, no request is sent."""
        self.network = network
        self.accepts = accepts
        self.timeout = min(config.timeout, _LONGEST_TIMEOUT)
        self.max_bytes = config.max_bytes
        self.large = LargeResponses(config.large_bytes, config.timeout)
        self.stopped = stopped
        self.answered = False
        self._local = threading.local()
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self._failure: Exception | None = None
        self._closed = threading.Event()

    def send(
        self, request: httpx.Request, sending: Callable[[], None], *, anew: bool = False
    ) -> Response:
        """Send a request, `anew`: on a new connection, and return the complete response.

        Calls `sending` before the request is sent, and again after a new connection. Raises the
        failure that ended the thread of deadlines, if any.
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
        return link.send(request, sending, anew=anew)

    def abort(self) -> None:
        for link in list(self._links):
            link.abort(math.inf)

    def close(self) -> None:
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

    def send(self, request: httpx.Request, sending: Callable[[], None], *, anew: bool) -> Response:
        if anew:
            self._reconnect()
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
            self._shared.answered = True
            with closing(response):
                body = self._read(response)
        except (httpx.TransportError, UnicodeError) as error:
            # httpcore keeps a tunnel whose TLS failed, and would wait forever for it.
            self._reconnect()
            raise self._explain(error) from None
        except zlib.error as error:
            raise UnusableResponse(f"the body cannot be decompressed: {error}") from None
        finally:
            with self._lock:
                self._deadline = math.inf
        if self._is_aborted and response.is_success:  # the body may be incomplete
            raise self._explain(None)
        return Response(response.status_code, dict(response.headers.items()), body)

    def _reconnect(self) -> None:
        self._http.close()
        self._http = self._connect()

    def abort(self, now: float) -> float:
        """End the attempt in flight if it is late; return the next deadline."""
        with self._lock:
            if self._deadline == math.inf or now < self._deadline:
                return self._deadline
            self._is_aborted = True
            self._shut()
            return math.inf

    def close(self) -> None:
        self.abort(math.inf)
        if self._deadline == math.inf:
            self._http.close()

    def _shut(self) -> None:
        if self._socket is not None:
            # Not its TLS layer, which another thread may be using.
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(_CONNECTED):
            self._check_peer(info["return_value"])
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
                if self._is_aborted or self._shared.stopped.is_set():
                    self._shut()
            self._sending()
        elif event.endswith(".connect_tcp.started"):
            self._socket, self._in_tunnel = None, False
        elif event.endswith(".start_tls.started"):
            self._in_tunnel = not event.startswith("connection.")

    def _check_peer(self, stream: Any) -> None:
        if self._shared.accepts is None:
            return
        with suppress(OSError):  # the peer has reset the connection
            if self._shared.accepts(stream.get_extra_info("server_addr")[0]):
                return
        stream.close()
        raise NoConnection("the host has a private network address", connected=False)

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
        hint = HTTPS_HINT if self._is_plain and not self._shared.answered else ""
        return NoConnection(f"the connection broke: {error or type(error).__name__}{hint}")

    def _not_connected(self, error: httpx.TransportError) -> NoConnection:
        at_proxy = self._proxy is not None and not self._in_tunnel
        problem, final = None, False
        if self._socket is not None:  # so the handshake failed
            problem = tls_problem(error, "the proxy's URL" if at_proxy else "base_url")
            # If the server has answered before, a retry may reach a working machine.
            final = problem is not None and not self._shared.answered
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
            start = bytearray()
            with suppress(httpx.TransportError):  # the status is enough
                _pass_over(response.iter_raw(), start)
            return bytes(start)
        coding = response.headers.get("content-encoding")
        gzip = decompressor(coding) if coding else None
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


def _pass_over(chunks: Iterator[bytes], start: bytearray) -> None:
    """Skip a response, and keep its start; after a long response, the connection closes."""
    size = 0
    while size <= _REFUSAL_BYTES and (chunk := next(chunks, None)) is not None:
        start += chunk[: _SHOWN_BYTES - len(start)]
        size += len(chunk)
