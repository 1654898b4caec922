"""A receiver on a real port, with a real database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from running_receiver import Running, running


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start a receiver with options of `create_app`, and `limits` of the server."""
    with ExitStack() as stack:

        def start(
            database: Path | None = None, limits: dict[str, Any] | None = None, **options: Any
        ) -> Running:
            path = database or tmp_path / "nftsync.db"
            return stack.enter_context(running(path, limits or {}, **options))

        yield start


@pytest.fixture
def receiver(run: Callable[..., Running]) -> Running:
    return run()
