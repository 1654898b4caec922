"""What notebooks show: tables and pictures for eyes, and a transfer in one line."""

from __future__ import annotations

from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from charts.charts_world import played
from frames.frames_database import at, token_id
from hypothesis import given, settings
from hypothesis import strategies as st
from notebook_worlds import texts_of

from nftsync import frames
from nftsync.errors import InputError
from nftsync.lab import showing
from nftsync.lab.moves import captions, moves

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
    showing.show_table(
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
    showing.show_table(pd.DataFrame({"a": range(1_500)}), most=3)
    showing.show_table(pd.DataFrame({"a": []}), none="Nothing <b>.")
    assert texts_of(shown[0]) == ["a", "0", "1", "2", "1,497 more rows are not shown."]
    assert shown[1] == "<p>Nothing &lt;b&gt;.</p>"


def test_pictures_come_from_where_they_may_and_their_texts_act_on_nothing(
    shown: list[str], empty: Path
) -> None:
    showing.show_pictures(
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


# Moves --------------------------------------------------------------------------------------------

CHANGES = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 3_600]),
        st.integers(1, 4),
        st.integers(1, 3),
        st.sampled_from([None, "0", "1", "2", str(2**256 - 1)]),
    ),
    max_size=30,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("moves") / "nftsync.db"


@settings(max_examples=30)
@given(changes=CHANGES, start=st.sampled_from([-1, 0, 2]))
def test_the_lines_add_up_to_what_is_different_and_a_transfer_is_one_of_them(
    path: Path, changes: list[tuple[int, int, int, str | None]], start: int
) -> None:
    played(path, changes)
    diff = frames.diff(path, at(start))
    lines = moves(diff).to_dict("records")
    net: Counter[tuple[str, str]] = Counter()
    for line in lines:
        for side, sign in (("to", 1), ("from", -1)):
            if line[side] is not None:
                net[line[side], line["token_id"]] += sign * line["amount"]
    assert {key: sum_ for key, sum_ in net.items() if sum_} == {
        (row["wallet_label"], row["token_id"]): int(row["after"] or 0) - int(row["before"] or 0)
        for row in diff.astype(object).where(diff.notna(), None).to_dict("records")
    }
    transfers = [line for line in lines if line["what"] == "transfer"]
    assert all(line["from"] and line["to"] for line in transfers)
    pairs = diff["counterparty_wallet_id"].notna()
    alone = diff[~pairs & (diff["kind"] != "first_seen")].astype(object)
    expected, saved = int(pairs.sum()) // 2, int(pairs.sum()) // 2
    for _, rows in alone.groupby("token_id"):
        net_of = [int(row["after_text"] or 0) - int(row["before_text"] or 0) for row in known(rows)]
        sides = sorted((sum(each > 0 for each in net_of), sum(each < 0 for each in net_of)))
        if sum(net_of) == 0 and sides[0] == 1:
            expected, saved = expected + sides[1], saved + 1
    assert (len(transfers), len(lines)) == (expected, len(diff) - saved)
    said = captions(moves(diff))
    for each, line in zip(said, lines, strict=True):
        sides_told = ("from", "to")
        assert each == [f"{side} {line[side]}" for side in sides_told if line[side] is not None]
    times = [line["changed_at"] for line in lines]
    assert times == sorted(times, reverse=True)


def known(rows: pd.DataFrame) -> list[dict[str, Any]]:
    return rows.where(rows.notna(), None).to_dict("records")


def test_copies_that_went_to_several_are_a_transfer_to_each_and_a_mix_is_none(path: Path) -> None:
    """Of token 1 wallet 1 gives three away; of token 2 two wallets lose as much as two gain."""
    before = [(0, 1, 1, "3"), (0, 1, 2, "2"), (0, 2, 2, "2"), (0, 3, 3, "7"), (0, 4, 3, "7")]
    mixed = [(0, 1, 2, "1"), (0, 2, 2, "1"), (0, 3, 2, "1"), (0, 4, 2, "1")]
    played(path, [*before, (10, 1, 1, "0"), (0, 2, 1, "1"), (0, 3, 1, "2"), *mixed])
    moved = moves(frames.diff(path, at(5)))
    lines = moved[moved["what"] == "transfer"]
    assert set(lines["token_id"]) == {token_id(1)}
    assert sorted(moved["what"]) == ["arrived"] * 2 + ["left"] * 2 + ["transfer"] * 2
    assert sorted(zip(lines["from"], lines["to"], lines["amount"], strict=True)) == [
        ("Wallet 1", "Wallet 2", 1),
        ("Wallet 1", "Wallet 3", 2),
    ]


def test_moves_need_a_comparison(demo: Path) -> None:
    with pytest.raises(InputError, match=r"frames\.diff"):
        moves(frames.wallets(demo))
