"""One request and its answer: retried where another try may mend it, refused where not."""

from __future__ import annotations

import math
import ssl
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple, TypeVar

from nftsync import __version__
from nftsync.errors import AccessRefused, NoConnection, ReadError, SettingsError, UnusableAnswer
from nftsync.provider.connection import Answer, Connection, Origin, shared_tls
from nftsync.provider.credentials import Auth
from nftsync.provider.http1 import header_lines
from nftsync.provider.rate_limiter import Lane
from nftsync.provider.wire import CutShort
from nftsync.records import Effort

__all__ = ["Exchange", "Health", "Tally"]


_REFUSALS = 20
_UNANSWERED = 50


class Health:
    """Counts answers over all threads and says when to give up.

    Attributes:
        verdict: why the run should stop, or None while it should go on.
    """

    def __init__(self) -> None:
        self.verdict: str | None = None
        self._lock = threading.Lock()
        self._answers = 0
        self._all_refused = True
        self._unanswered = 0

    def answered(self, status: int) -> None:
        """Count an answer."""
        if self._answers >= _REFUSALS and not self._unanswered:
            return
        with self._lock:
            self._unanswered = 0
            self._answers += 1
            self._all_refused &= status in {401, 403}
            if self._answers == _REFUSALS and self._all_refused:
                self.verdict = (
                    f"the first {_REFUSALS} answers were all 401 or 403: the provider does not "
                    "accept these credentials; check api_token, token_command or headers"
                )

    def unanswered(self, why: str) -> None:
        """Count a request that got no connection."""
        with self._lock:
            self._unanswered += 1
            if self._unanswered == _UNANSWERED:
                self.verdict = (
                    f"{_UNANSWERED} requests in a row got no connection ({why}); is the provider "
                    "up, and base_url right?"
                )


_T = TypeVar("_T")

#: A `Retry-After` beyond this fails the read instead of holding everything up.
_LONGEST_PAUSE = 300.0
_LONGEST_WAIT = 30.0
#: Seconds; what is longer is no limit, and more than the clock's functions take.
_LONGEST_TIMEOUT = 86_400.0
_PORTS = {"http": 80, "https": 443}
#: Headers that a request sets itself where it has them, and one that would unsay where it ends.
_OF_ONE_REQUEST = frozenset({"if-none-match", "content-length", "transfer-encoding"})


class Tally:
    """Counts the requests of one read.

    Attributes:
        requests: HTTP requests sent, repeated ones included.
        retries: how many of them were repeats.
    """

    __slots__ = ("requests", "retries")

    def __init__(self) -> None:
        self.requests = 0
        self.retries = 0

    def effort(self) -> Effort:
        """The counts so far."""
        return Effort(self.requests, self.retries)


class _Request(NamedTuple):
    """A request, whichever attempt at it.

    Attributes:
        effort: where its attempts are counted.
        before: the requests that were counted there before its first attempt.
    """

    method: str
    target: bytes
    etag: str | None
    body: bytes | None
    effort: Tally
    before: int


class _TryAgainError(Exception):
    """An attempt failed in a way that another may mend."""

    def __init__(self, error: ReadError) -> None:
        super().__init__(str(error))
        self.error = error


