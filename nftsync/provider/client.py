"""How to read a provider, and its calls, politely repeated and strictly read.

Source: provider's document, section Endpoints. What it calls "not shown" is a field of
`ClientConfig`: the credentials, the paging, the rate.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import msgspec

from nftsync.errors import InputError, Stopped
from nftsync.provider.bodies import NoRoom
from nftsync.provider.config import ClientConfig
from nftsync.provider.give_up import GiveUpRule
from nftsync.provider.rate_limiter import Slots
from nftsync.provider.wire import check_object, decode_token
from nftsync.records import Content, Effort, normalize_uuid

if TYPE_CHECKING:
    from nftsync.provider.lists import Balances
    from nftsync.provider.network import Access


_T = TypeVar("_T")

_PATH = re.compile(r"/[!-~]*")
#: How often, and how many first waits each time, a large answer waits until others are done with.
_MOST_WAITS = 200
_WAIT_FOR_ROOM = 2.0, 6.0


class Call(Generic[_T]):
    """A read under way, made by whoever iterates it: up to its result, or to the next wait.

    Iterating gives the seconds to wait before each repeat; `yield from` gives the result. So many
    reads can wait while few threads read. Who reads just one object asks for the `result`.
    """

    def __init__(
        self,
        steps: Generator[float, None, _T],
        sleep: Callable[[float], None],
        let_go: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin nothing yet; `sleep` is how `result` waits, `let_go` is `Client.let_go`."""
        self._steps = steps
        self._sleep = sleep
        self._let_go = let_go

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
            finally:
                self._let_go()
            self._sleep(wait)


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
        # Slow to import. Not left to the threads: who runs out of descriptors imports nothing.
        from nftsync.provider.lists import Lists
        from nftsync.provider.network import access_to
        from nftsync.provider.retry import Exchange

        access = access or access_to(config)
        self._slots = Slots(access.limiter, urgent=urgent)
        if rule is not None:
            rule.stops(self._slots.stopped)
        self._auth = access.auth
        self._exchange = Exchange(config, access, self._slots, rule or GiveUpRule())
        self._lists = Lists(self._exchange, config)
        self._first_wait = config.first_wait
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

    def let_go(self) -> None:
        """Say that this thread has handed on what it last read, so that others find room for it."""
        self._exchange.transports.let_go()
        self._lists.let_go()

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
        return self._call(effort, lambda: self._lists.read(path, effort, etag, known_digest))

    def token(self, token_id: str, effort: Effort) -> Call[Content]:
        """Read a single token (provider's document, GET /v1/tokens/{tokenId})."""
        token_id = normalize_uuid(token_id, "token id")
        path = f"/v1/tokens/{token_id}"
        return self._call(
            effort,
            lambda: self._exchange.call(
                "GET", path, effort, lambda response: decode_token(response.body, token_id)
            ),
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
            effort,
            lambda: self._exchange.call(
                "GET", path, effort, lambda response: check_object(response.body)
            ),
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
        effort = Effort()
        self._call(
            effort, lambda: self._exchange.call("PATCH", path, effort, lambda _: None, body=body)
        ).result()

    def _call(self, effort: Effort, begin: Callable[[], Generator[float, None, _T]]) -> Call[_T]:
        reads = _once_there_is_room(effort, begin, self._first_wait)
        return Call(reads, self._slots.sleep, self.let_go)


def _once_there_is_room(
    effort: Effort, begin: Callable[[], Generator[float, None, _T]], first_wait: float
) -> Generator[float, None, _T]:
    """Make a read; one of a large answer waits, and takes no attempts, while others are held."""
    for _ in range(_MOST_WAITS):
        try:
            return (yield from begin())
        except NoRoom as error:
            failed = error.with_traceback(None)
        try:
            yield first_wait * random.uniform(*_WAIT_FOR_ROOM)  # noqa: S311
        except Stopped:
            break
        effort.retries += 1
    raise failed
