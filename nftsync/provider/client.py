"""Client of the provider's API: its calls, with retries, rate limit and strict parsing.

Each read is a generator that yields the seconds to wait before each retry, so that few threads can
serve many waiting reads.

Source: provider's document, section Endpoints.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from urllib.parse import urlencode

import msgspec

from nftsync.errors import (
    InputError,
    NoConnection,
    ProxyFailed,
    ReadError,
    Stopped,
    UnusableResponse,
    may_pass,
)
from nftsync.provider.config import ClientConfig, Paging
from nftsync.provider.paging import PAGING_HEADERS, PagePosition, continuation_header
from nftsync.provider.rate_limit import Auth, GiveUpRule, RateLimiter, Slots
from nftsync.provider.refusals import passing_refusal, refusal
from nftsync.provider.waits import asked_wait, parse_date
from nftsync.provider.wire import (
    WalletList,
    check_object,
    decode_token,
    decode_wallet,
    without_duplicates,
)
from nftsync.records import Content, Effort, Entry, NewField, normalize_uuid
from nftsync.times import growing_wait

if TYPE_CHECKING:
    from nftsync.provider.network import Network
    from nftsync.provider.transport import Response

_T = TypeVar("_T")

_PATH = re.compile(r"/[!-~]*")
#: The most pages of one wallet; endless paging is a fault, not a large wallet.
_MOST_PAGES = 10_000
#: The longest query, in characters; servers refuse longer URLs.
_LONGEST_QUERY = 8_000
#: RFC 9110, section 8.8.3; anything else, above all `*`, makes a meaningless condition.
_ENTITY_TAG = re.compile(r'(?:W/)?"[!#-~]*"')
_LONGEST_WAIT = 30.0  # in seconds
#: After this many failed attempts in a row, the provider is presumed down.
_ALL_FAIL = 2_000


def finish(read: Generator[float, None, _T]) -> _T:
    while True:
        try:
            time.sleep(next(read))
        except StopIteration as done:
            return cast(_T, done.value)


class Access(NamedTuple):
    """The objects that a provider's clients share."""

    limiter: RateLimiter
    auth: Auth
    network: Network


def access_to(config: ClientConfig, *, at_once: int | None = None) -> Access:
    """Return an access for several clients, with at most `at_once` requests in flight."""
    from nftsync.provider.network import network_of  # loads httpx, which is slow

    auth = Auth(config.api_token, token_command=config.token_command, headers=config.headers)
    return Access(RateLimiter(config.rate_limit, at_once=at_once), auth, network_of(config))


class Client(AbstractContextManager["Client"]):
    """Client of one provider for any number of threads, each with its own connection."""

    def __init__(
        self,
        config: ClientConfig,
        access: Access | None = None,
        *,
        urgent: bool = False,
        rule: GiveUpRule | None = None,
    ) -> None:
        """Prepare to read; `urgent` requests go before others of the same access."""
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
        """Send no more requests, and end open ones with `Stopped`."""
        self._slots.stopped.set()
        self._transports.abort()

    def release(self) -> None:
        """Free the memory of this thread's last response."""
        self._large.release()

    def close(self) -> None:
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

        `etag` and `known_digest` belong to the stored response: the same body is not decoded.
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
            if is_new or not PAGING_HEADERS.keys().isdisjoint(response.headers):
                page = self._decoded(response)
                doubt = page.doubt or self._continuation_header(response, 1, 0, len(page.entries))
                if is_new or doubt is not None:
                    entries = without_duplicates(page.entries)
                    return WalletList(entries, doubt, None, digest, new_etag, page.new_fields)
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

        Returns the JSON object as sent, but with lone surrogates replaced. InputError: the path
        cannot be sent.
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
        news: dict[str, NewField] = {}
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
            news |= page.new_fields
            limits = self._config
            if size > limits.max_bytes or len(entries) > limits.max_entries:
                raise UnusableResponse(
                    f"the pages together contain more than {limits.max_bytes:,} bytes or "
                    f"{limits.max_entries:,} entries; reading stopped"
                )
            digest.update(hashlib.sha256(response.body).digest())
            doubt, cursor = doubt or page.doubt, page.cursor
            if cursor is None:  # on the last page, no header may indicate more
                doubt = doubt or self._continuation_header(response, number, before, len(entries))
                if digest.hexdigest() == known_digest and doubt is None:
                    return _unchanged(known_digest)
                entries = without_duplicates(entries)
                return WalletList(entries, doubt, digest=digest.hexdigest(), new_fields=news)
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

    def _continuation_header(
        self, response: Response, page: int, before: int, until: int
    ) -> str | None:
        if PAGING_HEADERS.keys().isdisjoint(response.headers):  # nearly always
            return None
        position = PagePosition(page, before, until)
        return continuation_header(response.headers, self._ignored_headers, position)

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

        Yields the rest of the wait before each retry. If the caller throws `Stopped` in, the read
        fails with the error of the last attempt. With `etag`, `read` also gets 304 responses.
        `is_first`: not a further page, so the request sets the read's sequence number.
        """
        sending = effort.sending if is_first else lambda: None

        def send() -> tuple[Response, int]:
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
            status = response.status
            self._dated = response.headers, datetime.now(UTC)
            is_whole = 200 <= status < 300 and status != 206
            if not is_whole and not (status == 304 and conditional):
                raise self._refused(response)
            self._rule.count_response(status)
            result = read(response)
        except ReadError as error:
            self._failed_in_a_row = self._failed_in_a_row + 1 if error.passing else 0
            raise
        self._failed_in_a_row = 0
        return result

    def _refused(self, response: Response) -> ReadError:
        wait = asked_wait(response.status, response.headers)
        # A 403 that asks to wait refuses no credentials; it counts as a 429 everywhere.
        status = 429 if wait is not None else response.status
        self._rule.count_response(status, self._auth.advice)
        if response.status == 407 and self.proxy is not None:
            return ProxyFailed(f"the proxy {self.proxy} refused: 407", final=True)
        if wait is None and not may_pass(status):
            return refusal(response, self._requests.base_url, self._auth, self._sent_secret)
        error = passing_refusal(response.status, wait)
        if status == 429 and error.passing:
            self._limiter.pause(self._config.first_wait if wait is None else wait)
        return error

    def _wait_after(self, attempt: int) -> float:
        return growing_wait(self._config.first_wait, _LONGEST_WAIT, attempt - 1) + self._jitter()

    def _jitter(self) -> float:
        return random.uniform(0.0, self._config.first_wait)  # noqa: S311 - not for security

    def _block(self, wait: float, status: int | None) -> float:
        """Block this thread if retries alone would not slow down; return the rest of the wait.

        Otherwise, other objects' requests would follow just as fast. A thread with a large response
        must not start another read.
        """
        blocked = 0.0
        if status == 429 or self._large.has_place:
            blocked = wait
        elif self._failed_in_a_row >= _ALL_FAIL:
            blocked = min(wait, self._config.first_wait + self._jitter())
        if blocked and self._slots.stopped.wait(blocked):
            raise Stopped("stopped")
        return wait - blocked


def _unchanged(digest: str, etag: str | None = None) -> WalletList:
    return WalletList([], digest=digest, etag=etag, unchanged=True)


def _entity_tag(text: str | None) -> str | None:
    good = text is not None and len(text) <= _LONGEST_QUERY and _ENTITY_TAG.fullmatch(text)
    return text if good else None
