"""A wallet's list, in one answer or on pages, and what says that it may be only a part."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Generator
from typing import NamedTuple
from urllib.parse import urlencode

from nftsync.errors import UnusableAnswer
from nftsync.provider.config import ClientConfig
from nftsync.provider.retry import Exchange
from nftsync.provider.routes import Paging
from nftsync.provider.transport import Response
from nftsync.provider.wire import WalletList, decode_wallet, each_token_once
from nftsync.records import Effort, Entry

#: Pages of one wallet; a cursor that never ends is a fault, not a large wallet.
_MOST_PAGES = 10_000
#: Servers refuse longer addresses.
_LONGEST_QUERY = 8_000
#: RFC 9110, section 8.8.3; anything else, `*` above all, would make a condition that says nothing.
_ENTITY_TAG = re.compile(r'(?:W/)?"[!#-~]*"')
_NEXT_LINK = re.compile(r';\s*rel\s*=\s*(?:"[^"]*)?(?<![\w-])next(?![\w-])', re.IGNORECASE)
_RANGE = re.compile(r"\s*[\w-]+ ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})\s*")
_DIGITS = re.compile(r"[0-9]{1,18}")


class WalletPages:
    """Reads wallets' lists, each in one answer or on pages."""

    def __init__(self, exchange: Exchange, config: ClientConfig) -> None:
        """Remember how the provider pages, and what means nothing."""
        self._exchange = exchange
        self._ignored = frozenset(config.ignore_fields)
        self._ignored_headers = {name.lower() for name in config.ignore_fields}
        self._paging = config.paging
        self._most_bytes = config.max_bytes
        self._most_entries = config.max_entries

    def read(
        self, path: str, effort: Effort, etag: str | None, known_digest: str | None
    ) -> Generator[float, None, WalletList]:
        """Begin to read a list; see `Client.balances`."""
        if self._paging is not None:
            return self._paged(path, effort, self._paging, known_digest)

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

    def _decoded(self, response: Response, cursor_field: str | None = None) -> WalletList:
        return decode_wallet(
            response.body,
            known_fields=self._ignored,
            cursor_field=cursor_field,
            most=self._most_entries,
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
            if size > self._most_bytes or len(entries) > self._most_entries:
                raise UnusableAnswer(
                    f"the pages together hold more than {self._most_bytes:,} bytes or "
                    f"{self._most_entries:,} entries, and were not read further"
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
