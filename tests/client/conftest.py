"""A lying provider, and a client of it that waits little between its tries."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from provider import MakeClient, Provider

from nftsync.client import Client


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


@pytest.fixture
def make_client(provider: Provider) -> Iterator[MakeClient]:
    with ExitStack() as stack:

        def make(**arguments: Any) -> Client:
            arguments = {"timeout": 10.0, "first_wait": 0.01, **arguments}
            return stack.enter_context(Client(arguments.pop("url", provider.url), **arguments))

        yield make
