"""A receiver on a real port, with a real database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.receiver.world import Running, running


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start a receiver of its own, with options of `create_app`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(running(tmp_path / "nftsync.db", **options))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("receiver") / "nftsync.db") as receiver:
        yield receiver


@pytest.fixture
def receiver(shared: Running) -> Running:
    """A receiver whose inbox is empty."""
    shared.query("DELETE FROM webhooks")
    return shared
