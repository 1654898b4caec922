"""The calls of the provider's API, with retries and strict parsing.

Each is a generator of the seconds to wait before each repeat; `yield from` gives its result. So
many reads can wait while few threads read.

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

from nftsync.errors import InputError, UnusableAnswer
from nftsync.provider.config import ClientConfig, Paging
from nftsync.provider.limits import GiveUpRule, Slots
from nftsync.provider.wire import (
    WalletList,
    check_object,
    decode_token,
    decode_wallet,
    each_token_once,
)
from nftsync.records import Content, Effort, Entry, normalize_uuid

if TYPE_CHECKING:
    from nftsync.provider.access import Access
    from nftsync.provider.transport import Response

_T = TypeVar("_T")

_PATH = re.compile(r"/[!-~]*")
#: Pages of one wallet; a cursor that never ends is a fault, not a large wallet.
_MOST_PAGES = 10_000
#: Servers refuse longer addresses.
_LONGEST_QUERY = 8_000
#: RFC 9110, section 8.8.3; anything else, `*` above all, would make a condition that says nothing.
_ENTITY_TAG = re.compile(r'(?:W/)?"[!#-~]*"')
_NEXT_LINK = re.compile(r';\s*rel\s*=\s*(?:"[^"]*)?(?<![\w-])next(?![\w-])', re.IGNORECASE)
_RANGE = re.compile(r"\s*[\w-]+ ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})\s*")
_DIGITS = re.compile(r"[0-9]{1,18}")


def finish(reading: Generator[float, None, _T]) -> _T:
    """Make a read, and wait before each repeat, in this thread.

    Raises:
        ReadError: it failed for good.
        Stopped: the client was stopped.
    """
    while True:
        try:
            time.sleep(next(reading))
        except StopIteration as done:
            return cast(_T, done.value)


class Client:
    """Reads one provider from any number of threads, each over a connection of its own.

    Attributes:
        proxy: the proxy that is used and where it was configured, without its password, or None.
    """

    def __init__(
        self,
        config: ClientConfig,
        access: Access | None = None,
        *,
        urgent: bool = False,
        rule: GiveUpRule | None = None,
    ) -> None:
        """Prepare to read.

        Args:
            config: how.
            access: shared with other clients; None for one of its own.
            urgent: its requests go before those of clients that share the access and are not.
            rule: when to send no more requests; None: never.

        Raises:
            SettingsError: the client cannot be made so.
        """
        # They load httpx, which takes long, and who never asks needs none. Not left to the
        # threads: who runs out of descriptors imports nothing.
        from nftsync.provider.access import access_to
        from nftsync.provider.retry import Exchange

        access = access or access_to(config)
        self._slots = Slots(access.limiter, urgent=urgent)
        if rule is not None:
            rule.stops(self._slots.stopped)
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
        """Get the token now and not with the first request; the provider is not asked.

        Raises:
            SettingsError: the token command failed.
        """
        self._auth.headers()

    @property
    def clock_ahead(self) -> float | None:
        """Seconds by which this clock is ahead of the provider's; None: no response told."""
        return self._exchange.clock_ahead

    def stop(self) -> None:
        """Send no more requests, and end those under way; their calls raise `Stopped`."""
        self._slots.stopped.set()
        self._exchange.transports.cut()

    def release(self) -> None:
        """Note that this thread has handed on what it last read, so that others have room."""
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

        Args:
            wallet_id: the wallet.
            effort: where the requests are counted.
            etag: the validator of the answer the mirror holds; not used with paging.
            known_digest: that answer's digest; the same body is not decoded again.
        """
        path = f"/v1/wallets/{normalize_uuid(wallet_id, 'wallet id')}/nft-balances"
        if self._config.paging is not None:
            return self._paged(path, effort, self._config.paging, known_digest)

        def read(response: Response) -> WalletList:
            if response.status == 304:
                return WalletList([], digest=known_digest or "", unchanged=True)
            digest = hashlib.sha256(response.body).hexdigest()
            new_etag = response.headers.get("etag")
            new_etag = new_etag if _can_be_sent_back(new_etag) else None
            is_same = digest == known_digest
            if is_same and _PAGING_HEADERS.keys().isdisjoint(response.headers):
                return WalletList([], digest=digest, etag=new_etag, unchanged=True)
            page = self._decoded(response)
            place = _Place(1, 0, len(page.entries))
            doubt = page.doubt or self._header_of_more(response, place)
            if is_same and doubt is None:
                return WalletList([], digest=digest, etag=new_etag, unchanged=True)
            return WalletList(each_token_once(page.entries), doubt, digest=digest, etag=new_etag)

        etag = etag if known_digest and _can_be_sent_back(etag) else None
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

        Args:
            path: path and query below the base address, already encoded.
            effort: where the requests are counted.

        Returns:
            The JSON object as it was sent; only lone surrogates, which no text can hold, are
            replaced.

        Raises:
            InputError: the path cannot be sent.
        """
        if _PATH.fullmatch(path) is None:
            raise InputError(f"{path[:80]!r} is no encoded path: nothing was asked for")
        return self._exchange.call(
            "GET", path, effort, lambda response: check_object(response.body)
        )

    def configure_webhooks(self, changes: Mapping[str, Any]) -> None:
        """Change the organization's webhook configuration (provider's document, PATCH).

        Args:
            changes: any of `url`, `enabled`, `sharedSecret`, `webhookTypes`.

        Raises:
            ReadError: the provider refused or did not answer.
        """
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
        seen: set[str] = set()

        def read(response: Response) -> tuple[Response, WalletList]:
            self._exchange.large.hold(size + len(response.body))
            return response, self._decoded(response, paging.next)

        for number in range(1, _MOST_PAGES + 1):
            query = "" if cursor is None else "?" + urlencode({paging.param: cursor})
            if len(query) > _LONGEST_QUERY:
                raise UnusableAnswer(f"$.{paging.next}: the cursor is too long to be sent")
            response, page = yield from self._exchange.call(
                "GET", path + query, effort, read, is_first=cursor is None
            )
            before = len(entries)
            size += len(response.body)
            entries += page.entries
            most = self._config
            if size > most.max_bytes or len(entries) > most.max_entries:
                raise UnusableAnswer(
                    f"the pages together hold more than {most.max_bytes:,} bytes or "
                    f"{most.max_entries:,} entries, and were not read further"
                )
            digest.update(hashlib.sha256(response.body).digest())
            doubt, cursor = doubt or page.doubt, page.cursor
            if cursor is None:  # only now does a header that tells of more contradict it
                place = _Place(number, before, len(page.entries))
                doubt = doubt or self._header_of_more(response, place)
                if digest.hexdigest() == known_digest and doubt is None:
                    return WalletList([], digest=known_digest, unchanged=True)
                return WalletList(each_token_once(entries), doubt, digest=digest.hexdigest())
            if cursor in seen:
                raise UnusableAnswer(f"$.{paging.next}: the cursor {cursor[:80]!r} comes again")
            seen.add(cursor)
        raise UnusableAnswer(f"more than {_MOST_PAGES:,} pages")

    def _header_of_more(self, response: Response, place: _Place) -> str | None:
        """Return a header that says that the list continues, as a message names it, or None.

        The provider's document shows no paging, and headers are how many APIs page.
        """
        for name, says_more in _PAGING_HEADERS.items():
            value = response.headers.get(name)
            if value is not None and name not in self._ignored_headers and says_more(value, place):
                return f"the header {name.title()}: {value[:80]!r}"
        return None


