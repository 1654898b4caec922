"""The network between us and the provider: its address, the proxy, and the certificates."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.request import getproxies, proxy_bypass

import httpx

from nftsync.errors import SettingsError
from nftsync.provider.config import ClientConfig
from nftsync.provider.credentials import Auth
from nftsync.provider.rate_limiter import RateLimiter

_T = TypeVar("_T")

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
