"""Statements, compared with the holdings at both of their ends."""

from __future__ import annotations

import warnings
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError, NftsyncWarning
from tests.kit.database import Builder, at, token_id, wallet_id
from tests.kit.histories import READS, Histories, Read, moment
from tests.kit.readers import ENTRIES

LABELS = {wallet_id(1): "Vault", wallet_id(2): "Vault", wallet_id(3): "Desk"}


def balances(held: dict[tuple[str, str], int | str], by: str) -> dict[Any, tuple[int, int]]:
    """Return the number of NFTs and the amount of each group."""
    sums: dict[Any, tuple[int, int]] = {}
    for (wallet, _), amount in held.items():
        group = wallet if by == "wallet_id" else LABELS.get(wallet)
        count, total = sums.get(group, (0, 0))
        sums[group] = count + 1, total + (amount if isinstance(amount, int) else 0)
    return sums


def assert_adds_up(frame: pd.DataFrame) -> None:
    """Check that each row adds up, and that the rows add up to the last one."""
    for unit in ("", "_amount"):
        opening, initial, received, sent, end = (frame[f"{name}{unit}"] for name in ENTRIES)
        assert (opening + initial + received - sent == end).all()
        for column in (opening, initial, received, sent, end):
            assert sum(column[:-1]) == column.iloc[-1]
            assert (column >= 0).all()


@settings(max_examples=40)
@given(
    reads=READS,
    by=st.sampled_from(["wallet_id", "wallet_label"]),
    times=st.lists(st.integers(-1, 20), min_size=2, max_size=4).map(sorted),
)
def test_consecutive_statements_add_up_and_meet_the_holdings_at_each_time(
    histories: Histories, reads: list[Read], by: str, times: list[int]
) -> None:
    histories.play(reads)
    histories.label(LABELS)
    begin = histories.begin()
    for start, end in pairwise(map(moment, times)):
        if end < begin:
            with pytest.raises(InputError, match="the period ends before the history"):
                frames.statement(histories.path, start, end, by)
            continue
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            frame = frames.statement(histories.path, start, end, by, amounts="exact")
        assert [f"the history begins at {begin}" in str(x.message) for x in notes] == [True] * (
            start < begin
        )
        assert frame.attrs == {"start": max(start, begin), "end": end}
        assert_adds_up(frame)
        rows = frame[:-1]
        keys = [None if pd.isna(key) else key for key in rows[by]]

        for name, time in (("opening", "start"), ("closing", "end")):
            pairs = zip(rows[name], rows[f"{name}_amount"], strict=True)
            found = {key: pair for key, pair in zip(keys, pairs, strict=True) if pair[0]}
            assert found == balances(histories.held(frame.attrs[time]), by)


@settings(max_examples=20)
@given(reads=READS, times=st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted))
def test_since_a_time_is_the_same_as_from_the_state_before_it(
    histories: Histories, reads: list[Read], times: list[int]
) -> None:
    histories.play(reads)
    start, until = (max(moment(time), histories.begin()) for time in times)
    db = histories.path
    before = pd.Timestamp(start) - pd.Timedelta(microseconds=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NftsyncWarning)
        by_state = frames.statement(db, before, until, "wallet_id", amounts="exact")
        by_change = frames.statement(db, by="wallet_id", since=start, until=until, amounts="exact")
    pd.testing.assert_frame_equal(by_state, by_change)
    assert by_state.attrs == by_change.attrs


@pytest.fixture
def month(tmp_path: Path) -> Path:
    """Two groups: an initial holding, a transfer within a group, one between groups, an amount."""
    builder = Builder(tmp_path / "month.db")
    for number, group in ((1, "house"), (2, "house"), (3, "customers")):
        builder.wallet(number, label=f"W{number}", wallet_group=group)
    builder.token(1, contract_address="0xAb", name="Kite #1")
    builder.token(2, contract_address="0xCd", name="Moss #2")
    builder.change(1, 1, None, "1", 0, baseline=1)
    builder.change(2, 2, None, "5", 20, baseline=1)
    builder.change(1, 1, "1", None, 30)
    builder.change(2, 1, None, "1", 30)
    builder.change(2, 2, "5", "2", 40)
    builder.change(3, 2, None, "3", 40)
    return builder.close()


def test_a_statement_by_group_shows_initial_holdings_and_both_sides_of_transfers(
    month: Path,
) -> None:
    frame = frames.statement(month, at(10), at(50)).set_index("wallet_group")
    assert frame[[*ENTRIES]].T.to_dict("list") == {
        "house": [1, 1, 1, 1, 2],
        "customers": [0, 0, 1, 0, 1],
        "total": [1, 1, 2, 1, 3],
    }
    assert frame[[f"{name}_amount" for name in ENTRIES]].T.to_dict("list") == {
        "house": [1, 5, 1, 4, 3],
        "customers": [0, 0, 3, 0, 3],
        "total": [1, 5, 4, 4, 6],
    }
    of_house = frames.statement(month, at(10), at(50), by="collection", group="house")
    assert list(of_house["collection"]) == ["0xab", "0xcd", "total"]
    assert list(of_house["closing"]) == [1, 1, 2]
    without = frames.statement(month, at(10), at(50), exclude=["W2"])
    assert without.set_index("wallet_group").loc["total", "closing"] == 1
    nothing = frames.statement(month, at(10), at(50), wallet=wallet_id(4))
    assert nothing[["wallet_group", "closing"]].to_numpy().tolist() == [["total", 0]]


@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
def test_prices_value_both_balances_and_an_unknown_name_is_a_warning(month: Path) -> None:
    day = at(10)[:10]
    columns = ["contract", "token_id", "date", "price", "currency"]
    rows = [
        ("0xAb", None, day, "1.10", "EUR"),
        ("0xAc", None, day, "3", "EUR"),
        (None, token_id(2), day, f"0.{1:018}", "ETH"),
    ]
    prices = pd.DataFrame(rows, columns=columns)
    with pytest.warns(
        NftsyncWarning, match="name '0xac', which matches no known collection; .*'0xAb'"
    ):
        frame = frames.statement(month, at(10), at(50), prices=prices)
    assert frame.filter(like="_value_").to_dict("list") == {
        "opening_value_ETH": [Decimal(0)] * 3,
        "opening_value_EUR": [Decimal("1.10"), 0, Decimal("1.10")],
        "closing_value_ETH": [Decimal("2e-18"), Decimal("3e-18"), Decimal("5e-18")],
        "closing_value_EUR": [Decimal("1.10"), 0, Decimal("1.10")],
    }
    assert not frame.filter(like="unpriced").any(axis=None)
    with pytest.warns(NftsyncWarning, match="3 of 3 holdings have no price at"):
        none = frames.statement(month, at(10), at(50), prices=prices[::2].assign(date="2999-01-01"))
    assert none["closing_unpriced"].tolist() == [2, 1, 3]
    nothing = frames.statement(month, at(10), at(50), prices=prices[:1], wallet=wallet_id(4))
    assert nothing["closing_value_EUR"].map(type).tolist() == [Decimal]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "needs its start"),
        ({"start": at(5), "since": at(5)}, "start and since are aliases"),
        ({"start": at(5), "end": at(6), "until": at(6)}, "end and until are aliases"),
        (
            {"start": at(-2), "end": at(-1)},
            "before the history, which begins at 2026-03-01T00:00:00Z",
        ),
        ({"start": at(5), "by": "wallet_grup"}, "did you mean 'wallet_group'"),
        ({"start": at(5), "end": at(1)}, "is after end"),
    ],
)
def test_unusable_arguments_are_named(month: Path, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        frames.statement(month, **arguments)
