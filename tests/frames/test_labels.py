"""Wallets by what they are called, wherever frames and charts take wallets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nftsync import charts, frames
from nftsync.errors import InputError
from tests.kit.database import Builder, at, wallet_id

#: Spans begin before the first read, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:the history begins:nftsync.NftsyncWarning")

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
    "chart": lambda db, who: pd.DataFrame(
        {"json": [charts.arrivals_and_departures(db, exclude=who).to_json()]}
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_label_is_the_wallet_that_has_it(small_database: Path, name: str) -> None:
    by_id = TAKEN[name](small_database, wallet_id(1))
    for who in ("vAULT", [" Vault ", wallet_id(1)]):
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
