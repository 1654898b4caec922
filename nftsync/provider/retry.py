"""Requests with retries: waits after a 429, and repeats after errors that may pass."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Generator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TypeVar

import httpx

from nftsync.errors import (
    AccessRefused,
    NoConnection,
    ProxyFailed,
    ReadError,
    Stopped,
    UnusableResponse,
)
from nftsync.provider.access import Access
from nftsync.provider.config import ClientConfig
from nftsync.provider.limits import GiveUpRule, Slots
from nftsync.provider.transport import HTTPS_HINT, LargeResponses, Response, Transports
from nftsync.records import Effort
from nftsync.version import __version__

_T = TypeVar("_T")

#: A longer `Retry-After` fails the read, so that it cannot block all others; seconds.
_LONGEST_PAUSE = 300.0
_LONGEST_WAIT = 30.0
_MOST_DOUBLED = 30  # avoids overflow; the wait is at its maximum long before
#: After this many failed attempts in a row, the provider is presumed down.
_ALL_FAIL = 2_000
#: The longest timeout, in seconds; clock functions fail on far longer ones.
_LONGEST_TIMEOUT = 86_400.0
#: A path that needs no encoding by httpx.
_PLAIN_PATH = re.compile(r"[/\w-]+", re.ASCII)


class _WaitTooLong(ReadError):
    """The provider asks for a longer wait than nftsync accepts."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message, status=status)
        self.passing = False


