"""What all clients of a provider share: address, proxy, certificates and credentials.

The scheme of the credentials is not shown (provider's document, section Authentication), so it is a
setting: a bearer token, a command that prints one, or any headers at all.
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
from nftsync.provider.config import ClientConfig, without_our_settings
from nftsync.provider.limits import RateLimiter

_T = TypeVar("_T")

_PROXY_FORM = "is no proxy's URL, such as http://proxy.example.com:3128"
#: What a token command may print, in bytes.
_LONGEST_OUTPUT = 64 * 1024
_COMMAND = "token_command (NFTSYNC_TOKEN_COMMAND)"


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


class Access(NamedTuple):
    """What all clients of one provider share in a process.

    Attributes:
        limiter: how fast all of them together ask.
        auth: the credentials; a token command runs once for all.
        network: the address, the proxy and the certificates.
    """

    limiter: RateLimiter
    auth: Auth
    network: Network


def access_to(config: ClientConfig, *, at_once: int | None = None) -> Access:
    """Make what several clients can share.

    Args:
        config: how to read the provider.
        at_once: requests in flight over all of them, or None for no bound.

    Raises:
        SettingsError: the address, the proxy, a certificate or the credentials cannot be used.
    """
    auth = Auth(config.api_token, token_command=config.token_command, headers=config.headers)
    return Access(RateLimiter(config.rate_limit, at_once=at_once), auth, network_of(config))


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


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        problem = str(error)
    raise SettingsError(f"{_COMMAND} is no command line: {problem}")


class _TooMuch(Exception):
    """The command printed more than any token has."""


def _output_of(command: list[str], timeout: float) -> tuple[int, bytes]:
    """Run a command; kill it, with all that it has started, if it is too slow or prints too much.

    Raises:
        OSError: it cannot be run.
        ValueError: it holds a NUL.
        TimeoutExpired: it took too long.
        _TooMuch: it printed too much.
    """
    ends_at = time.monotonic() + timeout
    with subprocess.Popen(  # noqa: S603 - the operator's own command
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=without_our_settings(),
        start_new_session=True,  # Ctrl-C is for us, not for it; and it is the first of its group
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
    """Return what a command prints until it closes its output."""
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
    """The headers that every request carries, and how to get a new token after a 401.

    Attributes:
        can_renew: whether another token can be had after a 401.
        generation: of the token; the headers stay the same while it does.
    """

    def __init__(
        self,
        token: str | None = None,
        *,
        token_command: str | None = None,
        command_timeout: float = 60.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Remember the credentials; the command runs when the first request needs it.

        Args:
            token: sent as `Authorization: Bearer ...`.
            token_command: a command line whose standard output is the token.
            command_timeout: seconds that it may take.
            headers: sent as they are; settings refuse what HTTP cannot carry.

        Raises:
            SettingsError: the command is no command line.
        """
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
        """The headers, and the generation of the token in them.

        Raises:
            SettingsError: the token command failed.
        """
        if self._command and not self.generation:
            self.renew(0)
        # Before the token: an older one under a newer number would be renewed once too often.
        generation = self.generation
        if self._token is None:
            return self._fixed, generation
        # The token is the more specific setting; two such headers would be refused.
        others = {k: v for k, v in self._fixed.items() if k.lower() != "authorization"}
        return {**others, "Authorization": f"Bearer {self._token}"}, generation

    def renew(self, generation: int) -> None:
        """Run the token command, once for all threads whose token was of that generation.

        Raises:
            SettingsError: it failed, or printed nothing that can be sent.
        """
        failures = self._failures
        with self._lock:
            if self.generation != generation:
                return
            if self._failures != failures:  # while this thread waited for the lock
                raise SettingsError(self._problem)
            try:
                self._token = self._run_command()
            except SettingsError as error:
                self._failures += 1
                self._problem = str(error)
                raise
            self.generation += 1

    def _run_command(self) -> str:
        # What the command prints, on either stream, may hold a secret and is never shown.
        try:
            code, output = _output_of(self._command, self._timeout)
        except OSError as error:
            problem = f"cannot be run: {error.strerror}"
        except ValueError:
            problem = "cannot be run: it holds a NUL"
        except _TooMuch:
            problem = (
                f"printed more than {_LONGEST_OUTPUT // 1024} KiB: expected one line, the token"
            )
        except subprocess.TimeoutExpired:
            problem = f"took more than {self._timeout:g} s"
        else:
            token = output.decode("ascii", "replace").strip()
            if code:
                problem = f"ended with exit code {code}; run it by hand to see why"
            elif re.fullmatch("[!-~]+", token):
                return token
            else:
                problem = "printed no token: expected one line of printable ASCII without spaces"
        # Out here, so that no exception with the output hangs on to it.
        raise SettingsError(f"{_COMMAND} {problem}")