class Exchange:
    """Sends requests to one origin from any number of threads, a connection for each."""

    def __init__(
        self,
        base_url: str,
        *,
        auth: Auth,
        pace: Lane,
        health: Health,
        timeout: float,
        attempts: int,
        max_bytes: int,
        first_wait: float,
    ) -> None:
        self._origin, self._authority, self._prefix = _parts_of(base_url)
        self._auth = auth
        self._pace = pace
        self._health = health
        self._timeout = min(timeout, _LONGEST_TIMEOUT)
        self._max_bytes = max_bytes
        self._attempts = attempts
        self._first_wait = first_wait
        self._headers = (-1, b"")  # of the token of that generation
        self._tls: ssl.SSLContext | None = None
        self._local = threading.local()
        self._lock = threading.Lock()
        self._connections: list[Connection] = []

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()

    def call(
        self,
        method: str,
        path: str,
        effort: Tally,
        read: Callable[[Answer], _T],
        *,
        etag: str | None = None,
        body: bytes | None = None,
    ) -> _T:
        """Send a request until an attempt gives an answer that `read` can use, or none is left.

        Args:
            method: the HTTP method.
            path: path and query below the base address, already encoded.
            effort: where the requests are counted.
            read: makes the result of an answer; what it raises is final, but for `CutShort`.
            etag: sent as `If-None-Match`; `read` then sees 304 answers too.
            body: a JSON body.

        Raises:
            ReadError: it failed for good.
            Stopped: the pace was stopped.
        """
        target = self._prefix + path.encode("ascii")
        request = _Request(method, target, etag, body, effort, effort.requests)

        def attempt() -> _T:
            answer = self._authorized(request)
            if answer.status != 304 or etag is None:
                self._check(answer)
            try:
                return read(answer)
            except CutShort as error:
                raise _TryAgainError(error) from None

        try:
            return attempt()
        except _TryAgainError as first:
            failed = first
        try:
            return self._repeat(attempt, failed)
        except _TryAgainError as last:
            raise last.error from None

    def _repeat(self, attempt: Callable[[], _T], failed: _TryAgainError) -> _T:
        """Make the attempts after the first, which failed."""
        import tenacity  # slow to import, and most runs never need it

        failures = [failed]

        def next_attempt() -> _T:
            if failures:
                raise failures.pop()
            return attempt()

        # On top of the shared pause, or all threads would be back at once.
        growing = tenacity.wait_exponential(
            multiplier=self._first_wait, max=_LONGEST_WAIT
        ) + tenacity.wait_random(0, self._first_wait)
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self._attempts),
            retry=tenacity.retry_if_exception_type(_TryAgainError),
            wait=growing,
            sleep=self._pace.sleep,
            reraise=True,
        )
        return retrying(next_attempt)

    def _authorized(self, request: _Request) -> Answer:
        answer, generation = self._in_turn(request)
        if answer.status == 401 and self._auth.can_renew:
            self._auth.renew(generation)
            answer, _ = self._in_turn(request)
        self._health.answered(answer.status)
        return answer

    def _in_turn(self, request: _Request) -> tuple[Answer, int]:
        """Send it once; the answer, and the generation of the token that it was asked with."""
        with self._pace.turn():
            effort = request.effort
            effort.requests += 1
            effort.retries += effort.requests - request.before > 1
            credentials, generation = self._auth.headers()
            return self._send(request, credentials, generation), generation

    def _send(self, request: _Request, credentials: Mapping[str, str], generation: int) -> Answer:
        try:
            made_for, headers = self._headers
            if generation != made_for:
                headers = self._usual_headers(credentials)
                self._headers = (generation, headers)
            if request.body is not None:
                headers = self._usual_headers({**credentials, "content-type": "application/json"})
            if request.etag is not None:
                headers += header_lines({"if-none-match": request.etag})
            return self._connection().send(request.method, request.target, headers, request.body)
        except NoConnection as error:
            if not error.connected:
                self._health.unanswered(str(error))
            raise _TryAgainError(error) from None
        except UnusableAnswer as error:
            self._health.answered(error.status or 200)
            if isinstance(error, CutShort):
                raise _TryAgainError(error) from None
            raise

    def _usual_headers(self, credentials: Mapping[str, str]) -> bytes:
        """The headers that all requests with the same token have."""
        # Lower case, so that a configured header takes the place of ours and doesn't stand beside.
        headers = {
            "host": self._authority,
            "accept": "application/json",
            "user-agent": f"nftsync/{__version__}",
            **{name.lower(): value for name, value in credentials.items()},
            "accept-encoding": "gzip",
        }
        return header_lines({k: v for k, v in headers.items() if k not in _OF_ONE_REQUEST})

    def _connection(self) -> Connection:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            with self._lock:
                if self._tls is None and self._origin.secure:
                    self._tls = shared_tls()
                connection = Connection(
                    self._origin,
                    self._tls,
                    timeout=self._timeout,
                    max_bytes=self._max_bytes,
                    stopped=self._pace.stopped,
                )
                self._connections.append(connection)
            self._local.connection = connection
        return connection

    def _check(self, answer: Answer) -> None:
        """Pass a 200 (or another success without content of interest); refuse all else.

        Raises:
            ReadError: for good.
            _TryAgainError: for now.
        """
        status = answer.status
        if 200 <= status < 300:
            return
        if status in {401, 403}:
            raise AccessRefused(f"the provider answered {status}: no access", status=status)
        if status == 429 or status >= 500:
            error = ReadError(f"the provider answered {status}", status=status)
            wait = _retry_after(answer.headers.get("retry-after"))
            if wait is not None and wait > _LONGEST_PAUSE:
                raise ReadError(
                    f"the provider answered {status} and asks to wait {wait:.0f} s, more than "
                    f"{_LONGEST_PAUSE:.0f} s",
                    status=status,
                )
            if wait is not None or status == 429:
                self._pace.pause(self._first_wait if wait is None else wait)
            raise _TryAgainError(error)
        if status == 304:
            raise UnusableAnswer(
                "the provider answered 304: not modified, though it was not asked for that",
                status=status,
            )
        if 300 <= status < 400:
            raise UnusableAnswer(
                f"the provider answered {status}, a redirect, which is not followed; "
                "is base_url right?",
                status=status,
            )
        if status == 404:
            raise ReadError("the provider answered 404: it knows no such object", status=status)
        raise ReadError(f"the provider answered {status}", status=status)


def _parts_of(base_url: str) -> tuple[Origin, str, bytes]:
    """Take a base address apart: where requests go, what `Host` says, and what paths begin with.

    Raises:
        SettingsError: it is no address that can be asked.
    """
    import httpx  # slow to import, and needed only where a client is made

    # Such an address may hold a password or a key, so it is not repeated.
    if "@" in base_url:
        raise SettingsError(
            "base_url (NFTSYNC_BASE_URL) must not contain a user name or password; api_token and "
            "headers are for that"
        )
    if "?" in base_url or "#" in base_url:
        raise SettingsError(
            "base_url (NFTSYNC_BASE_URL) must not have a query or fragment: end it before the ? "
            "or #, and give a key in headers"
        )
    try:
        url = httpx.URL(base_url)
        _ = url.host  # decoded only now; IDNA refuses some
    except (httpx.InvalidURL, ValueError) as error:
        raise SettingsError(f"base_url (NFTSYNC_BASE_URL) cannot be used: {error}") from None
    if url.scheme not in _PORTS or not url.host:
        raise SettingsError("base_url (NFTSYNC_BASE_URL) cannot be used: it is no http(s) address")
    secure = url.scheme == "https"
    origin = Origin(url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme], secure)
    return origin, url.netloc.decode("ascii"), url.raw_path.rstrip(b"/")


def _retry_after(value: str | None) -> float | None:
    """Read `Retry-After` (RFC 9110, section 10.2.3) as seconds from now."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, math.ceil((moment - datetime.now(UTC)).total_seconds()))
