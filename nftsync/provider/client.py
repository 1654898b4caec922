"""The calls of the provider's API, with retries and strict parsing.

Each read is a generator that yields the seconds to wait before each retry and returns its result,
so that few threads can serve many waiting reads.

Source: provider's document, section Endpoints.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, cast
from urllib.parse import urlencode

import msgspec

from nftsync.errors import InputError, UnusableResponse
from nftsync.provider.config import ClientConfig, Paging
from nftsync.provider.limits import GiveUpRule, Slots
from nftsync.provider.wire import (
    WalletList,
    check_object,
    decode_token,
    decode_wallet,
    without_duplicates,
)
from nftsync.records import Content, Effort, Entry, normalize_uuid

if TYPE_CHECKING:
    from nftsync.provider.access import Access
    from nftsync.provider.transport import Response

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


def finish(read: Generator[float, None, _T]) -> _T:
    """Run a read in this thread, with its waits, and return the result."""
    while True:
        try:
            time.sleep(next(read))
        except StopIteration as done:
            return cast(_T, done.value)


class Client:
    """Client of one provider for any number of threads, each with its own connection.

    Attributes:
        proxy: the proxy and its source, without the password, or None.
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
        from nftsync.provider.access import access_to
        from nftsync.provider.retry import Exchange

        access = access or access_to(config)
        self._slots = Slots(access.limiter, urgent=urgent)
        if rule is not None:
            rule.register(self._slots.stopped)
        self._auth = access.auth
        self._exchange = Exchange(config, access, self._slots, rule or GiveUpRule())
        self._config = config
        self._ignored_headers = {name.lower() for name in config.ignore_fields}
        self.proxy = None if access.network.proxy is None else str(access.network.proxy)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sign_in(self) -> None:
        """Get the token now rather than with the first request."""
        self._auth.headers()

    @property
    def clock_ahead(self) -> float | None:
        """Seconds by which this clock is ahead of the provider's, or None."""
        return self._exchange.clock_ahead

    def stop(self) -> None:
        """Send no more requests, and end requests in flight with `Stopped`."""
        self._slots.stopped.set()
        self._exchange.transports.abort()

    def release(self) -> None:
        """Note that this thread has finished with its last response, to free memory."""
        self._exchange.large.release()

    def close(self) -> None:
        """Close all connections."""
        self._exchange.transports.close()

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
                return WalletList([], digest=known_digest or "", unchanged=True)
            digest = hashlib.sha256(response.body).hexdigest()
            new_etag = response.headers.get("etag")
            new_etag = new_etag if _is_entity_tag(new_etag) else None
            is_same = digest == known_digest
            if is_same and _PAGING_HEADERS.keys().isdisjoint(response.headers):
                return WalletList([], digest=digest, etag=new_etag, unchanged=True)
            page = self._decoded(response)
            position = _PagePosition(1, 0, len(page.entries))
            doubt = page.doubt or self._continuation_header(response, position)
            if is_same and doubt is None:
                return WalletList([], digest=digest, etag=new_etag, unchanged=True)
            return WalletList(without_duplicates(page.entries), doubt, digest=digest, etag=new_etag)

        etag = etag if known_digest and _is_entity_tag(etag) else None
        return self._exchange.call("GET", path, effort, read, etag=etag)

    def token(self, token_id: str, effort: Effort) -> Generator[float, None, Content]:
        """Read a single token (provider's document, GET /v1/tokens/{tokenId})."""
        token_id = normalize_uuid(token_id, "token id")
        path = f"/v1/tokens/{token_id}"
        return self._exchange.call(
            "GET", path, effort, lambda response: decode_token(response.body, token_id)
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
        return self._exchange.call(
            "GET", path, effort, lambda response: check_object(response.body)
        )

    def configure_webhooks(self, changes: Mapping[str, Any]) -> None:
        """Change `url`, `enabled`, `sharedSecret`, `webhookTypes` (provider's document, PATCH)."""
        path = "/api/organization/v1/current-organization/webhook-config"
        body = msgspec.json.encode(changes)
        finish(self._exchange.call("PATCH", path, Effort(), lambda _: None, body=body))

    def _decoded(self, response: Response, cursor_field: str | None = None) -> WalletList:
        return decode_wallet(
            response.body,
            known_fields=self._config.ignore_fields,
            cursor_field=cursor_field,
            most=self._config.max_entries,
        )

    def _paged(
        self, path: str, effort: Effort, paging: Paging, known_digest: str | None
    ) -> Generator[float, None, WalletList]:
        entries: list[Entry] = []
        digest = hashlib.sha256()
        doubt = cursor = None
        size = 0
        cursors: set[str] = set()

        def read(response: Response) -> tuple[Response, WalletList]:
            self._exchange.large.reserve(size + len(response.body))
            return response, self._decoded(response, paging.next)

        for number in range(1, _MOST_PAGES + 1):
            query = "" if cursor is None else "?" + urlencode({paging.param: cursor})
            if len(query) > _LONGEST_QUERY:
                raise UnusableResponse(f"$.{paging.next}: the cursor is too long to send")
            response, page = yield from self._exchange.call(
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
                position = _PagePosition(number, before, len(page.entries))
                doubt = doubt or self._continuation_header(response, position)
                if digest.hexdigest() == known_digest and doubt is None:
                    return WalletList([], digest=known_digest, unchanged=True)
                return WalletList(without_duplicates(entries), doubt, digest=digest.hexdigest())
            if cursor in cursors:
                raise UnusableResponse(f"$.{paging.next}: the cursor {cursor[:80]!r} repeats")
            cursors.add(cursor)
        raise UnusableResponse(f"more than {_MOST_PAGES:,} pages")

    def _continuation_header(self, response: Response, position: _PagePosition) -> str | None:
        """Name a header that indicates more pages; the provider's document shows no paging."""
        for name, indicates_more in _PAGING_HEADERS.items():
            value = response.headers.get(name)
            if (
                value is not None
                and name not in self._ignored_headers
                and indicates_more(value, position)
            ):
                return f"the header {name.title()}: {value[:80]!r}"
        return None


def _is_entity_tag(etag: str | None) -> bool:
    return etag is not None and len(etag) <= _LONGEST_QUERY and bool(_ENTITY_TAG.fullmatch(etag))


class _PagePosition(NamedTuple):
    """A page's number, the entries before it, and its entries."""

    page: int
    before: int
    entries: int


def _link(value: str, _: _PagePosition) -> bool:
    return _NEXT_LINK.search(value) is not None


def _content_range(value: str, position: _PagePosition) -> bool:
    match = _RANGE.fullmatch(value)
    return match is None or int(match[1]) > position.before or int(match[2]) + 1 < int(match[3])


def _total_count(value: str, position: _PagePosition) -> bool:
    return bool(_DIGITS.fullmatch(value)) and int(value) > position.before + position.entries


def _total_pages(value: str, position: _PagePosition) -> bool:
    return bool(_DIGITS.fullmatch(value)) and int(value) > position.page


def _next_page(value: str, _: _PagePosition) -> bool:
    return value.strip() != ""


def _has_more(value: str, _: _PagePosition) -> bool:
    return value.strip().lower() not in {"", "false", "no", "0"}


#: Paging headers, and whether a value indicates more: RFC 8288, RFC 9110 (14.4), and custom ones.
_PAGING_HEADERS: dict[str, Callable[[str, _PagePosition], bool]] = {
    "link": _link,
    "content-range": _content_range,
    "x-total-count": _total_count,
    "x-total-pages": _total_pages,
    "x-next-page": _next_page,
    "x-has-more": _has_more,
}
