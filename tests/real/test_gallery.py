"""A gallery of an artist's real works, whose images cannot be reached."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import expect

import nftsync
from nftsync import frames
from tests.kit.browser import PATIENCE, Record, open_chromium
from tests.real.real_data import REAS, Slice, needs_data

pytestmark = needs_data


def works(real_slice: Slice) -> Counter[str]:
    """How often each name of a held work stands in the file."""
    return Counter(
        balance["token"]["metadata"]["name"]
        for wallet in real_slice.wallets
        for balance in wallet["nftTokenBalances"]
        if balance["token"].get("metadata", {}).get("creatorName") == REAS
    )


def test_every_work_of_an_artist_is_there_with_a_placeholder_and_found_by_its_name(
    real_slice: Slice, tmp_path: Path
) -> None:
    held = frames.holdings(real_slice.database)
    chosen = held[held["creator_name"].str.casefold() == REAS.casefold()]
    gallery = nftsync.gallery(
        chosen,
        title=REAS,
        page_size=100,
        base_url="https://api.example",
        ipfs_gateway="https://ipfs.example/",
    )
    with open_chromium() as browser:
        # So tall that all images of a page are in sight.
        context = browser.new_context(viewport={"width": 1280, "height": 6000})
        record, window = Record(context), context.new_page()
        window.set_default_timeout(PATIENCE)
        window.goto(gallery.save(tmp_path / "works.html").as_uri(), wait_until="commit")
        expect(window.get_by_role("status")).not_to_be_empty()
        cards = window.get_by_role("listitem")
        headings = window.get_by_role("heading", level=2)
        shown: Counter[str] = Counter()
        while True:
            expect(window.locator("li img")).to_have_count(0)
            assert cards.filter(has_text="Image did not load").count() == cards.count() > 0
            shown.update(headings.all_inner_texts())
            onward = window.get_by_role("button", name="Next page")
            if onward.is_disabled():
                break
            onward.click()
        window.get_by_role("searchbox").fill("phototaxis")
        meant = Counter(name for name in works(real_slice).elements() if "Phototaxis" in name)
        expect(cards).to_have_count(meant.total())
        assert Counter(headings.all_inner_texts()) == meant
    assert shown == works(real_slice)
    assert shown.total() == len(gallery) == 202
    hosts = {urlsplit(url).netloc for url in record.requests} - {""}
    assert hosts == {"media-proxy.artblocks.io"}
    assert record.errors([r"ERR_NAME_NOT_RESOLVED"]) == []
