"""Client of the provider's API: its calls, with retries, rate limit and strict parsing.

Each read is a generator that yields the seconds to wait before each retry and returns its result,
so that few threads can serve many waiting reads.

Source: provider's document, section Endpoints.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import time
import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from http.client import responses
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from urllib.parse import urlencode

import msgspec

from nftsync.errors import (
    AccessRefused,
    InputError,
    NoConnection,
    ProxyFailed,
    ReadError,
    Stopped,
    UnusableResponse,
    may_pass,
)
from nftsync.provider.config import HTTPS_HINT, ClientConfig, Paging
from nftsync.provider.rate_limit import Auth, GiveUpRule, RateLimiter, Slots
from nftsync.provider.waits import asked_wait, parse_date
from nftsync.provider.wire import (
    WalletList,
    check_object,
    decode_token,
    decode_wallet,
    without_duplicates,
)
from nftsync.records import Content, Effort, Entry, normalize_uuid
from nftsync.text import cut_line
from nftsync.times import growing_wait

if TYPE_CHECKING:
    from nftsync.provider.transport import Network, Response

_T = TypeVar("_T")

_PATH = re.compile(r"/[!-~]*")
#: The most pages of one wallet; endless paging is a fault, not a large wallet.
_MOST_PAGES = 10_000
#: The longest query, in characters; servers refuse longer URLs.
_LONGEST_QUERY = 8_000
#: RFC 9110, section 8.8.3; anything else, above all `*`, makes a meaningless condition.
_ENTITY_TAG = re.compile(r'(?:W/)?"[!#-~]*"')
_NEXT_LINK = re.compile(r';\s*rel\s*=\s*(?:"[^"]*)?(?<![\w-])next(?![\w-])', re.IGNORECASE)
_RANGE = re.compile(r"\s*[\w-]+ ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})\s*")
_DIGITS = re.compile(r"[0-9]{1,18}")

#: If a response asks for a longer wait, the read fails, so that it does not block others; seconds.
_LONGEST_PAUSE = 300.0
_LONGEST_WAIT = 30.0
#: After this many failed attempts in a row, the provider is presumed down.
_ALL_FAIL = 2_000


def finish(read: Generator[float, None, _T]) -> _T:
    """Run a read in this thread, with its waits, and return the result."""
    while True:
        try:
            time.sleep(next(read))
        except StopIteration as done:
            return cast(_T, done.value)


class Access(NamedTuple):
    """The objects that a provider's clients share: rate limiter, credentials and network."""

    limiter: RateLimiter
    auth: Auth
    network: Network


def access_to(config: ClientConfig, *, at_once: int | None = None) -> Access:
    """Return the access that several clients share, with at most `at_once` requests in flight."""
    from nftsync.provider.transport import network_of  # loads httpx, which is slow

    auth = Auth(config.api_token, token_command=config.token_command, headers=config.headers)
    return Access(RateLimiter(config.rate_limit, at_once=at_once), auth, network_of(config))


