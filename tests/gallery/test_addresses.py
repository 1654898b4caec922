"""Chromium's interpretation of allowed image addresses."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser

from nftsync.provider.images import image_address
from tests.provider.test_images import PIECES, PROVIDER

_READ = """(urls) => urls.map((url) => {
  const image = document.createElement('img');
  image.setAttribute('src', url);
  try { const read = new URL(url); return [read.origin, read.username, image.src === read.href] }
  catch { return null }
})"""

pieces = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=8).map("".join)
starts = st.sampled_from(
    ["", "https://", "http://127.0.0.1:8788", "https://a.example/", "https://a"]
)


def test_chromium_reads_each_as_https_or_as_the_providers_origin(chromium: Browser) -> None:
    page = chromium.new_page()

    @settings(max_examples=15, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(starts, pieces).map("".join), min_size=50, max_size=50))
    def check(texts: list[str]) -> None:
        urls = [image_address(text, provider=PROVIDER).url for text in texts]
        shown = [url for url in urls if url is not None]
        for url, read in zip(shown, page.evaluate(_READ, shown), strict=True):
            if read is None:
                # A label that is not valid punycode: Chromium loads nothing.
                assert "xn--" in url
                continue
            origin, user, same = read
            assert origin.startswith("https://") or origin == "http://127.0.0.1:8788"
            assert user == ""
            assert same

    check()
    page.close()
