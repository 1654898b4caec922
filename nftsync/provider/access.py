"""Address, proxy, certificates and credentials, shared by all clients of a provider.

The provider's document does not show the authentication scheme (section Authentication), so it is
a setting: a bearer token, a command that prints one, or any headers.
"""

from __future__ import annotations

import os
import re
import selectors
import shlex
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import IO, NamedTuple, TypeVar, cast
from urllib.request import getproxies, proxy_bypass

import httpx

from nftsync.errors import SettingsError
from nftsync.provider.config import ClientConfig, environment_without_settings
from nftsync.provider.limits import RateLimiter

_T = TypeVar("_T")

_PROXY_FORM = "is not a proxy URL such as http://proxy.example.com:3128"
#: Limit for the output of a token command, in bytes.
_LONGEST_OUTPUT = 64 * 1024
_COMMAND = "token_command (NFTSYNC_TOKEN_COMMAND)"


class Proxy(NamedTuple):
    """The proxy between nftsync and the provider.

    Attributes:
        for_httpx: the proxy with its password.
        source: where it was configured.
    """

    for_httpx: httpx.Proxy
    source: str

    def __str__(self) -> str:
        """Return the URL without its password, and the source."""
        return f"{str(self.for_httpx.url).rstrip('/')} (from {self.source})"


class Network(NamedTuple):
    """The connection settings of all clients; made once, as loading certificates is slow."""

    base_url: httpx.URL
    proxy: Proxy | None
    tls: ssl.SSLContext


class Access(NamedTuple):
    """The objects that a provider's clients share: rate limiter, credentials and network."""

    limiter: RateLimiter
    auth: Auth
    network: Network


def access_to(config: ClientConfig, *, at_once: int | None = None) -> Access:
    """Return the access that several clients share, with at most `at_once` requests in flight."""
    auth = Auth(config.api_token, token_command=config.token_command, headers=config.headers)
    return Access(RateLimiter(config.rate_limit, at_once=at_once), auth, network_of(config))


