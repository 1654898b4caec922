"""A wallet's list, in one answer or on pages, and what says that it may be only a part."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Collection, Generator, Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from nftsync.errors import UnusableAnswer
from nftsync.provider.bodies import Room
from nftsync.provider.config import ClientConfig
from nftsync.provider.retry import Exchange
from nftsync.provider.routes import Paging
from nftsync.provider.transport import Response
from nftsync.provider.wire import WalletPage, decode_wallet, each_token_once
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


class Balances(NamedTuple):
    """A wallet's balances as they were sent.

    Attributes:
        entries: None where the response was the known one.
        digest: SHA-256 of the body, or of all pages.
        etag: the validator that came with it.
        doubt: what in the answer says that the list may be a part: a top-level field that nobody
            declared known, or a header that tells of more.
    """

    entries: list[Entry] | None
    digest: str
    etag: str | None
    doubt: str | None


class Lists:
    """Reads wallets' lists."""

    def __init__(self, exchange: Exchange, config: ClientConfig) -> None:
        """Remember how the provider pages, and what means nothing."""
        self._exchange = exchange
        self._ignored = frozenset(config.ignore_fields)
        self._paging = config.paging
        self._most_bytes = config.max_bytes
        self._most_entries = config.max_entries
        # Apart from that of single answers, for which whoever holds this may have to wait.
        self._room = Room(config.large_bytes)
        self._holding = threading.local()

    def let_go(self) -> None:
        """Let go of the last list that this thread put together from pages."""
        self._room.give_back(getattr(self._holding, "size", 0))
        self._holding.size = 0

    def read(
        self, path: str, effort: Effort, etag: str | None, known_digest: str | None
    ) -> Generator[float, None, Balances]:
        """Begin to read a list; see `Client.balances`."""
        if self._paging is not None:
            return self._paged(path, effort, self._paging, known_digest)

        def read(response: Response) -> Balances:
            if response.status == 304:
                return Balances(None, known_digest or "", None, None)
            digest = hashlib.sha256(response.body).hexdigest()
            new_etag = response.headers.get("etag")
            new_etag = new_etag if _can_be_sent_back(new_etag) else None
            if digest == known_digest and _PAGING_HEADERS.keys().isdisjoint(response.headers):
                return Balances(None, digest, new_etag, None)
            page = self._page(response)
            place = _Place(1, 0, len(page.entries))
            doubt = page.doubt or self._header_of_more(response, place)
            if digest == known_digest and doubt is None:
                return Balances(None, digest, new_etag, None)
            return Balances(each_token_once(page.entries), digest, new_etag, doubt)

        etag = etag if known_digest and _can_be_sent_back(etag) else None
        return self._exchange.call("GET", path, effort, read, etag=etag)

    def _page(self, response: Response, cursor_field: str | None = None) -> WalletPage:
        return decode_wallet(
            response.body,
            known_fields=self._ignored,
            cursor_field=cursor_field,
            most=self._most_entries,
        )

    def _paged(
        self, path: str, effort: Effort, paging: Paging, known_digest: str | None
    ) -> Generator[float, None, Balances]:
        entries: list[Entry] = []
        digest = hashlib.sha256()
        doubt = cursor = None
        size = 0
        seen: set[str] = set()

        def read(response: Response) -> tuple[Response, WalletPage]:
            return response, self._page(response, paging.next)

        try:
            for number in range(1, _MOST_PAGES + 1):
                query = "" if cursor is None else "?" + urlencode({paging.param: cursor})
                if len(query) > _LONGEST_QUERY:
                    raise UnusableAnswer(f"$.{paging.next}: the cursor is too long to be sent")
                response, page = yield from self._exchange.call(
                    "GET", path + query, effort, read, numbered=cursor is None
                )
                before, size = len(entries), self._room.take(size, len(response.body))
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
                    same = digest.hexdigest() == known_digest and doubt is None
                    whole = None if same else each_token_once(entries)
                    self._holding.size, size = size, 0
                    return Balances(whole, digest.hexdigest(), None, doubt)
                if cursor in seen:
                    raise UnusableAnswer(f"$.{paging.next}: the cursor {cursor[:80]!r} comes again")
                seen.add(cursor)
            raise UnusableAnswer(f"more than {_MOST_PAGES:,} pages")
        finally:
            self._room.give_back(size)

    def _header_of_more(self, response: Response, place: _Place) -> str | None:
        return _header_of_more(response.headers, place, self._ignored)


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


def _header_of_more(
    headers: Mapping[str, str], place: _Place, ignored: Collection[str]
) -> str | None:
    """Return a header that says that the list continues, as a message names it, or None.

    The provider's document shows no paging, and headers are how many APIs page.

    Args:
        headers: of the response, whatever the case of their names.
        place: where in the list the response is.
        ignored: names of headers that mean nothing.
    """
    ignored = {name.lower() for name in ignored}
    for name, says_more in _PAGING_HEADERS.items():
        if name in headers and name not in ignored and says_more(headers[name], place):
            return f"the header {name.title()}: {headers[name][:80]!r}"
    return None
