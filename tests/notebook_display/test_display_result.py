"""The result of a sync as a table of HTML."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

import pytest

from nftsync.errors import NftsyncError, StoreError
from nftsync.pull.result import (
    BalanceCounts,
    Failure,
    SyncResult,
    TokenCounts,
    WalletCounts,
)

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"


def result(failures: list[Failure], error: str | None = None) -> SyncResult:
    return SyncResult(
        run_id=7,
        status="failed" if error else "partial",
        wallets=WalletCounts(5012, 5000, 4321, 12),
        tokens=TokenCounts(1234, 5),
        balances=BalanceCounts(100000, 2, 3),
        requests=6000,
        retries=17,
        seconds=12.345,
        failures=failures,
        error=error,
    )


def cells(page: str) -> list[str]:
    return [
        "".join(cell.itertext())
        for cell in fromstring(f"<div>{page}</div>").iter()
        if cell.tag in {"td", "th"}
    ]


def test_it_shows_every_count() -> None:
    page = cells(result([])._repr_html_())
    assert dict(zip(page[::2], page[1::2], strict=True)) == {
        "Status": "partial",
        "Wallets": "5,000 read, 4,321 of them unchanged; 12 failed",
        "Balances": "100,000 added, 2 changed, 3 removed",
        "Tokens": "1,234 new, 5 changed",
        "Requests": "6,000, 17 of them retries",
        "Time": "12.3 s",
    }


def test_it_needs_neither_script_nor_colors() -> None:
    """A notebook that is not trusted shows no more, and a dark theme has colors of its own."""
    page = result([Failure(HOSTILE, HOSTILE, HOSTILE)], error=HOSTILE)._repr_html_()
    every = list(fromstring(f"<div>{page}</div>").iter())[1:]
    assert {one.tag for one in every} == {"p", "strong", "table", "tbody", "tr", "th", "td"}
    styles = {item for one in every for item in one.attrib.items()}
    assert styles == {("style", "text-align: left")}
    shown = cells(page)
    assert shown[1] == f"failed: {HOSTILE}"
    assert {HOSTILE, f"{HOSTILE}, token {HOSTILE}"} <= set(shown)


@pytest.mark.parametrize(("count", "shown"), [(1, 1), (20, 20), (21, 21), (5000, 21)])
def test_the_first_20_failures_are_named_and_the_rest_counted(count: int, shown: int) -> None:
    failures = [Failure(f"wallet {n}", f"error {n}") for n in range(count)]
    named = cells(result(failures)._repr_html_())[12:]
    assert len(named) == 2 * shown
    assert named[:2] == ["wallet 0", "error 0"]
    if count > 20:
        assert named[-2:] == [f"and {count - 20:,} more", "in .failures"]


def test_an_errors_line_holds_no_control_characters() -> None:
    (line,) = StoreError("a\nb\x1b[2J\x9bc")._render_traceback_()
    assert line == "\x1b[31mStoreError\x1b[39m: a\\x0ab\\x1b[2J\\x9bc"
    (line,) = NftsyncError()._render_traceback_()
    assert line.startswith("\x1b[31mNftsyncError")
