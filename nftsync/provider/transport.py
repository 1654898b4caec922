"""The way to the provider, and on it: a request out, a whole response back, in bounded time.

The way is its address, the proxy in between and the certificates; each thread has a connection.
httpx speaks HTTP, TLS and to proxies. Its timeouts are for each wait, so a peer that sends a byte
now and then would hold a request up for ever: a thread watches over the deadlines, and shuts the
connection of an attempt that is over its own. Nothing follows a redirect or keeps a cookie.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - else looked for in a thread, maybe without a descriptor
import math
import os
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.request import getproxies, proxy_bypass

import httpx

from nftsync.errors import NoConnection, ProxyFailed, SettingsError, Stopped, UnusableAnswer
from nftsync.provider.bodies import Room, gunzip, pass_over
from nftsync.provider.wire import CutShort

if TYPE_CHECKING:
    from nftsync.provider.client import ClientConfig

__all__ = ["Network", "Response", "Transports", "network_of"]

_T = TypeVar("_T")

#: A connection that was idle for longer is not used again, in seconds.
_LONGEST_IDLE = 30.0
_CONNECTED = (".connect_tcp.complete", ".start_tls.complete")
_PROXY_FORM = "is no proxy's URL, such as http://proxy.example.com:3128"


class Proxy(NamedTuple):
    """The proxy that requests go through.

    Attributes:
        made: as httpx takes it, with its password.
        source: where it was configured.
    """

    made: httpx.Proxy
    source: str

    def __str__(self) -> str:
        """Which it is and where it was configured, without its password."""
        return f"{str(self.made.url).rstrip('/')} (from {self.source})"


class Network(NamedTuple):
    """The way to the provider, which all connections share.

    Attributes:
        base_url: its base address.
        proxy: the proxy in between, or None.
        tls: with all certificates, as loading them is slow.
    """

    base_url: httpx.URL
    proxy: Proxy | None
    tls: ssl.SSLContext


def network_of(config: ClientConfig) -> Network:
    """Find the way.

    Raises:
        SettingsError: the address, the proxy or a certificate cannot be used.
    """
    try:  # settings have looked at it already
        base_url = httpx.URL(config.base_url)
        _ = base_url.host  # decoded only now; IDNA refuses some
    except (httpx.InvalidURL, ValueError) as error:
        raise SettingsError(f"base_url (NFTSYNC_BASE_URL) cannot be used: {error}") from None
    proxy = _chosen_proxy(base_url, config.proxy, config.proxy_source)
    if "https" not in {base_url.scheme, proxy and proxy.made.url.scheme}:
        return Network(base_url, proxy, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    tls = _tls_context(config.ca_file, config.client_certificate, config.client_key)
    if proxy is not None and proxy.made.url.scheme == "https":
        made = httpx.Proxy(proxy.made.url, auth=proxy.made.auth, ssl_context=tls)
        proxy = proxy._replace(made=made)
    return Network(base_url, proxy, tls)


def _chosen_proxy(base_url: httpx.URL, configured: str | None, source: str) -> Proxy | None:
    """Find the proxy: the configured one, else the environment's; a blank setting is none."""
    found = configured
    if found is None and not proxy_bypass(base_url.netloc.decode("ascii")):
        known = getproxies()
        kind = base_url.scheme if known.get(base_url.scheme) else "all"
        found, source = known.get(kind), _variable(f"{kind}_proxy")
    found = (found or "").strip()
    if not found:
        return None
    try:
        made = httpx.Proxy(found if "://" in found else f"http://{found}")
        # A path may be the rest of a password that was not percent-encoded.
        if made.url.host and made.url.raw_path == b"/" and "%" not in made.url.host:
            httpx.HTTPTransport(verify=False, proxy=made).close()
            return Proxy(made, source)
        problem = _PROXY_FORM
    except (ValueError, httpx.InvalidURL):  # whose texts show the password
        problem = _PROXY_FORM
    except ImportError:
        problem = "is a SOCKS proxy, which needs one more package: pip install 'httpx[socks]'"
    name = "the proxy" if configured is None else "proxy (NFTSYNC_PROXY)"
    raise SettingsError(f"{name} {problem} (from {source})")


