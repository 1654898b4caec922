"""Charts on phones and wide pages, measured in Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from nftsync import charts
from tests.charts.world import frame_of
from tests.kit.browser import open_chromium

NAMES = (
    "Short",
    "A long name of a collection with many words",
    "حدائق الضوء في الليل الطويل",
    "漢" * 40,
    "CRYPTO-COLLECTIBLES-OF-THE-1990S",
)
DRAWN = (charts.holdings_by_collection, charts.holders, charts.overlap, charts.concentration)
#: Boxes of the texts on the page: left, right, top, bottom.
BOXES = """selector => [...document.querySelectorAll(selector)].map(text => {
  const box = text.getBoundingClientRect();
  return [box.left, box.right, box.top, box.bottom];
})"""


@pytest.fixture(scope="module")
def browser():
    with open_chromium() as chromium:
        yield chromium


@pytest.mark.parametrize("width", [390, 1200])
def test_texts_do_not_overlap_and_are_within_the_page(browser, tmp_path: Path, width):
    frame = frame_of({(wallet, wallet): wallet for wallet in range(1, 31)})
    number = range(len(frame))
    frame["contract_address"] = [f"KT{one:04}" for one in number]
    frame["collection"] = [f"{NAMES[one % 5]} {one}" for one in number]
    frame["wallet_label"] = frame["collection"]
    drawn = [
        draw(frame).to_html(full_html=False, include_plotlyjs=not place, div_id=f"chart{place}")
        for place, draw in enumerate(DRAWN)
    ]
    (tmp_path / "charts.html").write_text(f"<!doctype html><meta charset=utf-8>{''.join(drawn)}")
    page = browser.new_page(viewport={"width": width, "height": 1_600})
    page.goto((tmp_path / "charts.html").as_uri())
    for place in range(len(DRAWN)):
        chart = f"#chart{place}"
        page.wait_for_selector(f"{chart} .main-svg")

        def boxes(*selectors: str, chart: str = chart) -> list[list[float]]:
            return [box for one in selectors for box in page.evaluate(BOXES, f"{chart} {one}")]

        assert boxes(".ytick text")
        texts = boxes(".g-gtitle text", ".ytick text", ".xtick text", ".legendtext", ".bartext")
        bars = boxes(".point path")
        for number, (left, right, top, bottom) in enumerate(texts):
            assert left >= 0
            assert right <= width
            for other in (*texts[:number], *bars):
                apart_across = right <= other[0] + 1 or other[1] <= left + 1
                assert apart_across or bottom <= other[2] + 3 or other[3] <= top + 3
    page.close()
