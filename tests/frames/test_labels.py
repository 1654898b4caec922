"""Wallets by what they are called, wherever frames and charts take wallets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nftsync import charts, frames
from nftsync.errors import InputError
from nftsync.store.wallets import ids_named
from tests.kit.database import Builder, at, wallet_id

TAKEN: dict[str, Callable[[Any, Any], pd.DataFrame]] = {
    "holdings": lambda db, who: frames.holdings(db, wallet=who),
    "holdings as of": lambda db, who: frames.holdings(db, wallet=who, as_of=at(100)),
    "wallet_states": lambda db, who: frames.wallet_states(db, wallet=who),
    "diff": lambda db, who: frames.diff(db, at(0), wallet=who),
    "diff without": lambda db, who: frames.diff(db, at(0), exclude=who),
    "holding_ages": lambda db, who: frames.holding_ages(db, at=at(100), exclude=who),
    "holdings_over_time": lambda db, who: frames.holdings_over_time(db, exclude=who),
    "concentration": lambda db, who: frames.concentration(db, exclude=who),
    "overlap": lambda db, who: frames.overlap(db, exclude=who),
    "editions": lambda db, who: frames.editions(db, exclude=who),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_label_is_the_wallet_that_has_it(small_database: Path, name: str) -> None:
    by_id = TAKEN[name](small_database, wallet_id(1))
    for who in ("Vault", "vAULT", " Vault ", ["Vault", wallet_id(1)]):
        pd.testing.assert_frame_equal(TAKEN[name](small_database, who), by_id)
    with pytest.raises(InputError, match="'Volt' is neither a wallet id .*; similar: 'Vault'"):
        TAKEN[name](small_database, "Volt")


@pytest.mark.parametrize("measure", [frames.concentration, frames.overlap, frames.editions])
def test_labels_of_a_frame_are_those_it_has(
    small_database: Path, measure: Callable[..., pd.DataFrame]
) -> None:
    held = frames.holdings(small_database)
    by_id = measure(held, exclude=wallet_id(1))
    pd.testing.assert_frame_equal(measure(held, exclude=["vault"]), by_id)
    with pytest.raises(InputError, match="no column 'wallet_label'"):
        measure(held.drop(columns="wallet_label"), exclude="Vault")


def test_charts_take_labels(small_database: Path) -> None:
    for chart in (charts.holdings_over_time, charts.arrivals_and_departures, charts.holders):
        assert chart(small_database, exclude="Vault") == chart(small_database, exclude=wallet_id(1))
        with pytest.raises(InputError, match="nor the label"):
            chart(small_database, exclude="Volt")


@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
def test_a_label_of_several_wallets_lists_their_ids(build: Builder) -> None:
    for number in range(1, 9):
        build.wallet(number, label="Desk" if number < 8 else "desk")
    with pytest.raises(InputError) as raised:
        frames.holdings(build.path, wallet="Desk")
    listed = ", ".join(wallet_id(number) for number in range(1, 6))
    assert str(raised.value) == (
        f"7 wallets are called 'Desk'; name one by its id: {listed} and 2 more"
    )
    assert frames.holdings(build.path, wallet="desk").empty  # that one alone is called so
    with pytest.raises(InputError, match="8 wallets are called 'DESK'"):
        frames.holdings(build.path, wallet="DESK")


@given(
    labels=st.lists(st.sampled_from(["Ann", "ann", "ANN", "Bo", "ß", "SS", "x y"]), max_size=6),
    name=st.sampled_from(["Ann", "aNN", "bo", "ss", "X Y", "Cy", ""]),
)
def test_exactly_first_then_whatever_the_case(labels: list[str], name: str) -> None:
    wallets = [(wallet_id(number), label) for number, label in enumerate(labels)]
    same = [wallet for wallet, label in wallets if label == name] or [
        wallet for wallet, label in wallets if label.casefold() == name.casefold()
    ]
    if len(same) == 1:
        assert ids_named([name], lambda: wallets) == same
    else:
        with pytest.raises(InputError):
            ids_named([name], lambda: wallets)