class Client(AbstractContextManager["Client"]):
    """Client of one provider for any number of threads, each with its own connection.

    Attributes:
        proxy: the proxy and its source, without the password, or None.
        volatile_fields: see `ClientConfig`.
    """

    def __init__(
        self,
        config: ClientConfig,
        access: Access | None = None,
        *,
        urgent: bool = False,
        rule: GiveUpRule | None = None,
    ) -> None:
        """Prepare to read; requests of `urgent` clients go before others that share the access."""
        # Imported late because httpx loads slowly, but not in threads: imports need descriptors.
        from nftsync.provider.transport import Requests, Transports

        access = access or access_to(config)
        self._config = config
        self._limiter, self._auth, network = access
        self._slots = Slots(access.limiter, urgent=urgent)
        self._rule = rule or GiveUpRule()
        if rule is not None:
            rule.register(self._slots.stopped)
        self._requests = Requests(network, access.auth)
        self._transports = Transports(network, config, self._slots.stopped)
        self._large = self._transports.large
        self.volatile_fields = config.volatile_fields
        self.proxy = None if network.proxy is None else str(network.proxy)
        self._ignored_headers = {name.lower() for name in config.ignore_fields}
        self._first_generation: int | None = None
        self._failed_in_a_row = 0
        self._dated: tuple[Mapping[str, str], datetime] | None = None
        self._sent_secret = ""

    def __exit__(self, *_: object) -> None:
        self.close()

    def sign_in(self) -> None:
        """Get the token now rather than with the first request."""
        self._auth.headers()

    @property
    def clock_ahead(self) -> float | None:
        """Seconds by which this clock is ahead of the provider's, or None."""
        if self._dated is None:
            return None
        headers, received_at = self._dated
        sent_at, age = parse_date(headers.get("date", "")), headers.get("age", "0")
        if sent_at is None:
            return None
        # A cache keeps the original date, and adds the response's age.
        return (received_at - sent_at).total_seconds() - (
            int(age) if re.fullmatch("[0-9]{1,9}", age) else 0
        )

    def stop(self) -> None:
        """Send no more requests, and end requests in flight with `Stopped`."""
        self._slots.stopped.set()
        self._transports.abort()

    def release(self) -> None:
        """Note that this thread has finished with its last response, to free memory."""
        self._large.release()

    def close(self) -> None:
        """Close all connections."""
        self._transports.close()

    def balances(
        self,
        wallet_id: str,
        effort: Effort,
        *,
        etag: str | None = None,
        known_digest: str | None = None,
    ) -> Generator[float, None, WalletList]:
        """Read a wallet's balances (provider's document, GET .../nft-balances).

        `etag` and `known_digest` belong to the stored response: if the body is the same, it is not
        decoded. With paging, `etag` is not used.
        """
        path = f"/v1/wallets/{normalize_uuid(wallet_id, 'wallet id')}/nft-balances"
        if self._config.paging is not None:
            return self._paged(path, effort, self._config.paging, known_digest)

        def read(response: Response) -> WalletList:
            if response.status == 304:
                return _unchanged(known_digest or "")
            digest = hashlib.sha256(response.body).hexdigest()
            new_etag = _entity_tag(response.headers.get("etag"))
            is_new = digest != known_digest
            if is_new or not _PAGING_HEADERS.keys().isdisjoint(response.headers):
                page = self._decoded(response)
                position = _PagePosition(1, 0, len(page.entries))
                doubt = page.doubt or self._continuation_header(response, position)
                if is_new or doubt is not None:
                    entries = without_duplicates(page.entries)
                    return WalletList(entries, doubt, digest=digest, etag=new_etag)
            return _unchanged(digest, new_etag)

        etag = _entity_tag(etag) if known_digest else None
        return self._call("GET", path, effort, read, etag=etag)

    def token(self, token_id: str, effort: Effort) -> Generator[float, None, Content]:
        """Read a single token (provider's document, GET /v1/tokens/{tokenId})."""
        token_id = normalize_uuid(token_id, "token id")
        return self._call(
            "GET", f"/v1/tokens/{token_id}", effort, lambda x: decode_token(x.body, token_id)
        )

    def object(self, path: str, effort: Effort) -> Generator[float, None, bytes]:
        """Read any object (provider's document, Follow-up read of a webhook's object).

        Returns the JSON object as sent, but with lone surrogates replaced, which text cannot
        contain.

        Raises:
            InputError: the path cannot be sent.
        """
        if _PATH.fullmatch(path) is None:
            raise InputError(f"{path[:80]!r} is not an encoded path; no request was sent")
        return self._call("GET", path, effort, lambda x: check_object(x.body))

    def configure_webhooks(self, changes: Mapping[str, Any]) -> None:
        """Change `url`, `enabled`, `sharedSecret`, `webhookTypes` (provider's document, PATCH)."""
        path = "/api/organization/v1/current-organization/webhook-config"
        body = msgspec.json.encode(changes)
        self._sent_secret = changes.get("sharedSecret", "")
        finish(self._call("PATCH", path, Effort(), lambda _: None, body=body))

    def _paged(
        self, path: str, effort: Effort, paging: Paging, known_digest: str | None
    ) -> Generator[float, None, WalletList]:
        entries: list[Entry] = []
        digest = hashlib.sha256()
        doubt = cursor = None
        size = 0
        cursors: set[str] = set()

        def read(response: Response) -> tuple[Response, WalletList]:
            self._large.reserve(size + len(response.body))
            return response, self._decoded(response, paging.next)

        for number in range(1, _MOST_PAGES + 1):
            query = "" if cursor is None else "?" + urlencode({paging.param: cursor})
            if len(query) > _LONGEST_QUERY:
                raise UnusableResponse(f"$.{paging.next}: the cursor is too long to send")
            response, page = yield from self._call(
                "GET", path + query, effort, read, is_first=cursor is None
            )
            before = len(entries)
            size += len(response.body)
            entries += page.entries
            limits = self._config
            if size > limits.max_bytes or len(entries) > limits.max_entries:
                raise UnusableResponse(
                    f"the pages together contain more than {limits.max_bytes:,} bytes or "
                    f"{limits.max_entries:,} entries; reading stopped"
                )
            digest.update(hashlib.sha256(response.body).digest())
            doubt, cursor = doubt or page.doubt, page.cursor
            if cursor is None:  # on the last page, no header may indicate more
                position = _PagePosition(number, before, len(entries))
                doubt = doubt or self._continuation_header(response, position)
                if digest.hexdigest() == known_digest and doubt is None:
                    return _unchanged(known_digest)
                return WalletList(without_duplicates(entries), doubt, digest=digest.hexdigest())
            if cursor in cursors:
                raise UnusableResponse(f"$.{paging.next}: the cursor {cursor[:80]!r} repeats")
            cursors.add(cursor)
        raise UnusableResponse(f"more than {_MOST_PAGES:,} pages")

    def _decoded(self, response: Response, cursor_field: str | None = None) -> WalletList:
        return decode_wallet(
            response.body,
            known_fields=self._config.ignore_fields,
            cursor_field=cursor_field,
            most=self._config.max_entries,
        )

    def _continuation_header(self, response: Response, position: _PagePosition) -> str | None:
        """Name a header that indicates more pages; the provider's document shows no paging."""
        for name, indicates_more in _PAGING_HEADERS.items():
            value = None if name in self._ignored_headers else response.headers.get(name)
            if value is not None and indicates_more(value, position):
                return f"the header {name.title()}: {value[:80]!r}"
        return None

    def _call(
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

        With `etag`, sent as `If-None-Match`, `read` also gets 304 responses. `is_first`: this
        request sets the read's sequence number; False for further pages.
        """
        sending = effort.sending if is_first else lambda: None

        def send() -> tuple[Response, int]:
            """Send the request once; return the response and the generation of its token."""
            anew = attempt > 1
            with self._slots:
                effort.requests += 1
                request, generation = self._requests.make(method, path, etag, body)
                if self._first_generation is None:
                    self._first_generation = generation
                try:
                    return self._transports.send(request, sending, anew=anew), generation
                except NoConnection as error:
                    if not error.connected:
                        self._rule.count_failure(str(error), final=not error.passing)
                    raise
                except UnusableResponse as error:
                    self._rule.count_response(error.status or 200)
                    raise

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
                    self._large.release()
                if failure.passing and attempt < self._config.attempts:
                    wait = self._block(self._wait_after(attempt), failure.status)
                    with suppress(Stopped):
                        if wait:
                            yield wait
                        continue
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
            response, generation = send()
            if response.status == 401 and self._auth.can_renew:
                # The first token may have expired earlier, for all threads at once.
                if generation != self._first_generation:
                    self._rule.count_response(response.status)
                self._auth.renew(generation)
                response, _ = send()
            wait = asked_wait(response.status, response.headers)
            # A 403 that asks to wait refuses no credentials; it counts as a 429 everywhere.
            status = response.status if wait is None else 429
            self._rule.count_response(status, self._auth.advice)
            if response.status != 304 or not conditional:
                self._check(response, wait)
            result = read(response)
        except ReadError as error:
            self._failed_in_a_row = self._failed_in_a_row + 1 if error.passing else 0
            raise
        self._failed_in_a_row = 0
        return result

    def _wait_after(self, attempt: int) -> float:
        return growing_wait(self._config.first_wait, _LONGEST_WAIT, attempt - 1) + self._jitter()

    def _jitter(self) -> float:
        return random.uniform(0.0, self._config.first_wait)  # noqa: S311 - not for security

    def _block(self, wait: float, status: int | None) -> float:
        """Block this thread if retries alone would not slow down; return the rest of the wait.

        After a 429, or if the provider is down, other objects' requests would follow just as fast.
        A thread with a large response must not start another read.
        """
        blocked = 0.0
        if status == 429 or self._large.has_place:
            blocked = wait
        elif self._failed_in_a_row >= _ALL_FAIL:
            blocked = min(wait, self._config.first_wait + self._jitter())
        if blocked and self._slots.stopped.wait(blocked):
            raise Stopped("stopped")
        return wait - blocked

    def _check(self, response: Response, wait: float | None) -> None:
        """Raise an error unless the response has the whole object; it may ask for a wait."""
        status = response.status
        self._dated = response.headers, datetime.now(UTC)
        if 200 <= status < 300 and status != 206:
            return
        if status == 407 and self.proxy is not None:
            raise ProxyFailed(f"the proxy {self.proxy} refused: 407", final=True)
        if may_pass(status) or wait is not None:
            raise self._busy(status, wait)
        kind: type[ReadError] = UnusableResponse if status < 400 else ReadError
        if status in {401, 403}:
            kind = AccessRefused
        error = kind(f"the provider answered {self._refusal(status)}", status=status)
        error.reason = self._reason(response.body)
        raise error

    def _busy(self, status: int, wait: float | None) -> ReadError:
        """Return the error of a status that may pass, and pause all requests if necessary."""
        # With the standard phrase, as the provider's may be anything.
        text = f"the provider answered {status} {responses.get(status, '')}".rstrip()
        error = ReadError(text, status=429 if status == 403 else status)
        if wait is not None and wait > _LONGEST_PAUSE:
            text += f" and asks to wait {wait:.0f} s, longer than {_LONGEST_PAUSE:.0f} s"
            error.args, error.passing = (text,), False
        elif wait is not None or status == 429:
            self._limiter.pause(self._config.first_wait if wait is None else wait)
        return error

    def _reason(self, body: bytes) -> str:
        """Return the start of a body as one line, or blank if it repeats a part of a secret."""
        with suppress(zlib.error):
            body = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(body, 5_000)
        text = body.decode("utf-8", "ignore")
        secrets = [self._sent_secret, *self._auth.headers()[0].values()]
        parts = {x[n : n + 6].lower() for x in secrets for n in range(max(1, len(x) - 5))} - {""}
        repeats = any(y in text.lower() for x in parts for y in (x, json.dumps(x)[1:-1]))
        return "" if repeats else cut_line(text, 300)

    def _refusal(self, status: int) -> str:
        """Return a status that no retry changes, with advice."""
        base_url = self._requests.base_url
        match status:
            case 401 | 403 if status == 401 or not self._auth.is_set:
                return f"{status}: no access; {self._auth.advice}"
            case 403:
                return "403: no access; the credentials are valid but lack permission; ask for it"
            case 206:
                return "206: only a part of the object"
            case 304:
                return "304: not modified, but the request had no condition"
            case 400 if base_url.startswith("http:"):
                return f"400{HTTPS_HINT}"
            case 404 if re.search("/v1(/|$)", base_url):
                return "404: no such object; paths already start with /v1: remove it from base_url"
            case 404:
                return "404: no such object"
        if 300 <= status < 400:
            return f"{status}, a redirect, which nftsync does not follow; check base_url"
        return str(status)


def _unchanged(digest: str, etag: str | None = None) -> WalletList:
    return WalletList([], digest=digest, etag=etag, unchanged=True)


def _entity_tag(text: str | None) -> str | None:
    """Return an ETag that can be sent back, or None."""
    good = text is not None and len(text) <= _LONGEST_QUERY and _ENTITY_TAG.fullmatch(text)
    return text if good else None


class _PagePosition(NamedTuple):
    """A page's number, and the entries before it and up to its end."""

    page: int
    before: int
    until: int


def _content_range(value: str, position: _PagePosition) -> bool:
    match = _RANGE.fullmatch(value)
    return match is None or int(match[1]) > position.before or int(match[2]) + 1 < int(match[3])


def _count(value: str) -> int:
    return int(value) if _DIGITS.fullmatch(value) else 0


#: Paging headers, and whether a value indicates more: RFC 8288, RFC 9110 (14.4), and custom ones.
_PAGING_HEADERS: dict[str, Callable[[str, _PagePosition], bool]] = {
    "link": lambda value, _: _NEXT_LINK.search(value) is not None,
    "content-range": _content_range,
    "x-total-count": lambda value, position: _count(value) > position.until,
    "x-total-pages": lambda value, position: _count(value) > position.page,
    "x-next-page": lambda value, _: value.strip() != "",
    "x-has-more": lambda value, _: value.strip().lower() not in {"", "false", "no", "0"},
}
