"""What notebooks show: tables and pictures for eyes, and captions."""

from __future__ import annotations

from html import escape
from pathlib import Path

import pandas as pd
import pytest

from nftsync import frames
from nftsync.notebooks import display
from tests.charts.world import played
from tests.notebooks.worlds import texts_of

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The HTML of what is shown."""
    pages: list[str] = []

    def display(forms: dict[str, str], *, raw: bool) -> None:
        pages.append(forms["text/html"])

    monkeypatch.setattr("IPython.display.display", display)
    return pages


def test_a_table_has_one_mark_for_what_is_missing_and_names_before_ids(shown: list[str]) -> None:
    ids = [f"{number}aaaaaaa-0000-4000-8000-000000000000" for number in range(3)]
    display.show_table(
        pd.DataFrame(
            {
                "at": pd.to_datetime(["2026-01-31T23:59:59.999999Z", None, None]),
                "wallet_id": ids,
                "wallet_label": pd.Series([HOSTILE, None, " "], dtype="str"),
                "amount": pd.Series([1234567, None, 2**256 - 1], dtype=object),
                "share": [0.123456, None, 1.0],
                "hhi": [0.0004, None, 12.5],
                "run": pd.Series([1, None, 3], dtype="Int64"),
                "age": pd.to_timedelta(["1.5s", None, "3 days"]),
            }
        )
    )
    (page,) = shown
    assert "<script" not in page
    texts = texts_of(page)
    assert {HOSTILE, "2026-01-31 23:59:59", "1,234,567", f"{2**256 - 1:,}", "–"} <= set(texts)
    assert {"wallet", "12.3 %", "100.0 %", "<0.001", "12.500"} <= set(texts)
    assert not {"", "nan", "None", "NaT", "<NA>"} & set(texts)
    assert sum(text.startswith(("1aaaaaaa", "2aaaaaaa")) for text in texts) >= 2


def test_a_table_tells_what_it_leaves_out_and_that_there_is_nothing(shown: list[str]) -> None:
    display.show_table(pd.DataFrame({"a": range(1_500)}), most=3)
    display.show_table(pd.DataFrame({"a": []}), none="Nothing <b>.")
    assert texts_of(shown[0]) == ["a", "0", "1", "2", "1,497 more rows are not shown."]
    assert shown[1] == "<p>Nothing &lt;b&gt;.</p>"


def test_pictures_come_from_where_they_may_and_their_texts_act_on_nothing(
    shown: list[str], empty: Path
) -> None:
    display.show_pictures(
        pd.DataFrame(
            {
                "token_id": ["a", "b", "c", "a"],
                "name": [HOSTILE, None, "Third", "again"],
                "image": [
                    "https://example.com/a.png?'\"><script>",
                    "http://127.0.0.1/b",
                    None,
                    None,
                ],
                "about": [[HOSTILE], ["to Treasury"], [], ["again"]],
            }
        ),
        empty,
    )
    (page,) = shown
    assert "<script" not in page
    assert page.count("<img") == 1
    assert texts_of(page) == [HOSTILE]
    assert page.count(escape(HOSTILE)) == 2, "as its name and below it"
    assert all(text not in page for text in ("Third", "again", "to Treasury")), "no picture"


def test_captions_name_the_known_sides_and_ids_where_there_is_no_label(tmp_path: Path) -> None:
    path = tmp_path / "nftsync.db"
    before = [(0, 1, 1, "3"), (0, 2, 1, "1"), (0, 2, 2, "2"), (0, 3, 3, "7")]
    played(path, [*before, (10, 1, 1, "0"), (0, 2, 1, "4"), (10, 3, 3, "5"), (10, 2, 2, "3")])
    transfers = frames.transfers(path)
    assert list(transfers["kind"]) == ["transfer", "sent", "received"]
    assert display.captions(transfers) == [
        ["from Wallet 1", "to Wallet 2"],
        ["from Wallet 3"],
        ["to Wallet 2"],
    ]
    assert display.captions(transfers[:0]) == []
    nameless = transfers.assign(from_label=None, to_label=None)
    for caption, row in zip(display.captions(nameless), nameless.itertuples(), strict=True):
        ids = [row.from_wallet_id, row.to_wallet_id]
        known = [wallet for wallet in ids if isinstance(wallet, str)]
        assert [text.split()[1][:8] for text in caption] == [wallet[:8] for wallet in known]


def test_a_window_begins_at_the_end_of_a_day(empty: Path) -> None:
    """Because it is a state with which the present is compared."""
    assert display.window_start(empty, "2026-01-31") == pd.Timestamp("2026-01-31T23:59:59.999999Z")
    assert display.window_start(empty, "2026-01-31T12:00") == pd.Timestamp("2026-01-31T12:00Z")