def _can_be_sent_back(etag: str | None) -> bool:
    """Whether this is a validator by which a provider can tell one answer from another."""
    return etag is not None and len(etag) <= _LONGEST_QUERY and bool(_ENTITY_TAG.fullmatch(etag))


class _Place(NamedTuple):
    """Where in a list a response is: the number of its page, the entries before, and its own."""

    page: int
    before: int
    entries: int


def _link(value: str, _: _Place) -> bool:
    return _NEXT_LINK.search(value) is not None


def _content_range(value: str, place: _Place) -> bool:
    part = _RANGE.fullmatch(value)
    return part is None or int(part[1]) > place.before or int(part[2]) + 1 < int(part[3])


def _total_count(value: str, place: _Place) -> bool:
    return bool(_DIGITS.fullmatch(value)) and int(value) > place.before + place.entries


def _total_pages(value: str, place: _Place) -> bool:
    return bool(_DIGITS.fullmatch(value)) and int(value) > place.page


def _next_page(value: str, _: _Place) -> bool:
    return value.strip() != ""


def _has_more(value: str, _: _Place) -> bool:
    return value.strip().lower() not in {"", "false", "no", "0"}


#: Headers by which APIs page, and whether a value of each says that more follows: RFC 8288,
#: RFC 9110 (14.4), and customs of many APIs.
_PAGING_HEADERS: dict[str, Callable[[str, _Place], bool]] = {
    "link": _link,
    "content-range": _content_range,
    "x-total-count": _total_count,
    "x-total-pages": _total_pages,
    "x-next-page": _next_page,
    "x-has-more": _has_more,
}
