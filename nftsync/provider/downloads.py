"""Downloads of images, as data URLs that pages show without a request.

The creator of an NFT chooses the image's server. Downloads are therefore bounded, carry no
credentials, and connect only to public addresses, except for the configured sources. Behind a
proxy, only the host's name is checked, because the proxy resolves it.
"""

from __future__ import annotations

import re
import threading
import time
from base64 import b64encode
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final, NamedTuple
from urllib.parse import urljoin

import msgspec

from nftsync.errors import NoConnection, ProxyFailed, ReadError, SettingsError, UnusableResponse
from nftsync.provider.addresses import is_private
from nftsync.provider.config import ClientConfig
from nftsync.provider.images import IMAGE_TYPES, ImageAddress, Images, origin
from nftsync.provider.network import network_of
from nftsync.provider.rate_limit import Auth
from nftsync.provider.transport import Requests, Response, Transports
from nftsync.terminal import progress_bar

_NUMBER = re.compile(r"\[Errno -?\d+\] ")
_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]{1,40}")
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 4
_THREADS = 8
#: An origin gets no further request after this many failed connections in a row.
_MOST_FAILURES = 3


class Limits(NamedTuple):
    """Bounds on the downloads for one page; seconds, and `timeout` per response."""

    images: int = 1_000
    megabytes: int = 5
    all_megabytes: int = 50
    timeout: float = 15.0
    all_seconds: float = 300.0


class _Refused(Exception):
    """Reason why an image is not embedded."""


def download_images(
    urls: Iterable[str], images: Images, config: ClientConfig, *, limits: Limits | None = None
) -> dict[str, ImageAddress]:
    """Return for each URL a data URL, or the reason why there is none; a terminal shows progress.

    `images` has checked the URLs, the most important ones first, and checks redirects, too.
    """
    limits = limits or Limits()
    wanted = list(dict.fromkeys(urls))
    over = ImageAddress(None, f"only the first {limits.images:,} images are embedded")
    results = dict.fromkeys(wanted, over)
    if not results:
        return results
    downloads = _Downloads(images, config, limits)
    pool = ThreadPoolExecutor(_THREADS, "nftsync-images")
    try:
        tasks = {pool.submit(downloads.get, url): url for url in wanted[: limits.images]}
        with progress_bar("Embedding", len(tasks), unit="images") as bar:
            for task in as_completed(tasks):
                results[tasks[task]] = task.result()
                bar.update()
    finally:
        downloads.stop()
        pool.shutdown(cancel_futures=True)
    return results


class _Downloads:
    def __init__(self, images: Images, config: ClientConfig, limits: Limits) -> None:
        most = limits.megabytes * 1_000_000
        self._config = msgspec.structs.replace(
            config,
            base_url=origin(images.gateway),
            client_certificate=None,
            client_key=None,
            timeout=limits.timeout,
            max_bytes=most,
            large_bytes=most,
        )
        # Also for http:, so that a bad setting is found before any download.
        https = msgspec.structs.replace(self._config, base_url="https://images.invalid")
        self._tls = network_of(https).tls
        self._images = images
        self._limits = limits
        self._own = {origin(url) for url in (images.gateway, images.provider) if url is not None}
        self._ends_at = time.monotonic() + limits.all_seconds
        self._bytes_left = limits.all_megabytes * 1_000_000
        self._is_full = False
        self._too_much = f"all images together are larger than {limits.all_megabytes} MB"
        self._failures: dict[str, int] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._open: set[Transports] = set()

    def stop(self) -> None:
        self._stopped.set()
        for transports in list(self._open):
            transports.abort()

    def get(self, url: str) -> ImageAddress:
        try:
            return ImageAddress(self._data_url(url), None)
        except _Refused as problem:
            return ImageAddress(None, str(problem))

    def _data_url(self, url: str) -> str:
        """Follow redirects; an own source may redirect within itself alone."""
        is_own = origin(url) in self._own
        for _ in range(_MOST_REDIRECTS + 1):
            site = origin(url)
            response = self._response(site, url.removeprefix(site), is_own)
            if response.status not in _REDIRECTS:
                return self._image(response)
            try:
                target = urljoin(url, response.headers.get("location", ""))
            except ValueError:
                raise _Refused("redirects to no valid address") from None
            sources = self._images._replace(provider=site if is_own else None)
            address = sources.at(target)
            if address.url is None or address.url.startswith("data:"):
                problem = address.problem or "data:"
                raise _Refused(f"redirects to an address that is not allowed: {problem}")
            url = address.url
            is_own = is_own and origin(url) == site
        raise _Refused(f"redirects more than {_MOST_REDIRECTS} times")

    def _response(self, site: str, target: str, is_own: bool) -> Response:
        self._check(site)
        try:
            network = network_of(msgspec.structs.replace(self._config, base_url=site), self._tls)
        except SettingsError:
            raise _Refused("no valid host") from None
        accepts = None if is_own or network.proxy else lambda address: not is_private(address)
        transports = Transports(network, self._config, self._stopped, accepts)
        self._open.add(transports)
        try:
            request, _ = Requests(network, Auth()).make("GET", target, None, None)
            request.headers["accept"] = "image/*"
            response = transports.send(request, lambda: None)
        except ReadError as error:
            failures = self._failures.get(site, 0) + isinstance(error, NoConnection)
            self._failures[site] = failures
            raise _Refused(self._reason(error)) from None
        finally:
            transports.close()
            self._open.discard(transports)
        self._failures.pop(site, None)
        return response

    def _check(self, site: str) -> None:
        if self._is_full:
            raise _Refused(self._too_much)
        if time.monotonic() > self._ends_at:
            raise _Refused(f"downloads stopped after {self._limits.all_seconds:g} s")
        if self._failures.get(site, 0) >= _MOST_FAILURES:
            raise _Refused(f"{_MOST_FAILURES} requests in a row to its server failed")

    def _image(self, response: Response) -> str:
        if response.status != 200:
            raise _Refused(f"its server answered with HTTP {response.status}")
        named = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if named not in IMAGE_TYPES:
            shown = f" but {named}" if _TYPE.fullmatch(named) else ""
            raise _Refused(f"not an image{shown}")
        if not response.body:
            raise _Refused("empty")
        with self._lock:
            self._is_full |= len(response.body) > self._bytes_left
            if self._is_full:
                raise _Refused(self._too_much)
            self._bytes_left -= len(response.body)
        return f"data:{named};base64,{b64encode(response.body).decode()}"

    def _reason(self, error: ReadError) -> str:
        if isinstance(error, ProxyFailed):  # its text names the proxy
            return "no connection through the proxy"
        if isinstance(error, UnusableResponse) and error.status is not None:
            return f"larger than {self._limits.megabytes} MB"
        return _NUMBER.sub("", str(error).partition(";")[0])[:150]
