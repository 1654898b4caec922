"""Fixtures of the gallery's tests."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.kit.browser import open_chromium


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with open_chromium() as browser:
        yield browser
