"""The provider's calls, politely repeated and strictly read.

Source: provider's document, section Endpoints. What it calls "not shown" arrives here as an
argument: credentials (`Auth`), paging (`Paging`), the rate (`Pace`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

import msgspec

from nftsync.errors import InputError, UnusableAnswer
from nftsync.provider.connection import Answer
from nftsync.provider.credentials import Auth
from nftsync.provider.exchange import Exchange, Health, Tally
from nftsync.provider.rate_limiter import Lane, Pace
from nftsync.provider.wire import (
    WalletPage,
    check_object,
    decode_token,
    decode_wallet,
    each_token_once,
)
from nftsync.records import Content, Entry, normalize_uuid

__all__ = ["Balances", "Client", "Paging"]

#: Pages of one wallet; a cursor that never ends is a fault, not a large wallet.
_MOST_PAGES = 10_000
#: Servers refuse longer addresses.
_LONGEST_QUERY = 8_000
_PATH = re.compile(r"/[!-~]*")


class Paging(NamedTuple):
    """How the provider pages, where it does (provider's document: not shown).

    Attributes:
        next: the response field that carries a cursor.
        param: the query parameter that takes it.
    """

    next: str
    param: str


class Balances(NamedTuple):
    """A wallet's balances as they were answered.

    Attributes:
        entries: None where the answer was the known one.
        digest: SHA-256 of the body, or of all pages.
        etag: the validator that came with it.
        unknown_field: a top-level field nobody declared known; the list may then be a part.
    """

    entries: list[Entry] | None
    digest: str
    etag: str | None
    unknown_field: str | None


class Client:
    """Reads one provider from any number of threads, each over a connection of its own."""

    def __init__(
        self,
        base_url: str,
        *,
        auth: Auth | None = None,
        pace: Lane | None = None,
        health: Health | None = None,
        timeout: float = 30.0,
        attempts: int = 5,
        ignore_fields: Collection[str] = (),
        paging: Paging | None = None,
        max_bytes: int = 64 * 1024 * 1024,
        first_wait: float = 0.5,
    ) -> None:
        """Prepare to read.

        Args:
            base_url: the provider's base address.
            auth: credentials.
            pace: a lane of the pace that all who read this provider share.
            health: told of every answer and of every request without one.
            timeout: seconds for a whole attempt.
            attempts: attempts per request, the first included.
            ignore_fields: top-level fields of a balances answer that are known to mean nothing.
            paging: how the provider pages, or None where it doesn't.
            max_bytes: the greatest body that is read.
            first_wait: seconds before the first repeat; later waits grow from it.
        """
        self.pace = pace or Pace().lane()
        self._exchange = Exchange(
            base_url,
            auth=auth or Auth(),
            pace=self.pace,
            health=health or Health(),
            timeout=timeout,
            attempts=attempts,
            max_bytes=max_bytes,
            first_wait=first_wait,
        )
        self._ignore_fields = frozenset(ignore_fields)
        self._paging = paging

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._exchange.close()

    def balances(
        self,
        wallet_id: str,
        effort: Tally,
        *,
        etag: str | None = None,
        known_digest: str | None = None,
    ) -> Balances:
        """Read a wallet's balances (provider's document, GET .../nft-balances).

        Args:
            wallet_id: the wallet.
            effort: where the requests are counted.
            etag: the validator of the answer the mirror holds; not used with paging.
            known_digest: that answer's digest; the same body is not decoded again.

        Raises:
            ReadError: it failed for good.
            Stopped: the pace was stopped.
        """
        path = f"/v1/wallets/{normalize_uuid(wallet_id, 'wallet id')}/nft-balances"
        if self._paging is None:
            return self._whole_list(path, effort, etag if known_digest else None, known_digest)
        return self._paged_list(path, effort, self._paging, known_digest)

    def token(self, token_id: str, effort: Tally) -> Content:
        """Read a single token (provider's document, GET /v1/tokens/{tokenId}).

        Raises:
            ReadError: it failed for good.
            Stopped: the pace was stopped.
        """
        token_id = normalize_uuid(token_id, "token id")
        path = f"/v1/tokens/{token_id}"
        return self._exchange.call(
            "GET", path, effort, lambda answer: decode_token(answer.body, token_id)
        )

    def object(self, path: str, effort: Tally) -> bytes:
        """Read any object (provider's document, Follow-up read of a webhook's object).

        Args:
            path: path and query below the base address, already encoded.
            effort: where the requests are counted.

        Returns:
            The JSON object as it was sent; only lone surrogates, which no text can hold, are
            replaced.

        Raises:
            InputError: the path cannot be sent.
            ReadError: it failed for good.
            Stopped: the pace was stopped.
        """
        if _PATH.fullmatch(path) is None:
            raise InputError(f"{path[:80]!r} is no encoded path: nothing was asked for")
        return self._exchange.call("GET", path, effort, lambda answer: check_object(answer.body))

    def configure_webhooks(self, changes: Mapping[str, Any]) -> None:
        """Change the organization's webhook configuration (provider's document, PATCH).

        Args:
            changes: any of `url`, `enabled`, `sharedSecret`, `webhookTypes`.

        Raises:
            ReadError: the provider refused or did not answer.
        """
        path = "/api/organization/v1/current-organization/webhook-config"
        body = msgspec.json.encode(changes)
        self._exchange.call("PATCH", path, Tally(), lambda _: None, body=body)

    def _whole_list(
        self, path: str, effort: Tally, etag: str | None, known_digest: str | None
    ) -> Balances:
        def read(answer: Answer) -> Balances:
            if answer.status == 304:
                return Balances(None, known_digest or "", None, None)
            digest = hashlib.sha256(answer.body).hexdigest()
            new_etag = _etag(answer)
            if digest == known_digest:
                return Balances(None, digest, new_etag, None)
            page = decode_wallet(answer.body, known_fields=self._ignore_fields)
            entries = each_token_once(page.entries)
            return Balances(entries, digest, new_etag, page.unknown_field)

        return self._exchange.call("GET", path, effort, read, etag=etag)

    def _paged_list(
        self, path: str, effort: Tally, paging: Paging, known_digest: str | None
    ) -> Balances:
        entries: list[Entry] = []
        digest = hashlib.sha256()
        unknown = cursor = None
        seen: set[str] = set()
        for _ in range(_MOST_PAGES):
            query = "" if cursor is None else "?" + urlencode({paging.param: cursor})
            if len(query) > _LONGEST_QUERY:
                raise UnusableAnswer(f"$.{paging.next}: the cursor is too long to be sent")

            def read(answer: Answer) -> tuple[bytes, WalletPage]:
                return answer.body, decode_wallet(
                    answer.body, known_fields=self._ignore_fields, cursor_field=paging.next
                )

            body, page = self._exchange.call("GET", path + query, effort, read)
            digest.update(hashlib.sha256(body).digest())
            entries += page.entries
            unknown = unknown or page.unknown_field
            cursor = page.cursor
            if cursor is None:
                same = digest.hexdigest() == known_digest
                whole = None if same else each_token_once(entries)
                return Balances(whole, digest.hexdigest(), None, unknown)
            if cursor in seen:
                raise UnusableAnswer(f"$.{paging.next}: the cursor {cursor[:80]!r} comes again")
            seen.add(cursor)
        raise UnusableAnswer(f"more than {_MOST_PAGES:,} pages")


def _etag(answer: Answer) -> str | None:
    """The answer's validator, if it is one that can be sent back."""
    etag = answer.headers.get("etag", "")
    return etag if etag.isascii() and 0 < len(etag) <= _LONGEST_QUERY else None
