"""A gallery of an artist's real works, whose images cannot be reached."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, Route, expect, sync_playwright
from real_data import REAS, Slice, needs_data

import nftsync
from nftsync import frames

pytestmark = needs_data

_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
_PATIENCE = 120_000  # milliseconds


@pytest.fixture
def asked() -> list[str]:
    """The hosts that the page asked for something."""
    return []


@pytest.fixture
def window(asked: list[str]) -> Iterator[Page]:
    """A window of Chromium without a network, so tall that all images of a page are in sight."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed: on Debian, apt install chromium")

    def answer(route: Route) -> None:
        address = urlsplit(route.request.url)
        if address.scheme == "file":
            route.continue_()
        else:
            asked.append(address.netloc)
            route.abort()

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=_FLAGS)
        window = browser.new_page(viewport={"width": 1280, "height": 6000})
        window.set_default_timeout(_PATIENCE)
        window.route("**/*", answer)
        yield window
        browser.close()


def works(real_slice: Slice) -> Counter[str]:
    """How often each name of a held work stands in the file."""
    return Counter(
        balance["token"]["metadata"]["name"]
        for wallet in real_slice.wallets
        for balance in wallet["nftTokenBalances"]
        if balance["token"].get("metadata", {}).get("creatorName") == REAS
    )


def test_every_work_of_an_artist_is_there_with_a_placeholder(
    real_slice: Slice, window: Page, asked: list[str], tmp_path: Path
) -> None:
    held = frames.holdings(real_slice.database)
    chosen = held[held["creator_name"].str.casefold() == REAS.casefold()]
    gallery = nftsync.gallery(
        chosen, title=REAS, base_url="https://api.example", ipfs_gateway="https://ipfs.example/"
    )
    errors: list[object] = []
    window.on("pageerror", lambda error: errors.append(error))
    window.goto(gallery.save(tmp_path / "works.html").as_uri())
    shown: Counter[str] = Counter()
    while True:
        expect(window.locator("li img")).to_have_count(0, timeout=_PATIENCE)
        cards = window.get_by_role("listitem")
        assert cards.filter(has_text="Image did not load").count() == cards.count() > 0
        shown.update(window.get_by_role("heading", level=2).all_inner_texts())
        onward = window.get_by_role("button", name="Next page")
        if onward.is_disabled():
            break
        onward.click()
    assert shown == works(real_slice)
    assert shown.total() == len(gallery) == 202
    assert set(asked) == {"media-proxy.artblocks.io"}
    assert errors == []


def test_a_search_finds_the_works_of_a_series(
    real_slice: Slice, window: Page, tmp_path: Path
) -> None:
    held = frames.holdings(real_slice.database)
    gallery = nftsync.gallery(
        held[held["creator_name"] == REAS],
        page_size=500,
        base_url="https://api.example",
        ipfs_gateway="https://ipfs.example/",
    )
    window.goto(gallery.save(tmp_path / "works.html").as_uri())
    window.get_by_role("searchbox").fill("phototaxis")
    meant = Counter(name for name in works(real_slice).elements() if "Phototaxis" in name)
    cards = window.get_by_role("listitem")
    expect(cards).to_have_count(meant.total(), timeout=_PATIENCE)
    assert Counter(window.get_by_role("heading", level=2).all_inner_texts()) == meant
