"""docs/use/data.md: the four numbers of arrivals on the demo, each from the change feed."""

from __future__ import annotations

import re
from pathlib import Path

from nftsync import charts, frames
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "use" / "data.md"


def documented() -> list[int]:
    """The counts of the table, and the differences between them."""
    section = PAGE.read_text(encoding="utf-8").partition("### How many NFTs arrived?")[2]
    return [int(count) for count in re.findall(r"^\| `frames.*?\| (\d+) \|", section, re.MULTILINE)]


def test_the_numbers_of_arrivals_on_the_demo_follow_from_each_other(demo: Path) -> None:
    changes = frames.changes(demo, since="30d")
    changes = changes[~changes["baseline"]].fillna({"old_amount": 0, "new_amount": 0})
    rises = changes[changes["new_amount"] > changes["old_amount"]]
    began, ended = (changes[changes[f"{side}_amount"] == 0] for side in ("old", "new"))
    keys = ["wallet_id", "token_id"]
    counts = [x[keys].value_counts().rename(n) for n, x in (("began", began), ("ended", ended))]
    both = counts[0].to_frame().join(counts[1], how="left").fillna(0)
    cancelled = int(both.min(axis="columns").sum())

    moved = frames.transfers(demo, "30d")
    moved = moved[moved["to_wallet_id"].notna()]
    total = frames.statement(demo, "30d").iloc[-1]
    diff = frames.diff(demo, "30d")
    arrived = int((diff["kind"] == "arrived").sum())
    assert documented() == [len(moved), total["received"], arrived, total["received_amount"]]

    assert len(moved) == len(rises)
    assert total["received"] == len(began) == len(moved) - (rises["old_amount"] > 0).sum()
    assert arrived == len(began) - cancelled
    assert total["received_amount"] == moved["amount"].sum()
    assert (len(moved) - len(began), cancelled) == (5, 8)
    for shown, source in ((total["received"], demo), (len(moved), moved)):
        figure = charts.arrivals_and_departures(
            source, **({"since": "30d"} if source is demo else {})
        )
        assert f"{shown} arrivals and " in str(figure.layout.title)
