"""How to read a provider, and its calls, politely repeated and strictly read.

Source: provider's document, section Endpoints. What it calls "not shown" is a field of
`ClientConfig`: the credentials, the paging, the rate.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, cast
from urllib.parse import urlencode

import msgspec

from nftsync.errors import InputError, UnusableAnswer
from nftsync.provider.credentials import Auth
from nftsync.provider.rate_limiter import RateLimiter, Slots
from nftsync.provider.routes import Paging
from nftsync.provider.wire import (
    WalletPage,
    check_object,
    decode_token,
    decode_wallet,
    each_token_once,
)
from nftsync.records import Content, Effort, Entry, normalize_uuid

if TYPE_CHECKING:
    from nftsync.provider.transport import Network, Response

__all__ = ["Access", "Balances", "Call", "CircuitBreaker", "Client", "ClientConfig"]

_T = TypeVar("_T")

#: Pages of one wallet; a cursor that never ends is a fault, not a large wallet.
_MOST_PAGES = 10_000
#: Servers refuse longer addresses.
_LONGEST_QUERY = 8_000
#: Responses from the beginning that are all refusals, and requests in a row without a connection.
_REFUSALS = 20
_UNANSWERED = 50
_PATH = re.compile(r"/[!-~]*")


class Access(NamedTuple):
    """What all clients of one provider share in a process.

    Attributes:
        limiter: how fast all of them together ask.
        auth: the credentials; a token command runs once for all.
        network: the address, the proxy and the certificates.
    """

    limiter: RateLimiter
    auth: Auth
    network: Network


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How to read a provider; it can be handed to another process. Its repr shows no secret.

    Attributes:
        base_url: the provider's base address.
        api_token: sent as `Authorization: Bearer ...`.
        token_command: a command line whose standard output is the token.
        headers: sent as they are.
        proxy: the URL of a proxy; None for the environment's, blank for none at all.
        proxy_source: where `proxy` came from, for messages.
        ca_file: trust only what these certificates signed; None for the system's.
        client_certificate: shows who we are.
        client_key: its private key, where it is in another file.
        rate_limit: requests per second, or None.
        timeout: seconds for a whole attempt.
        attempts: attempts per request, the first included.
        first_wait: seconds before the first repeat; later waits grow from it.
        max_bytes: the greatest body that is read.
        ignore_fields: top-level fields of a balances response that are known to mean nothing.
        paging: how the provider pages, or None where it doesn't.
    """

    base_url: str
    api_token: str | None = None
    token_command: str | None = None
    headers: dict[str, str] = {}
    proxy: str | None = None
    proxy_source: str = "the caller"
    ca_file: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    rate_limit: float | None = None
    timeout: float = 30.0
    attempts: int = 5
    first_wait: float = 0.5
    max_bytes: int = 64 * 1024 * 1024
    ignore_fields: list[str] = []
    paging: Paging | None = None

    def __repr__(self) -> str:
        return f"ClientConfig(base_url={self.base_url!r}, ...)"

    def access(self, *, at_once: int | None = None) -> Access:
        """Make what several clients can share.

        Args:
            at_once: requests in flight over all of them, or None for no bound.

        Raises:
            SettingsError: the address, the proxy, a certificate or the credentials cannot be used.
        """
        from nftsync.provider.transport import network_of  # slow to import

        auth = Auth(self.api_token, token_command=self.token_command, headers=self.headers)
        return Access(RateLimiter(self.rate_limit, at_once=at_once), auth, network_of(self))


class Balances(NamedTuple):
    """A wallet's balances as they were sent.

    Attributes:
        entries: None where the response was the known one.
        digest: SHA-256 of the body, or of all pages.
        etag: the validator that came with it.
        unknown_field: a top-level field nobody declared known; the list may then be a part.
    """

    entries: list[Entry] | None
    digest: str
    etag: str | None
    unknown_field: str | None


