"""What the gallery's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser.seen_browser import PATIENCE, find_chromium, open_chromium
from playwright.sync_api import Browser, expect


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Headless Chromium; skips where there is none."""
    executable = find_chromium()
    if executable is None:
        pytest.skip("Chromium is not installed: on Debian, apt install chromium")
    expect.set_options(timeout=PATIENCE)
    with open_chromium(executable) as browser:
        yield browser


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No settings of whoever runs the tests."""
    import os

    for name in [name for name in os.environ if name.startswith("NFTSYNC_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
