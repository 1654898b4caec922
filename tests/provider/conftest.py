"""A faulty provider, and a client with short waits between attempts."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from nftsync.provider.client import Client, access_to
from nftsync.provider.config import ClientConfig
from nftsync.provider.rate_limit import GiveUpRule, RateLimiter
from tests.kit.provider import MakeClient, Provider


def everything_known_of(error: BaseException) -> str:
    """An error with its causes and contexts, as any printer of tracebacks could show them."""
    seen: list[str] = []
    link: BaseException | None = error
    while link is not None:
        seen += [repr(link), str(link), repr(link.args), repr(vars(link))]
        link = link.__cause__ or link.__context__
    return "\n".join([*seen, *traceback.format_exception(error)])


@pytest.fixture
def make_client(provider: Provider) -> Iterator[MakeClient]:
    """Make a client of some fields of its config, and of what it shares with others."""
    with ExitStack() as stack:

        def make(
            *,
            limiter: RateLimiter | None = None,
            urgent: bool = False,
            rule: GiveUpRule | None = None,
            **of: Any,
        ) -> Client:
            given = {"base_url": provider.url, "timeout": 10.0, "first_wait": 0.01, **of}
            config = ClientConfig(**given)
            access = access_to(config)
            if limiter is not None:
                access = access._replace(limiter=limiter)
            return stack.enter_context(Client(config, access, urgent=urgent, rule=rule))

        yield make
