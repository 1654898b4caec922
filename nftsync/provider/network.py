"""Settings of connections to the provider: address, proxy and certificates."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.request import getproxies, proxy_bypass

import httpx

from nftsync.errors import SettingsError
from nftsync.extras import install_command
from nftsync.provider.config import ClientConfig

_T = TypeVar("_T")

#: OpenSSL's reasons for a peer that answers a handshake without TLS, such as with HTTP.
_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"}
#: OpenSSL's codes for a certificate with an unknown issuer.
_UNKNOWN_ISSUER = {18, 19, 20, 21}
#: OpenSSL's codes for breaches of RFC 5280 that only its strict mode refuses, as in Python 3.13.
_STRICT = range(80, 95)


class Proxy(NamedTuple):
    """A proxy, with its password in `for_httpx`, and where it was configured."""

    for_httpx: httpx.Proxy
    source: str

    def __str__(self) -> str:
        return f"{str(self.for_httpx.url).rstrip('/')} (from {self.source})"


class Network(NamedTuple):
    """Connection settings; made once, as loading certificates is slow."""

    base_url: httpx.URL
    proxy: Proxy | None
    tls: ssl.SSLContext


def network_of(config: ClientConfig, tls: ssl.SSLContext | None = None) -> Network:
    """Return the address, the proxy, and the TLS context, by default a new one."""
    try:
        base_url = httpx.URL(config.base_url)
        _ = base_url.host  # decodes the host name, which IDNA may refuse
    except (httpx.InvalidURL, ValueError) as error:
        raise SettingsError(f"base_url (NFTSYNC_BASE_URL) cannot be used: {error}") from None
    proxy = _chosen_proxy(base_url, config.proxy, config.proxy_source)
    if "https" not in {base_url.scheme, proxy and proxy.for_httpx.url.scheme}:
        return Network(base_url, proxy, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    if tls is None:
        tls = _tls_context(config.ca_file, config.client_certificate, config.client_key)
    if proxy is not None and proxy.for_httpx.url.scheme == "https":
        for_httpx = httpx.Proxy(proxy.for_httpx.url, auth=proxy.for_httpx.auth, ssl_context=tls)
        proxy = proxy._replace(for_httpx=for_httpx)
    return Network(base_url, proxy, tls)


def _chosen_proxy(base_url: httpx.URL, configured: str | None, source: str) -> Proxy | None:
    url = configured
    if url is None and not proxy_bypass(base_url.netloc.decode("ascii")):
        by_scheme = getproxies()
        scheme = base_url.scheme if by_scheme.get(base_url.scheme) else "all"
        url, source = by_scheme.get(scheme), _variable(f"{scheme}_proxy")
    url = (url or "").strip()
    if not url:
        return None
    problem = "is not a proxy URL such as http://proxy.example.com:3128"
    try:
        for_httpx = httpx.Proxy(url if "://" in url else f"http://{url}")
        # An unencoded password may continue in the path.
        if for_httpx.url.host and for_httpx.url.raw_path == b"/" and "%" not in for_httpx.url.host:
            httpx.HTTPTransport(verify=False, proxy=for_httpx).close()
            return Proxy(for_httpx, source)
    except (ValueError, httpx.InvalidURL):
        pass  # their messages show the password
    except ImportError:
        problem = f"needs a package for SOCKS: {install_command('httpx[socks]')}"
    name = "the proxy" if configured is None else "proxy (NFTSYNC_PROXY)"
    raise SettingsError(f"{name} {problem} (from {source})")


def _variable(name: str) -> str:
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
        raise SettingsError("client_key (NFTSYNC_CLIENT_KEY) requires client_certificate; set both")
    return context


def _loaded(load: Callable[[], _T], files: str, requirement: str) -> _T:
    try:
        return load()
    except (ssl.SSLError, ValueError):
        raise SettingsError(f"{files} {requirement}") from None
    except OSError as error:
        raise SettingsError(f"{files} cannot be read: {error.strerror}") from None


def tls_problem(error: Exception, setting: str) -> str | None:
    """Explain a failed TLS handshake, or return None."""
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
        elif cause.verify_code in _STRICT:
            advice = (
                "Python 3.13 and later refuse this; ask the CA for certificates that follow RFC "
                "5280, or set ca_file to the server's own certificate, without the CA's"
            )
        return f"certificate verify failed: {cause.verify_message}; {advice}"
    if cause is not None and cause.reason in _NO_TLS:
        return (
            "the server does not speak TLS on this port; "
            f"use http:// in {setting}, or correct the port"
        )
    return None
