"""A wallet's list, in one answer or on pages, and what says that it may be only a part."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Collection, Generator, Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from nftsync.errors import UnusableAnswer
from nftsync.provider.bodies import Room
from nftsync.provider.client import ClientConfig
from nftsync.provider.retry import Exchange
from nftsync.provider.routes import Paging
from nftsync.provider.transport import Response
from nftsync.provider.wire import WalletPage, decode_wallet, each_token_once
from nftsync.records import Effort, Entry

__all__ = ["Balances", "Lists"]

#: Pages of one wallet; a cursor that never ends is a fault, not a large wallet.
_MOST_PAGES = 10_000
#: Servers refuse longer addresses.
_LONGEST_QUERY = 8_000
#: RFC 9110, section 8.8.3; anything else, `*` above all, would make a condition that says nothing.
_ENTITY_TAG = re.compile(r'(?:W/)?"[!#-~]*"')
#: Headers by which APIs page: RFC 8288, RFC 9110 (14.4), and a custom of many.
_PAGING_HEADERS = frozenset({"link", "content-range", "x-total-count"})
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
            if digest == known_digest and _PAGING_HEADERS.isdisjoint(response.headers):
                return Balances(None, digest, new_etag, None)
            page = self._page(response)
            doubt = page.doubt or self._header_of_more(response, 0, len(page.entries))
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
            for _ in range(_MOST_PAGES):
                query = "" if cursor is None else "?" + urlencode({paging.param: cursor})
                if len(query) > _LONGEST_QUERY:
                    raise UnusableAnswer(f"$.{paging.next}: the cursor is too long to be sent")
                response, page = yield from self._exchange.call("GET", path + query, effort, read)
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
                    doubt = doubt or self._header_of_more(response, before, len(page.entries))
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

    def _header_of_more(self, response: Response, before: int, entries: int) -> str | None:
        return _header_of_more(response.headers, before, entries, self._ignored)


def _can_be_sent_back(etag: str | None) -> bool:
    """Whether this is a validator by which a provider can tell one answer from another."""
    return etag is not None and len(etag) <= _LONGEST_QUERY and bool(_ENTITY_TAG.fullmatch(etag))


def _header_of_more(
    headers: Mapping[str, str], before: int, entries: int, ignored: Collection[str]
) -> str | None:
    """Find a header that says that a list goes on behind this answer.

    The provider's document shows no paging, and headers are how many APIs page.

    Args:
        headers: the answer's, whatever the case of their names.
        before: entries of the pages before it.
        entries: its own.
        ignored: names of headers that are known to mean nothing.

    Returns:
        The header as a message names it, or None.
    """
    known = {name.lower() for name in ignored}
    for name in sorted(_PAGING_HEADERS.difference(known).intersection(headers)):
        value = headers[name]
        if name == "link":
            more = _NEXT_LINK.search(value) is not None
        elif name == "content-range":
            part = _RANGE.fullmatch(value)
            more = part is None or int(part[1]) > before or int(part[2]) + 1 < int(part[3])
        else:
            more = bool(_DIGITS.fullmatch(value)) and int(value) > before + entries
        if more:
            return f"the header {name.title()}: {value[:80]!r}"
    return None
