"""What the gallery's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser.seen_browser import open_chromium
from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with open_chromium() as browser:
        yield browser


@pytest.fixture(autouse=True)
def _no_settings(own_settings: None) -> None:
    """No settings of whoever runs the tests."""
