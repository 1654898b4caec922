"""A client of the provider double, with short waits between attempts."""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest

from nftsync.errors import ReadError
from nftsync.provider.client import Client, access_to, finish
from nftsync.provider.config import ClientConfig
from nftsync.provider.rate_limit import GiveUpRule, RateLimiter
from nftsync.provider.wire import WalletList
from nftsync.records import Content, Effort
from tests.kit.provider import Provider, token, wallet

_T = TypeVar("_T")


class Reader:
    """A client whose reads run to their end.

    Attributes:
        spent: requests and retries of the last read of each object, by its id or path.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.spent: dict[str, tuple[int, int]] = {}

    def balances(self, number: int = 1, **known: Any) -> WalletList:
        return self.run(self.client.balances, wallet(number), **known)

    def token(self, number: int = 1) -> Content:
        return self.run(self.client.token, token(number))

    def object(self, path: str) -> bytes:
        return self.run(self.client.object, path)

    def fails(
        self, message: str = ".", kind: type[ReadError] = ReadError, number: int = 1, **known: Any
    ) -> ReadError:
        """Check that a read of balances fails; return the error."""
        with pytest.raises(kind, match=message) as caught:
            self.balances(number, **known)
        return caught.value

    @property
    def last(self) -> tuple[int, int]:
        """Requests and retries of the last read."""
        return [*self.spent.values()][-1]

    def run(self, read: Callable[..., Generator[float, None, _T]], name: str, **known: Any) -> _T:
        effort = Effort()
        try:
            return finish(read(name, effort, **known))
        finally:
            self.spent.pop(name, None)
            self.spent[name] = effort.requests, effort.retries


@pytest.fixture
def make_client(provider: Provider) -> Iterator[Callable[..., Reader]]:
    """Make a client from fields of its configuration, and from objects that clients share."""
    with ExitStack() as stack:

        def make(
            *,
            limiter: RateLimiter | None = None,
            urgent: bool = False,
            rule: GiveUpRule | None = None,
            **fields: Any,
        ) -> Reader:
            short = {"base_url": provider.url, "timeout": 10.0, "first_wait": 0.01}
            config = ClientConfig(**short | fields)
            access = access_to(config)
            if limiter is not None:
                access = access._replace(limiter=limiter)
            client = Client(config, access, urgent=urgent, rule=rule)
            return Reader(stack.enter_context(client))

        yield make
