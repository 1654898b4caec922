"""Frames for eyes: what is short stays apart, a row is a line, what says nothing is not there."""

from __future__ import annotations

import unicodedata
from datetime import UTC, date
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError
from nftsync.frames._brief import PREFERRED
from tests.kit.database import at, wallet_id

#: Spans begin before the first read, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:the history begins:nftsync.NftsyncWarning")

TREASURY = "8d1cc10a-7fbf-42e7-b58d-5110899866aa"
ADDRESS = "0x8f4f" + "0" * 32 + "8e63"


def test_holdings_and_what_moved_for_eyes(small_database: Path) -> None:
    shown = frames.brief(frames.holdings(small_database), all=True)
    first = ["wallet", "wallet_label", "collection", "nft", "name"]
    first = [name for name in first if name in shown.columns]
    assert list(shown.columns[: len(first)]) == first
    assert {"amount_float", "description", "image"}.isdisjoint(shown.columns)
    vault = shown.iloc[0]
    assert (vault["wallet_label"], vault["name"]) == ("Vault", "One")
    assert vault["amount"] == 2**256 - 1
    assert vault["held_since"] == "2026-03-01 00:00:01"
    assert shown["wallet_group"].tolist() == ["cold", "cold", "–", "–"]
    assert shown["wallet"].iloc[2] == shown["wallet_id"].iloc[2]
    diff = frames.brief(frames.diff(small_database, at(0)), all=True)
    assert diff["after"].iloc[-1] == "–"
    assert diff["after_text"].iloc[-1] == "1.5"  # which `after` does not say


def test_a_wide_frame_keeps_the_columns_of_the_holdings_command(small_database: Path) -> None:
    from nftsync.cli.holdings import HOLDING

    keys = [key for column in HOLDING for key in (column.key, column.name, column.short)]
    keys += ["edition_id", "total_edition"]
    held = frames.holdings(small_database)
    shown = frames.brief(held.assign(collection="Salt", edition_id=1, total_edition=2))
    assert list(shown.columns) == [*PREFERRED]
    assert set(PREFERRED) <= set(keys)
    assert set(frames.brief(held, all=True)) > set(frames.brief(held))
    transfers = frames.brief(frames.transfers(small_database))
    assert list(transfers.columns[:2]) == ["nft", "amount"]
    assert {"from_wallet", "to_wallet"} & set(transfers)
    wide = pd.DataFrame({f"x{place}": [place] for place in range(20)} | {"name": ["a"]})
    assert list(frames.brief(wide).columns) == ["name", *wide.columns[:7]]
    assert list(frames.brief(wide, all=True).columns) == ["name", *wide.columns[:20]]


def test_ids_are_their_two_ends_the_same_in_each_column() -> None:
    other = f"{TREASURY[:8]}-0000-4000-8000-0000000066aa"
    frame = pd.DataFrame(
        {
            "wallet_id": [TREASURY, TREASURY.upper(), None],
            "counterparty_wallet_id": [wallet_id(7), None, TREASURY],
            "counterparty_label": ["Desk", None, None],
            "contract_address": [ADDRESS, ADDRESS.upper().replace("0X", "0x"), "KT1abc"],
            "token": [UUID(wallet_id(8)), "x", None],
        }
    )
    shown = frames.brief(frame)
    assert shown["wallet_id"].tolist() == ["8d1cc10a…66aa", "8d1cc10a…66aa", "–"]
    assert shown["contract_address"].tolist() == ["0x8f4f…8e63", "0x8f4f…8e63", "KT1abc"]
    assert shown["counterparty_label"].tolist() == ["Desk", "–", "–"]
    # It has an end in common with the other, so more of it is shown.
    assert shown["token"].iloc[0] == f"{wallet_id(8)[:12]}…{wallet_id(8)[-8:]}"
    two = frames.brief(pd.DataFrame({"wallet_id": [TREASURY, other]}))["wallet_id"]
    assert two.tolist() == ["8d1cc10a-7fb…899866aa", "8d1cc10a-000…000066aa"]


