"""docs/use/data.md: the four numbers of arrivals on the demo, each from the change feed."""

import re
from pathlib import Path

from nftsync import charts, frames
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "use" / "data.md"


def documented() -> list[int]:
    """The counts of the table, and the differences between them."""
    section = PAGE.read_text(encoding="utf-8").partition("### How many NFTs arrived?")[2]
    return [int(count) for count in re.findall(r"^\| `frames.*?\| (\d+) \|", section, re.MULTILINE)]


def test_the_numbers_of_arrivals_on_the_demo_are_those_of_the_frames(demo: Path) -> None:
    moved = frames.transfers(demo, "30d")
    moved = moved[moved["to_wallet_id"].notna()]
    total = frames.statement(demo, "30d").iloc[-1]
    arrived = int((frames.diff(demo, "30d")["kind"] == "arrived").sum())
    assert documented() == [len(moved), total["received"], arrived, total["received_amount"]]
    for shown, source in ((total["received"], demo), (len(moved), moved)):
        options = {"since": "30d"} if source is demo else {}
        figure = charts.arrivals_and_departures(source, **options)
        assert f"{shown} arrivals and " in str(figure.layout.title)