class Exchange:
    """Sender of requests to one base address, for any number of threads.

    Attributes:
        large: bounds the large responses in memory.
        transports: the threads' connections.
    """

    def __init__(
        self, config: ClientConfig, access: Access, slots: Slots, rule: GiveUpRule
    ) -> None:
        network = access.network
        self._base_url = str(network.base_url).rstrip("/")
        # The paths of the provider's document already start with /v1.
        twice = re.search(r"/v1(/|$)", self._base_url)
        self._twice = "; paths already start with /v1: remove it from base_url" if twice else ""
        # Made once, because making them takes longer than the rest of a request.
        self._base = httpx.URL(self._base_url)
        self._base_path = self._base.raw_path.rstrip(b"/")
        self._host = network.base_url.netloc.decode("ascii")
        self._headers: tuple[httpx.Headers, int] | None = None
        self._no_body = httpx.ByteStream(b"")
        self._proxy = network.proxy
        self._auth = access.auth
        self._slots = slots
        self._limiter = access.limiter
        self._rule = rule
        self._first_generation: int | None = None
        self._first_wait = config.first_wait
        self._attempts = config.attempts
        self._failed_in_a_row = 0
        self._dated: tuple[Mapping[str, str], datetime] | None = None
        self.large = LargeResponses(config.large_bytes)
        timeout = min(config.timeout, _LONGEST_TIMEOUT)
        self.transports = Transports(network, timeout, config.max_bytes, self.large, slots.stopped)

    @property
    def clock_ahead(self) -> float | None:
        """Seconds by which this clock is ahead of the provider's, or None."""
        if self._dated is None:
            return None
        headers, received_at = self._dated
        sent_at, age = _moment(headers.get("date", "")), headers.get("age", "0")
        if sent_at is None:
            return None
        # A cache keeps the original date, and adds the response's age.
        return (received_at - sent_at).total_seconds() - (
            int(age) if re.fullmatch("[0-9]{1,9}", age) else 0
        )

    def call(
        self,
        method: str,
        path: str,
        effort: Effort,
        read: Callable[[Response], _T],
        *,
        etag: str | None = None,
        body: bytes | None = None,
        is_first: bool = True,
    ) -> Generator[float, None, _T]:
        """Send a request until `read` can use a response, or until no attempt is left.

        Yields the rest of the wait before each retry. If the caller throws `Stopped` into the
        generator, the read fails with the error of the last attempt.

        Args:
            method: the HTTP method.
            path: path and query.
            effort: counts the requests.
            read: converts a response into the result.
            etag: sent as `If-None-Match`; `read` then also gets 304 responses.
            body: a JSON body.
            is_first: whether this request sets the read's sequence number; False for further pages.
        """

        def send() -> tuple[Response, int]:
            """Return the response and its token's generation."""
            with self._slots:
                effort.requests += 1
                request, generation = self._request(method, path, etag, body)
                sending = effort.sending if is_first else _ignore
                return self._exchange(request, sending), generation

        before = effort.requests
        attempt = 0
        try:
            while True:
                attempt += 1
                try:
                    return self._attempt(send, read, conditional=etag is not None)
                except ReadError as error:
                    failure = error.with_traceback(None)  # frees the frames while waiting
                if is_first:
                    self.large.release()
                if failure.passing and attempt < self._attempts:
                    wait = self._block(self._wait_after(attempt), failure.status)
                    try:
                        if wait:
                            yield wait
                        continue
                    except Stopped:
                        pass
                if attempt > 1:
                    failure.args = (f"{failure} (after {attempt} attempts)",)
                raise failure
        finally:
            effort.retries += max(0, effort.requests - before - 1)

    def _attempt(
        self,
        send: Callable[[], tuple[Response, int]],
        read: Callable[[Response], _T],
        *,
        conditional: bool,
    ) -> _T:
        try:
            response = self._authorized(send)
            if response.status != 304 or not conditional:
                self._check(response)
            result = read(response)
        except ReadError as error:
            self._failed_in_a_row = self._failed_in_a_row + 1 if error.passing else 0
            raise
        self._failed_in_a_row = 0
        return result

    def _wait_after(self, attempt: int) -> float:
        growing = self._first_wait * 2.0 ** min(attempt - 1, _MOST_DOUBLED)
        return min(growing, _LONGEST_WAIT) + self._jitter()

    def _jitter(self) -> float:
        return random.uniform(0.0, self._first_wait)  # noqa: S311 - not for security

    def _block(self, wait: float, status: int | None) -> float:
        """Block this thread if retries alone would not slow down; return the rest of the wait.

        After a 429, or if the provider is down, other objects' requests would follow just as fast.
        A thread with a large response must not start another read.
        """
        blocked = 0.0
        if status == 429 or self.large.has_place:
            blocked = wait
        elif self._failed_in_a_row >= _ALL_FAIL:
            blocked = min(wait, self._first_wait + self._jitter())
        if blocked:
            self._slots.sleep(blocked)
        return wait - blocked

    def _authorized(self, send: Callable[[], tuple[Response, int]]) -> Response:
        response, generation = send()
        if response.status == 401 and self._auth.can_renew:
            # The first token may have expired earlier, for all threads at once.
            if generation != self._first_generation:
                self._rule.count_response(response.status)
            self._auth.renew(generation)
            response, _ = send()
        self._rule.count_response(response.status)
        return response

    def _exchange(self, request: httpx.Request, sending: Callable[[], None]) -> Response:
        """Send a request; count errors without a status for the give-up rule."""
        try:
            return self.transports.send(request, sending)
        except NoConnection as error:
            if not error.connected:
                self._rule.count_failure(str(error), final=not error.passing)
            raise
        except UnusableResponse as error:
            self._rule.count_response(error.status or 200)
            raise

    def _request(
        self, method: str, path: str, etag: str | None, body: bytes | None
    ) -> tuple[httpx.Request, int]:
        headers, generation = self._headers_with_token()
        if self._first_generation is None:
            self._first_generation = generation
        url, extensions = self._base, {"target": self._base_path + path.encode("ascii")}
        if self._proxy is not None or not _PLAIN_PATH.fullmatch(path):
            url, extensions = httpx.URL(self._base_url + path), {}
        stream = self._no_body if body is None else httpx.ByteStream(body)
        request = httpx.Request(method, url, headers=headers, stream=stream, extensions=extensions)
        if body is not None:
            request.headers["content-type"] = "application/json"
            request.headers["content-length"] = str(len(body))
        if etag is not None:
            request.headers["if-none-match"] = etag
        return request, generation

    def _headers_with_token(self) -> tuple[httpx.Headers, int]:
        if self._headers is None or self._headers[1] != self._auth.generation:
            credentials, generation = self._auth.headers()
            headers = httpx.Headers({"host": self._host, "accept": "application/json"})
            headers["user-agent"] = f"nftsync/{__version__}"
            headers.update(credentials)  # a configured header replaces ours
            headers["accept-encoding"] = "gzip"
            self._headers = headers, generation
        return self._headers

    def _check(self, response: Response) -> None:
        status = response.status
        self._dated = response.headers, datetime.now(UTC)
        if 200 <= status < 300 and status != 206:
            return
        if status in {401, 403}:
            advice = (
                "check api_token, token_command or headers"
                if status == 401
                else "the credentials are valid but lack permission; ask for it"
            )
            raise AccessRefused(
                f"the provider answered {status}: no access; {advice}", status=status
            )
        if status == 407 and self._proxy is not None:
            raise ProxyFailed(f"the proxy {self._proxy} refused: 407", final=True)
        if status == 429 or status >= 500:
            wait, name = retry_after(response.headers), _named(status)
            if wait is not None and wait > _LONGEST_PAUSE:
                raise _WaitTooLong(
                    f"the provider answered {name} and asks to wait {wait:.0f} s, longer than "
                    f"{_LONGEST_PAUSE:.0f} s",
                    status=status,
                )
            if wait is not None or status == 429:
                self._limiter.pause(self._first_wait if wait is None else wait)
            raise ReadError(f"the provider answered {name}", status=status)
        if status == 206:
            problem = "206: only a part of the object"
        elif status == 304:
            problem = "304: not modified, but the request had no condition"
        elif 300 <= status < 400:
            problem = f"{status}, a redirect, which nftsync does not follow; check base_url"
        else:
            problem = str(status)
            if status == 400 and self._base_url.startswith("http:"):
                problem += HTTPS_HINT
            if status == 404:
                problem = f"404: no such object{self._twice}"
        kind = UnusableResponse if status < 400 else ReadError
        raise kind(f"the provider answered {problem}", status=status)


def _ignore() -> None:
    """Take no sequence number."""


def _named(status: int) -> str:
    """Return a status with its standard phrase; the provider's may be anything."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that `Retry-After` asks for, or None (RFC 9110, section 10.2.3).

    A date is relative to the response's own `Date`.
    """
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    moment = _moment(text)
    if moment is None:
        return None
    at = _moment(headers.get("date", "")) or datetime.now(UTC)
    return max(0.0, math.ceil((moment - at).total_seconds()))


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
