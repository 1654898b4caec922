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
@pytest.mark.parametrize(
    "draw", [charts.holdings_by_collection, charts.holders, charts.overlap, charts.concentration]
)
def test_texts_are_apart_from_each_other_and_bars_and_within_the_page(
    browser, tmp_path: Path, draw, width
):
    frame = frame_of({(wallet, wallet): wallet for wallet in range(1, 31)})
    number = range(len(frame))
    frame["contract_address"] = [f"KT{one:04}" for one in number]
    frame["collection"] = [f"{NAMES[one % 5]} {one}" for one in number]
    frame["wallet_label"] = frame["collection"]
    page = browser.new_page(viewport={"width": width, "height": 1_600})
    draw(frame).write_html(tmp_path / "chart.html")
    page.goto((tmp_path / "chart.html").as_uri())
    page.wait_for_selector(".main-svg")

    def boxes(selector: str) -> list[list[float]]:
        return list(page.evaluate(BOXES, selector))

    titles, labels = boxes(".g-gtitle text"), boxes(".ytick text")
    texts = [*titles, *labels, *boxes(".xtick text"), *boxes(".legendtext")]
    texts += boxes(".bartext")
    bars = boxes(".point path")
    page.close()
    assert labels
    for left, right, *_ in texts:
        assert left >= 0
        assert right <= width
    for place, (left, right, top, bottom) in enumerate(texts):
        for other in (*texts[:place], *bars):
            apart_across = right <= other[0] + 1 or other[1] <= left + 1
            assert apart_across or bottom <= other[2] + 3 or other[3] <= top + 3