def _variable(name: str) -> str:
    """The variable that the standard library takes a proxy from, which looks at both cases."""
    named = [key for key in sorted(os.environ, reverse=True) if key.lower() == name]
    return f"environment {named[0]}" if named else "the system's settings"


def _tls_context(ca_file: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """Trust `ca_file` alone, else `SSL_CERT_FILE` or `SSL_CERT_DIR`, else system and certifi."""
    named = os.environ.get("SSL_CERT_FILE")
    if ca_file or named:
        name = "ca_file (NFTSYNC_CA_FILE)" if ca_file else "SSL_CERT_FILE"
        load = partial(ssl.create_default_context, cafile=ca_file or named)
        context = _loaded(load, f"{name}: {ca_file or named}", "holds no certificate in PEM form")
    elif named := os.environ.get("SSL_CERT_DIR"):
        context = ssl.create_default_context(capath=named)
    else:
        context = httpx.create_ssl_context(trust_env=False)
        context.load_default_certs()
    # With SSLKEYLOGFILE, who reads that file reads the token too.
    context.keylog_filename = None  # type: ignore[assignment]
    if certificate is not None:
        files = certificate if key is None else f"{certificate} and {key}"
        _loaded(
            partial(context.load_cert_chain, certificate, key, password=""),
            "client_certificate and client_key (NFTSYNC_CLIENT_CERTIFICATE, NFTSYNC_CLIENT_KEY): "
            f"{files}",
            "must hold a certificate in PEM form and its private key, without a password",
        )
    elif key is not None:
        raise SettingsError("client_key (NFTSYNC_CLIENT_KEY) needs client_certificate too")
    return context


def _loaded(load: Callable[[], _T], files: str, must: str) -> _T:
    try:
        return load()
    except (ssl.SSLError, ValueError):
        problem = must
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    raise SettingsError(f"{files} {problem}")


class Response(NamedTuple):
    """A whole response.

    Attributes:
        status: the HTTP status.
        headers: whatever the case of their names; the values of a repeated one joined by commas.
        body: decompressed; of a response that is no success, nothing.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transports:
    """Sends requests from any number of threads, over a kept-alive connection for each."""

    def __init__(
        self,
        network: Network,
        timeout: float,
        max_bytes: int,
        large_bytes: int,
        stopped: threading.Event,
    ) -> None:
        """Prepare to connect.

        Args:
            network: the proxy and the certificates.
            timeout: seconds for a whole attempt, connecting included.
            max_bytes: the greatest body, decompressed, that is read.
            large_bytes: a larger one is one of few that are held at once.
            stopped: once it is set, no request is sent.
        """
        self._timeout = timeout
        self._local = threading.local()
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self._closed = threading.Event()
        self._connect = partial(_Link, network, timeout, max_bytes, Room(large_bytes), stopped)

    def send(self, request: httpx.Request) -> Response:
        """Send a request and read the whole response.

        Raises:
            NoConnection: no whole response came in time.
            CutShort: what came whole ends within its compression.
            NoRoom: the body is large, and others that are hold the room for them.
            UnusableAnswer: the body is too large or cannot be decompressed.
            Stopped: the stop event was set.
        """
        link: _Link | None = getattr(self._local, "link", None)
        if link is None:
            self._local.link = link = self._connect()
            with self._lock:
                first = not self._links
                self._links.append(link)
            if first:
                threading.Thread(target=self._watch, name="nftsync-deadlines", daemon=True).start()
        return link.send(request)

    def let_go(self) -> None:
        """Let go of this thread's last body, which it holds until its next request else."""
        link: _Link | None = getattr(self._local, "link", None)
        if link is not None:
            link.let_go()

    def cut(self) -> None:
        """End the attempts under way."""
        for link in list(self._links):
            link.cut(math.inf)

    def close(self) -> None:
        """End the attempts under way, and close all connections."""
        self._closed.set()
        for link in list(self._links):
            link.close()

    def _watch(self) -> None:
        wait = 0.0
        while not self._closed.wait(wait):
            now = time.monotonic()
            # What begins from now on is not over before its timeout.
            deadlines = [link.cut(now) for link in list(self._links)]
            wait = min([now + self._timeout, *deadlines]) - now


class _Link:
    """One thread's connection, and the attempt under way on it."""

    def __init__(
        self,
        network: Network,
        timeout: float,
        max_bytes: int,
        room: Room,
        stopped: threading.Event,
    ) -> None:
        self._proxy = network.proxy
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
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._room = room
        self._held = 0
        self._stopped = stopped
        self._lock = threading.Lock()
        self._deadline = math.inf  # while no attempt is under way
        self._is_cut = False
        self._socket: socket.socket | None = None
        self._extensions = {
            # Half for each of connecting and the TLS handshake; all else ends by being cut.
            "timeout": {"connect": timeout / 2},
            "trace": self._trace,
        }

    def let_go(self) -> None:
        self._room.give_back(self._held)
        self._held = 0

    def send(self, request: httpx.Request) -> Response:
        self.let_go()
        request.extensions = self._extensions
        with self._lock:
            self._deadline = time.monotonic() + self._timeout
            self._is_cut = False
        try:
            if self._stopped.is_set():
                raise Stopped("stopped")
            response = self._http.handle_request(request)
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
        return Response(response.status_code, response.headers, body)

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
                if self._is_cut or self._stopped.is_set():
                    self._shut()
        elif event.endswith(".connect_tcp.started"):
            self._socket = None

    def _explained(self, error: Exception | None) -> Exception:
        if self._stopped.is_set():
            return Stopped("stopped")
        if isinstance(error, httpx.ProxyError):
            return ProxyFailed(  # a 4xx, as for a wrong password, comes again
                f"the proxy {self._proxy} refused: {error}", final=str(error)[:1] == "4"
            )
        if isinstance(error, UnicodeError):  # out of the resolver, for a label too long
            return NoConnection(f"{self._none}: that is no host name", connected=False)
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            if self._proxy is not None and self._socket is None:
                return ProxyFailed(f"no connection to the proxy {self._proxy}: {_say(error)}")
            return NoConnection(f"{self._none}: {_say(error)}", connected=False)
        if self._is_cut or error is None:
            return NoConnection(f"no whole answer within {self._timeout:g} s")
        if isinstance(error, httpx.LocalProtocolError):  # whose text may show a secret
            return NoConnection("the connection broke: the request cannot be sent as HTTP")
        return NoConnection(f"the connection broke: {_say(error)}")

    def _read(self, response: httpx.Response) -> bytes:
        if not response.is_success:
            with suppress(httpx.TransportError):  # the status says all that matters
                pass_over(response.iter_raw())
            return b""
        gzip = gunzip(response.headers.get("content-encoding", ""))
        chunks: list[bytes] = []
        for raw in response.iter_raw():
            # Bounded, as 64 KiB may hold 64 MiB.
            left = self._max_bytes - self._held
            chunk = raw if gzip is None else gzip.unpack(raw, left + 1)
            if len(chunk) > left:
                raise UnusableAnswer(
                    f"the body is larger than {self._max_bytes:,} bytes and was not read further",
                    status=response.status_code,
                )
            self._held = self._room.take(self._held, len(chunk))
            chunks.append(chunk)
        if chunks and gzip is not None and not gzip.is_whole and not self._is_cut:
            raise CutShort("the compressed body is cut short")
        return b"".join(chunks)


def _say(error: Exception) -> str:
    """What went wrong, and what to do about it where the error shows that."""
    why = str(error) or type(error).__name__
    if "WRONG_VERSION_NUMBER" in why or "record layer failure" in why:
        why += "; does it speak http, and not https? base_url says which"
    if "certificate verify failed" in why:
        why += "; ca_file names a file of whom to trust"
    return why
