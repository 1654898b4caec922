"""The calls of a provider's API, politely repeated and strictly read.

Each is a generator of the seconds to wait before each repeat; `yield from` gives its result. So
many reads can wait while few threads read.

Source: provider's document, section Endpoints.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import msgspec

from nftsync.errors import InputError
from nftsync.provider.config import ClientConfig
from nftsync.provider.give_up import GiveUpRule
from nftsync.provider.rate_limiter import Slots
from nftsync.provider.wire import WalletList, check_object, decode_token
from nftsync.records import Content, Effort, normalize_uuid

if TYPE_CHECKING:
    from nftsync.provider.network import Access

_T = TypeVar("_T")

_PATH = re.compile(r"/[!-~]*")


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
        from nftsync.provider.network import access_to
        from nftsync.provider.pages import WalletPages
        from nftsync.provider.retry import Exchange

        access = access or access_to(config)
        self._slots = Slots(access.limiter, urgent=urgent)
        if rule is not None:
            rule.stops(self._slots.stopped)
        self._auth = access.auth
        self._exchange = Exchange(config, access, self._slots, rule or GiveUpRule())
        self._pages = WalletPages(self._exchange, config)
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
        return self._pages.read(path, effort, etag, known_digest)

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
