"""One request and its response: waits after 429, repeats after errors that may pass."""

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
    UnusableAnswer,
)
from nftsync.provider.access import Access
from nftsync.provider.config import ClientConfig
from nftsync.provider.limits import GiveUpRule, Slots
from nftsync.provider.transport import HTTPS_HINT, LargeAnswers, Response, Transports
from nftsync.records import Effort
from nftsync.version import __version__

_T = TypeVar("_T")

#: A `Retry-After` beyond this fails the read instead of holding everything up.
_LONGEST_PAUSE = 300.0
_LONGEST_WAIT = 30.0
_MOST_DOUBLED = 30  # times; beyond that it is longer than the longest wait, or no wait at all
#: So many attempts in a row that failed mean that the provider answers nobody.
_ALL_FAIL = 2_000
#: Seconds; what is longer is no limit, and more than the clock's functions take.
_LONGEST_TIMEOUT = 86_400.0
#: A path that is sent as it is; in any other, httpx encodes what a URL may not hold.
_PLAIN_PATH = re.compile(r"[/\w-]+", re.ASCII)


class _WaitTooLong(ReadError):
    """The provider asks to wait for longer than anybody would."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message, status=status)
        self.passing = False


class Exchange:
    """Sends requests to one base address from any number of threads.

    Attributes:
        large: bounds the large answers that are held at once.
        transports: their connections.
    """

    def __init__(
        self, config: ClientConfig, access: Access, slots: Slots, rule: GiveUpRule
    ) -> None:
        network = access.network
        self._base_url = str(network.base_url).rstrip("/")
        # The paths of the provider's document begin with it.
        twice = re.search(r"/v1(/|$)", self._base_url)
        self._twice = "; base_url has a /v1, which paths begin with: leave it out" if twice else ""
        # Made once, as each of them takes longer than the rest of a request of ours.
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
        self.large = LargeAnswers(config.large_bytes)
        timeout = min(config.timeout, _LONGEST_TIMEOUT)
        self.transports = Transports(network, timeout, config.max_bytes, self.large, slots.stopped)

    @property
    def clock_ahead(self) -> float | None:
        """Seconds by which this clock is ahead of the provider's; None: no response told."""
        if self._dated is None:
            return None
        headers, came = self._dated
        sent, age = _moment(headers.get("date", "")), headers.get("age", "0")
        if sent is None:
            return None
        # A cache in between keeps the date, and says how old it is.
        return (came - sent).total_seconds() - (int(age) if re.fullmatch("[0-9]{1,9}", age) else 0)

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
        """Send a request until an attempt gives a response that `read` can use, or none is left.

        Yields the seconds to wait before each repeat, so that whoever waits needs no thread for it.
        `Stopped` thrown in there ends the read with what the last attempt failed with.

        Args:
            method: the HTTP method.
            path: path and query below the base address, already encoded.
            effort: where the requests are counted.
            read: makes the result of a response.
            etag: sent as `If-None-Match`; `read` then sees 304 responses too.
            body: a JSON body.
            is_first: whether the read begins with this request: takes its number from it, and
                holds nothing yet. It is no further page.

        Raises:
            ReadError: it failed for good.
            Stopped: the client was stopped.
        """

        def send() -> tuple[Response, int]:
            """Send it once; the response, and the generation of the token in it."""
            with self._slots:
                effort.requests += 1
                request, generation = self._request(method, path, etag, body)
                sending = effort.sending if is_first else _ignore
                return self._answered(request, sending), generation

        before = effort.requests
        attempt = 0
        try:
            while True:
                attempt += 1
                try:
                    return self._attempt(send, read, conditional=etag is not None)
                except ReadError as error:
                    failed = error.with_traceback(None)  # a read that waits keeps no frames
                if is_first:
                    self.large.release()
                if failed.passing and attempt < self._attempts:
                    wait = self._hold(self._wait_after(attempt), failed.status)
                    try:
                        if wait:
                            yield wait
                        continue
                    except Stopped:
                        pass
                if attempt > 1:
                    failed.args = (f"{failed} (after {attempt} attempts)",)
                raise failed
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
        """Seconds between an attempt that failed and the next, the first of them being number 1.

        They grow and are jittered, on top of the shared pause, or all would be back at once.
        """
        growing = self._first_wait * 2.0 ** min(attempt - 1, _MOST_DOUBLED)
        return min(growing, _LONGEST_WAIT) + self._jitter()

    def _jitter(self) -> float:
        return random.uniform(0.0, self._first_wait)  # noqa: S311 - only spreads waits

    def _hold(self, wait: float, status: int | None) -> float:
        """Hold the thread up where a repeat alone would not slow us down; return what is left.

        A 429 is about all that we ask for, and so is a provider that answers nobody: were only the
        objects to wait, the next ones would be asked for just as fast. And a thread that waits
        with many pages begins no other read.

        Raises:
            Stopped: the client was stopped.
        """
        held = 0.0
        if status == 429 or self.large.held:
            held = wait
        elif self._failed_in_a_row >= _ALL_FAIL:
            held = min(wait, self._first_wait + self._jitter())
        if held:
            self._slots.sleep(held)
        return wait - held

    def _authorized(self, send: Callable[[], tuple[Response, int]]) -> Response:
        response, generation = send()
        if response.status == 401 and self._auth.can_renew:
            # The first token may have expired before; all threads may find that out at once.
            if generation != self._first_generation:
                self._rule.answered(response.status)
            self._auth.renew(generation)
            response, _ = send()
        self._rule.answered(response.status)
        return response

    def _answered(self, request: httpx.Request, sending: Callable[[], None]) -> Response:
        """Send a request; count what keeps the give-up rule from a status."""
        try:
            return self.transports.send(request, sending)
        except NoConnection as error:
            if not error.connected:
                self._rule.unanswered(str(error), final=not error.passing)
            raise
        except UnusableAnswer as error:
            self._rule.answered(error.status or 200)
            raise

    def _request(
        self, method: str, path: str, etag: str | None, body: bytes | None
    ) -> tuple[httpx.Request, int]:
        """Make a request, and tell the generation of the token in it; httpx copies the headers."""
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
        """The headers of every request, and the generation of the token in them."""
        if self._headers is None or self._headers[1] != self._auth.generation:
            credentials, generation = self._auth.headers()
            headers = httpx.Headers({"host": self._host, "accept": "application/json"})
            headers["user-agent"] = f"nftsync/{__version__}"
            headers.update(credentials)  # one takes the place of ours and doesn't stand beside
            headers["accept-encoding"] = "gzip"
            self._headers = headers, generation
        return self._headers

    def _check(self, response: Response) -> None:
        """Pass a 200 (or another success without content of interest); refuse all else.

        Raises:
            ReadError: for good, or for now.
        """
        status = response.status
        self._dated = response.headers, datetime.now(UTC)
        if 200 <= status < 300 and status != 206:
            return
        if status in {401, 403}:
            raise AccessRefused(f"the provider answered {status}: no access", status=status)
        if status == 407 and self._proxy is not None:
            raise ProxyFailed(f"the proxy {self._proxy} refused: 407", final=True)
        if status == 429 or status >= 500:
            wait, told = retry_after(response.headers), _named(status)
            if wait is not None and wait > _LONGEST_PAUSE:
                raise _WaitTooLong(
                    f"the provider answered {told} and asks to wait {wait:.0f} s, more than "
                    f"{_LONGEST_PAUSE:.0f} s",
                    status=status,
                )
            if wait is not None or status == 429:
                self._limiter.pause(self._first_wait if wait is None else wait)
            raise ReadError(f"the provider answered {told}", status=status)
        if status == 206:
            problem = "206: a part of what was asked for"
        elif status == 304:
            problem = "304: not modified, though it was not asked for that"
        elif 300 <= status < 400:
            problem = f"{status}, a redirect, which is not followed; is base_url right?"
        else:
            problem = str(status)
            if status == 400 and self._base_url.startswith("http:"):
                problem += HTTPS_HINT
            if status == 404:
                problem = f"404: it knows no such object{self._twice}"
        kind = UnusableAnswer if status < 400 else ReadError
        raise kind(f"the provider answered {problem}", status=status)


def _ignore() -> None:
    """Take no number."""


def _named(status: int) -> str:
    """A status and what it is called: in our words, as the provider's may be anything."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read `Retry-After` (RFC 9110, section 10.2.3) as seconds from now; None: it says nothing.

    A date is one of the provider's clock, which the response's own `Date` tells.
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