@settings(max_examples=60)
@given(
    ids=st.lists(
        st.text("ab0-…x", max_size=60)
        | st.builds(
            lambda a, b: f"{a:08x}-0000-0000-{b:04x}-000000000000", *[st.integers(0, 3)] * 2
        )
        | st.builds(lambda a: f"0x{a:040x}", st.sampled_from([0, 1 << 60, 1 << 80])),
        max_size=12,
    )
)
def test_distinct_ids_stay_distinct(ids: list[str]) -> None:
    shown = frames.brief(pd.DataFrame({"token_id": ids}), width=1000)
    if shown.empty or "token_id" not in shown:
        return
    seen = {(one, text) for one, text in zip(ids, shown["token_id"], strict=True) if one.strip()}
    assert len(dict(seen)) == len({text for _, text in seen})


HOSTILE = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\r\t\x1b\u202e\u2028\x85\x00<&$")
)
VALUES = st.one_of(
    HOSTILE,
    HOSTILE.map(lambda text: text * 2_000),
    st.none(),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.lists(st.integers(), max_size=3),
    st.sampled_from([pd.NaT, pd.NA, np.nan, date(2026, 1, 2), b"\x00", pd.Timedelta(days=1)]),
    st.datetimes(timezones=st.sampled_from([UTC, None])),
)


@settings(max_examples=60)
@given(values=st.lists(VALUES, max_size=8), name=st.sampled_from(["x", "name", "token_id", 7]))
def test_any_value_is_one_line_that_acts_on_nothing(values: list[Any], name: Any) -> None:
    frame = pd.DataFrame({name: pd.Series(values, dtype=object), "row": range(len(values))})
    before = frame.copy()
    shown = frames.brief(frame)
    pd.testing.assert_frame_equal(frame, before)
    assert len(shown) == len(values)
    for value in shown.get(name, pd.Series([1])):
        assert value is not None
        assert value is not pd.NaT
        if isinstance(value, str):
            assert value.strip()
            assert len(value) <= 60
            assert not {unicodedata.category(each) for each in value} & {"Cc", "Zl", "Zp", "Cs"}


def test_frames_of_any_shape() -> None:
    held = pd.DataFrame(
        {"wallet_id": [TREASURY, wallet_id(1)], "group": ["a", None], "amount": [2**70, 1]}
    )
    by_wallet = held.groupby("wallet_id")[["amount"]].sum()
    assert set(frames.brief(by_wallet).index) == {
        "8d1cc10a…66aa",
        f"{wallet_id(1)[:8]}…{wallet_id(1)[-4:]}",
    }
    two = held.set_index(["wallet_id", "group"])
    assert frames.brief(two).index.tolist()[0] == ("8d1cc10a…66aa", "a")
    assert frames.brief(two).index.names == ["wallet_id", "group"]
    double = pd.concat([held, held], axis=1)
    assert list(frames.brief(double).columns) == list(double.columns)
    pivot = held.pivot_table(values="amount", columns=["wallet_id", "group"], aggfunc="sum")
    assert frames.brief(pivot).columns.nlevels == pivot.columns.nlevels
    times = pd.DataFrame({"at": pd.to_datetime([], utc=True), "age": pd.to_timedelta([])})
    for empty in (pd.DataFrame(), held.iloc[:0], held[[]], times):
        shown = frames.brief(empty)
        assert shown.shape == empty.shape
    # Numbers stay numbers, also beside a mark; what is given is not changed.
    some = pd.DataFrame(
        {"n": pd.array([1, None], "Int64"), "share": [0.5, np.nan], "no": [None] * 2}
    )
    assert frames.brief(some).to_dict("list") == {"n": [1, "–"], "share": [0.5, "–"]}
    assert frames.brief(held)["amount"].tolist() == [2**70, 1]


def test_times_are_utc_to_the_second() -> None:
    there = pd.to_datetime(["2026-01-31T12:00:00.9+02:00", None])
    frame = pd.DataFrame(
        {"zoned": there, "plain": pd.to_datetime(["2026-01-31", None]), "age": there - there[0]}
    )
    assert frames.brief(frame).to_numpy().tolist() == [
        ["2026-01-31 10:00:00", "2026-01-31 00:00:00", "0 days 00:00:00"],
        ["–", "–", "–"],
    ]

    for wrong in ("x", pd.Series([1]), None):
        with pytest.raises(InputError, match=r"^brief\(\) needs a DataFrame"):
            frames.brief(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="width=3"):
        frames.brief(pd.DataFrame(), width=3)
