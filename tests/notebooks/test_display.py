"""What notebooks show: a sync's result, an error, frames that are there to be read, times."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import fromstring

import pandas as pd
import pytest

from nftsync import frames
from nftsync.errors import NftsyncError, StoreError
from nftsync.pull.result import BalanceCounts, Failure, SyncResult, TokenCounts, WalletCounts
from nftsync.store.schema import open_store
from nftsync.store.wallets import WalletLine, register
from nftsync.times import now

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"


def result(failures: list[Failure], error: str | None = None) -> SyncResult:
    counts = WalletCounts(5012, 5000, 4321, 12), TokenCounts(1234, 5), BalanceCounts(100000, 2, 3)
    status = "failed" if error else "partial"
    return SyncResult(7, status, *counts, 6000, 17, 12.345, failures, error)


def cells(page: str) -> list[str]:
    return [
        "".join(cell.itertext())
        for cell in fromstring(f"<div>{page}</div>").iter()
        if cell.tag in {"td", "th"}
    ]


@pytest.mark.parametrize(("count", "shown"), [(0, 0), (1, 1), (20, 20), (21, 21), (5000, 21)])
def test_a_result_shows_every_count_and_names_the_first_20_failures(count: int, shown: int) -> None:
    failures = [Failure(f"wallet {n}", f"error {n}") for n in range(count)]
    page = cells(result(failures)._repr_html_())
    assert dict(zip(page[:12:2], page[1:12:2], strict=True)) == {
        "Status": "partial",
        "Wallets": "5,000 read, 4,321 of them unchanged; 12 failed",
        "Balances": "100,000 added, 2 changed, 3 removed",
        "Tokens": "1,234 new, 5 changed",
        "Requests": "6,000, 17 of them retries",
        "Time": "12.3 s",
    }
    assert len(page[12:]) == 2 * shown
    assert page[12:14] == ["wallet 0", "error 0"][: 2 * count]
    if count > 20:
        assert page[-2:] == [f"and {count - 20:,} more", "in .failures"]


def test_a_result_needs_neither_script_nor_colors() -> None:
    """A notebook that is not trusted shows no more, and a dark theme has colors of its own."""
    page = result([Failure(HOSTILE, HOSTILE, HOSTILE)], error=HOSTILE)._repr_html_()
    every = list(fromstring(f"<div>{page}</div>").iter())[1:]
    assert {one.tag for one in every} == {"p", "strong", "table", "tbody", "tr", "th", "td"}
    styles = {item for one in every for item in one.attrib.items()}
    assert styles == {("style", "text-align: left")}
    shown = cells(page)
    assert shown[1] == f"failed: {HOSTILE}"
    assert {HOSTILE, f"{HOSTILE}, token {HOSTILE}"} <= set(shown)


def test_an_errors_line_holds_no_control_characters() -> None:
    (line,) = StoreError("a\nb\x1b[2J\x9bc")._render_traceback_()
    assert line == "\x1b[31mStoreError\x1b[39m: a\\x0ab\\x1b[2J\\x9bc"
    (line,) = NftsyncError()._render_traceback_()
    assert line.startswith("\x1b[31mNftsyncError")


def test_explanations_and_freshness_are_shown_whole_and_safe(tmp_path: Path) -> None:
    told = frames.explain("holdings")
    for shown in (told._repr_html_(), repr(told)):
        plain = shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        assert all(text in plain for name in ("meaning", "column") for text in told[name])
    connection = open_store(tmp_path / "nftsync.db")
    ids = [f"aaaaaaaa-0000-4000-8000-00000000000{n}" for n in range(3)]
    register(connection, [WalletLine(each, HOSTILE) for each in ids], now())
    connection.close()
    found = frames.freshness(tmp_path / "nftsync.db")
    (detail,) = found.loc[found["what"] == "wallets never read", "detail"]
    assert len(detail) > 100
    assert detail in repr(found)
    page = found._repr_html_()
    assert "<script" not in page
    assert page.count("<td") == page.count('<td style="text-align: left">') == found.size
    assert len(repr(found.iloc[:0])) > 0
    for made in (found.head(2), found.copy(), told.copy()):
        assert type(made) is pd.DataFrame