def network_of(config: ClientConfig) -> Network:
    """Return the address, the proxy and the TLS context."""
    try:
        base_url = httpx.URL(config.base_url)
        _ = base_url.host  # decodes the host name, which IDNA may refuse
    except (httpx.InvalidURL, ValueError) as error:
        raise SettingsError(f"base_url (NFTSYNC_BASE_URL) cannot be used: {error}") from None
    proxy = _chosen_proxy(base_url, config.proxy, config.proxy_source)
    if "https" not in {base_url.scheme, proxy and proxy.for_httpx.url.scheme}:
        return Network(base_url, proxy, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    tls = _tls_context(config.ca_file, config.client_certificate, config.client_key)
    if proxy is not None and proxy.for_httpx.url.scheme == "https":
        for_httpx = httpx.Proxy(proxy.for_httpx.url, auth=proxy.for_httpx.auth, ssl_context=tls)
        proxy = proxy._replace(for_httpx=for_httpx)
    return Network(base_url, proxy, tls)


def _chosen_proxy(base_url: httpx.URL, configured: str | None, source: str) -> Proxy | None:
    """Return the configured proxy or the environment's; a blank setting means no proxy."""
    url = configured
    if url is None and not proxy_bypass(base_url.netloc.decode("ascii")):
        by_scheme = getproxies()
        scheme = base_url.scheme if by_scheme.get(base_url.scheme) else "all"
        url, source = by_scheme.get(scheme), _variable(f"{scheme}_proxy")
    url = (url or "").strip()
    if not url:
        return None
    try:
        for_httpx = httpx.Proxy(url if "://" in url else f"http://{url}")
        # An unencoded password may continue in the path.
        if for_httpx.url.host and for_httpx.url.raw_path == b"/" and "%" not in for_httpx.url.host:
            httpx.HTTPTransport(verify=False, proxy=for_httpx).close()
            return Proxy(for_httpx, source)
        problem = _PROXY_FORM
    except (ValueError, httpx.InvalidURL):  # their messages show the password
        problem = _PROXY_FORM
    except ImportError:
        problem = "is a SOCKS proxy, which needs another package: pip install 'httpx[socks]'"
    name = "the proxy" if configured is None else "proxy (NFTSYNC_PROXY)"
    raise SettingsError(f"{name} {problem} (from {source})")


def _variable(name: str) -> str:
    """Name the variable, in either case, that gives the proxy."""
    variables = [key for key in sorted(os.environ, reverse=True) if key.lower() == name]
    return f"environment {variables[0]}" if variables else "the system's settings"


def _tls_context(ca_file: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """Trust `ca_file` alone, else `SSL_CERT_FILE` or `SSL_CERT_DIR`, else system and certifi."""
    path = os.environ.get("SSL_CERT_FILE")
    if ca_file or path:
        name = "ca_file (NFTSYNC_CA_FILE)" if ca_file else "SSL_CERT_FILE"
        load = partial(ssl.create_default_context, cafile=ca_file or path)
        context = _loaded(load, f"{name}: {ca_file or path}", "contains no certificate in PEM form")
    elif path := os.environ.get("SSL_CERT_DIR"):
        context = ssl.create_default_context(capath=path)
    else:
        context = httpx.create_ssl_context(trust_env=False)
        context.load_default_certs()
    # SSLKEYLOGFILE would let readers of that file decrypt the token.
    context.keylog_filename = None  # type: ignore[assignment]
    if certificate is not None:
        files = certificate if key is None else f"{certificate} and {key}"
        _loaded(
            partial(context.load_cert_chain, certificate, key, password=""),
            "client_certificate and client_key (NFTSYNC_CLIENT_CERTIFICATE, NFTSYNC_CLIENT_KEY): "
            f"{files}",
            "must contain a certificate in PEM form and its private key, without a password",
        )
    elif key is not None:
        raise SettingsError("client_key (NFTSYNC_CLIENT_KEY) requires client_certificate")
    return context


def _loaded(load: Callable[[], _T], files: str, requirement: str) -> _T:
    try:
        return load()
    except (ssl.SSLError, ValueError):
        problem = requirement
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    raise SettingsError(f"{files} {problem}")


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        problem = str(error)
    raise SettingsError(f"{_COMMAND} is not a valid command line: {problem}")


class _TooMuch(Exception):
    """The command printed too much."""


def _output_of(command: list[str], timeout: float) -> tuple[int, bytes]:
    """Run a command; if it is too slow or prints too much, kill its process group."""
    ends_at = time.monotonic() + timeout
    with subprocess.Popen(  # noqa: S603 - the operator's own command
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment_without_settings(),
        start_new_session=True,  # its own process group, which Ctrl-C does not reach
    ) as process:
        try:
            output = _read_all(process, ends_at)
            process.wait(max(0.0, ends_at - time.monotonic()))
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output


def _read_all(process: subprocess.Popen[bytes], ends_at: float) -> bytes:
    stream = cast("IO[bytes]", process.stdout)
    output = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while len(output) <= _LONGEST_OUTPUT:
            left = ends_at - time.monotonic()
            if left <= 0.0 or not selector.select(left):
                raise subprocess.TimeoutExpired(process.args, left)
            part = os.read(stream.fileno(), _LONGEST_OUTPUT)
            if not part:
                return output
            output += part
    raise _TooMuch


class Auth:
    """The headers of every request, and the renewal of the token after a 401.

    Attributes:
        can_renew: whether a token command is set.
        generation: number of the current token.
    """

    def __init__(
        self,
        token: str | None = None,
        *,
        token_command: str | None = None,
        command_timeout: float = 60.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Store the credentials; the token command runs when needed, within `command_timeout`."""
        self._command = _split(token_command or "")
        self._timeout = command_timeout
        self.can_renew = bool(self._command)
        self._fixed = dict(headers or {})
        self._token = token
        self._lock = threading.Lock()
        self.generation = 0
        self._failures = 0
        self._problem = ""

    def headers(self) -> tuple[dict[str, str], int]:
        """Return the headers and the generation of their token."""
        if self._command and not self.generation:
            self.renew(0)
        # Read before the token: an old token with a new number would be renewed needlessly.
        generation = self.generation
        if self._token is None:
            return self._fixed, generation
        # The token is the more specific setting; providers refuse two such headers.
        others = {k: v for k, v in self._fixed.items() if k.lower() != "authorization"}
        return {**others, "Authorization": f"Bearer {self._token}"}, generation

    def renew(self, generation: int) -> None:
        """Run the token command, once for all threads whose token has this generation."""
        failures = self._failures
        with self._lock:
            if self.generation != generation:
                return
            if self._failures != failures:  # another thread's attempt failed meanwhile
                raise SettingsError(self._problem)
            try:
                self._token = self._run_command()
            except SettingsError as error:
                self._failures += 1
                self._problem = str(error)
                raise
            self.generation += 1

    def _run_command(self) -> str:
        # The output may contain a secret, so no message shows it.
        try:
            code, output = _output_of(self._command, self._timeout)
        except OSError as error:
            problem = f"cannot be run: {error.strerror}"
        except ValueError:
            problem = "cannot be run: it contains a NUL"
        except _TooMuch:
            problem = (
                f"printed more than {_LONGEST_OUTPUT // 1024} KiB: expected one line with the token"
            )
        except subprocess.TimeoutExpired:
            problem = f"took more than {self._timeout:g} s"
        else:
            token = output.decode("ascii", "replace").strip()
            if code:
                problem = f"failed with exit code {code}; run it by hand to see why"
            elif re.fullmatch("[!-~]+", token):
                return token
            else:
                problem = (
                    "printed no valid token: expected one line of printable ASCII without spaces"
                )
        # Raised outside the handlers, so that no chained exception carries the output.
        raise SettingsError(f"{_COMMAND} {problem}")
