"""Chromium's interpretation of allowed image addresses."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync.provider.images import Images
from tests.provider.test_images import PIECES, PROVIDER

_READ = """(urls) => urls.map((url) => {
  const image = document.createElement('img');
  image.setAttribute('src', url);
  try { const read = new URL(url); return [read.origin, read.username, image.src === read.href] }
  catch { return null }
})"""

_STARTS = ("", "https://", "http://127.0.0.1:8788", "https://a.example/", "https://a")


def _address(drawn: Random) -> str:
    """Make an address of pieces that matter to parsers, and of other characters."""
    return drawn.choice(_STARTS) + "".join(
        drawn.choice(PIECES) if drawn.random() < 0.7 else chr(drawn.randrange(0x3000))
        for _ in range(drawn.randrange(9))
    )


def test_chromium_reads_each_as_https_or_as_the_providers_origin(chromium):
    page = chromium.new_page()

    @settings(max_examples=3)
    @given(st.integers())
    def check(seed: int) -> None:
        drawn = Random(seed)
        texts = [_address(drawn) for _ in range(500)]
        urls = [Images(provider=PROVIDER).at(text).url for text in texts]
        shown = [url for url in urls if url is not None and not url.startswith("data:")]
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