class CircuitBreaker:
    """Counts responses over all threads of a client and says when to give up.

    Attributes:
        reason: why going on has no point, or None while it has.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._lock = threading.Lock()
        self._answers = 0
        self._all_refused = True
        self._unanswered = 0

    def answered(self, status: int) -> None:
        """Count a response."""
        if self._answers >= _REFUSALS and not self._unanswered:
            return
        with self._lock:
            self._unanswered = 0
            self._answers += 1
            self._all_refused &= status in {401, 403}
            if self._answers == _REFUSALS and self._all_refused:
                self.reason = (
                    f"the first {_REFUSALS} answers were all 401 or 403: the provider does not "
                    "accept these credentials; check api_token, token_command or headers"
                )

    def unanswered(self, why: str) -> None:
        """Count a request that got no connection."""
        with self._lock:
            self._unanswered += 1
            if self._unanswered == _UNANSWERED:
                self.reason = (
                    f"{_UNANSWERED} requests in a row got no connection ({why}); is the provider "
                    "up, and base_url right?"
                )


class Call(Generic[_T]):
    """A read under way, made by whoever iterates it: up to its result, or to the next wait.

    Iterating gives the seconds to wait before each repeat; `yield from` gives the result. So many
    reads can wait while few threads read. Who reads just one object asks for the `result`.
    """

    def __init__(self, steps: Generator[float, None, _T], sleep: Callable[[float], None]) -> None:
        """Begin nothing yet; `sleep` is how `result` waits."""
        self._steps = steps
        self._sleep = sleep

    def __iter__(self) -> Generator[float, None, _T]:
        return self._steps

    def result(self) -> _T:
        """Make the read, and wait in this thread.

        Raises:
            ReadError: it failed for good.
            Stopped: the client was stopped.
        """
        while True:
            try:
                wait = next(self._steps)
            except StopIteration as done:
                return cast(_T, done.value)
            self._sleep(wait)


class Client:
    """Reads one provider from any number of threads, each over a connection of its own.

    Attributes:
        breaker: told of every response and of every request without one.
        proxy: the proxy that is used and where it was configured, without its password, or None.
    """

    def __init__(
        self, config: ClientConfig, access: Access | None = None, *, urgent: bool = False
    ) -> None:
        """Prepare to read.

        Args:
            config: how.
            access: shared with other clients; None for one of its own.
            urgent: its requests go before those of clients that share the access and are not.

        Raises:
            SettingsError: the client cannot be made so.
        """
        # Slow to import. Not left to the threads: who runs out of descriptors imports nothing.
        from nftsync.provider.retry import Exchange

        access = access or config.access()
        self.breaker = CircuitBreaker()
        self._slots = Slots(access.limiter, urgent=urgent)
        self._auth = access.auth
        self._exchange = Exchange(config, access, self._slots, self.breaker)
        self.proxy = None if access.network.proxy is None else str(access.network.proxy)
        self._ignore_fields = frozenset(config.ignore_fields)
        self._paging = config.paging

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

    def stop(self) -> None:
        """Send no more requests, and end those under way; their calls raise `Stopped`."""
        self._slots.stopped.set()
        self._exchange.transports.cut()

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
    ) -> Call[Balances]:
        """Read a wallet's balances (provider's document, GET .../nft-balances).

        Args:
            wallet_id: the wallet.
            effort: where the requests are counted.
            etag: the validator of the answer the mirror holds; not used with paging.
            known_digest: that answer's digest; the same body is not decoded again.
        """
        path = f"/v1/wallets/{normalize_uuid(wallet_id, 'wallet id')}/nft-balances"
        if self._paging is not None:
            return self._call(self._paged_list(path, effort, self._paging, known_digest))

        def read(response: Response) -> Balances:
            if response.status == 304:
                return Balances(None, known_digest or "", None, None)
            digest = hashlib.sha256(response.body).hexdigest()
            new_etag = _etag(response)
            if digest == known_digest:
                return Balances(None, digest, new_etag, None)
            page = decode_wallet(response.body, known_fields=self._ignore_fields)
            return Balances(each_token_once(page.entries), digest, new_etag, page.unknown_field)

        etag = etag if known_digest else None
        return self._call(self._exchange.call("GET", path, effort, read, etag=etag))

    def token(self, token_id: str, effort: Effort) -> Call[Content]:
        """Read a single token (provider's document, GET /v1/tokens/{tokenId})."""
        token_id = normalize_uuid(token_id, "token id")
        path = f"/v1/tokens/{token_id}"
        return self._call(
            self._exchange.call(
                "GET", path, effort, lambda response: decode_token(response.body, token_id)
            )
        )

    def object(self, path: str, effort: Effort) -> Call[bytes]:
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
        return self._call(
            self._exchange.call("GET", path, effort, lambda response: check_object(response.body))
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
        self._call(self._exchange.call("PATCH", path, Effort(), lambda _: None, body=body)).result()

    def _call(self, steps: Generator[float, None, _T]) -> Call[_T]:
        return Call(steps, self._slots.sleep)

    def _paged_list(
        self, path: str, effort: Effort, paging: Paging, known_digest: str | None
    ) -> Generator[float, None, Balances]:
        entries: list[Entry] = []
        digest = hashlib.sha256()
        unknown = cursor = None
        seen: set[str] = set()
        for _ in range(_MOST_PAGES):
            query = "" if cursor is None else "?" + urlencode({paging.param: cursor})
            if len(query) > _LONGEST_QUERY:
                raise UnusableAnswer(f"$.{paging.next}: the cursor is too long to be sent")

            def read(response: Response) -> tuple[bytes, WalletPage]:
                return response.body, decode_wallet(
                    response.body, known_fields=self._ignore_fields, cursor_field=paging.next
                )

            body, page = yield from self._exchange.call("GET", path + query, effort, read)
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


def _etag(response: Response) -> str | None:
    """The answer's validator, if it is one that can be sent back."""
    etag = response.headers.get("etag", "")
    return etag if etag.isascii() and 0 < len(etag) <= _LONGEST_QUERY else None
