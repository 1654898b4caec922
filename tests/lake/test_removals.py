"""The removal guard of a lake decides on all buckets together, and compares with 24 hours ago."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kit.lake_cluster import check_lake, held, rows
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import made_once
from tests.lake.conftest import Sync

WALLETS = [wallet(number) for number in range(60)]
EDITIONS = 20


def editions(provider: Provider, amount: str = "5", wallets: range = range(60)) -> None:
    """Let each wallet list five of twenty tokens that all share."""
    for number in wallets:
        tokens = (token((number + 4 * place) % EDITIONS) for place in range(5))
        provider.holds(WALLETS[number], *(entry(one, amount) for one in tokens))


@pytest.fixture
def full(lying: Provider, lake: Path, sync: Sync, shared: Path) -> int:
    """The number of holdings after a first sync."""
    editions(lying)

    def make(folder: Path) -> None:
        assert sync(lying.url, WALLETS, to=folder / "lake").code == 0

    shutil.copytree(made_once(shared, "editions of a lake", make) / "lake", lake)
    return len(held(lake))


def test_amounts_that_grew_excuse_no_loss(
    full: int, lying: Provider, lake: Path, sync: Sync
) -> None:
    editions(lying, "6")
    assert sync(lying.url).code == 0
    for each in WALLETS:
        lying.holds(each)
    assert sync(lying.url).code == 1
    assert len(held(lake)) == full
    editions(lying, "0x10")
    assert sync(lying.url).code == 1
    assert set(held(lake).values()) == {"6"}
    editions(lying)
    assert sync(lying.url).code == 0
    assert not rows(lake, "removals")
    check_lake(lake)


def test_wallets_that_were_empty_for_a_while_count_once_they_are_empty_again(
    full: int, lying: Provider, lake: Path, sync: Sync
) -> None:
    for turn in range(2):
        for number in range(24 * turn, 24 * turn + 24):
            lying.holds(WALLETS[number])
        assert sync(lying.url).code == 0
        editions(lying)
        assert sync(lying.url).code == 0
        assert len(held(lake)) == full
    for each in WALLETS:
        lying.holds(each)
    assert sync(lying.url).code == 1
    assert len(held(lake)) == full
    check_lake(lake)


def test_new_wallets_hide_no_loss_of_the_others(lying: Provider, lake: Path, sync: Sync) -> None:
    """An approval makes what is there old; then three times as many wallets are read."""
    editions(lying)
    assert sync(lying.url, WALLETS, "--allow-removals").code == 0
    new = [wallet(number) for number in range(100, 100 + 3 * len(WALLETS))]
    for number, each in enumerate(new):
        lying.holds(each, *(entry(token(1_000 + 5 * number + place), "5") for place in range(5)))
    assert sync(lying.url, [*WALLETS, *new]).code == 0
    before = held(lake)
    assert len(before) == 20 * len(WALLETS)
    for each in WALLETS[:40]:
        lying.holds(each)
    assert (sync(lying.url).code, held(lake)) == (1, before)
    editions(lying)
    for each in new:
        lying.holds(each)
    assert (sync(lying.url).code, held(lake)) == (1, before)
    check_lake(lake)


def test_amounts_that_fall_in_steps_are_held_once_they_are_below_half(
    full: int, lying: Provider, lake: Path, sync: Sync
) -> None:
    codes = []
    for amount in ("4", "3", "2", "2"):
        editions(lying, amount)
        codes.append(sync(lying.url).code)
    assert codes == [0, 0, 1, 1]
    assert set(held(lake).values()) == {"3"}
    check_lake(lake)
    assert sync(lying.url, None, "--allow-removals").code == 0
    assert set(held(lake).values()) == {"2"}
    editions(lying, "1")  # half of what was approved
    assert sync(lying.url).code == 0
    check_lake(lake)


def test_tokens_that_all_wallets_pass_on_are_transfers(
    lying: Provider, lake: Path, sync: Sync
) -> None:
    """Each wallet gets tokens that its bucket has not seen before."""
    for moved in (0, 1, 7):
        for number, each in enumerate(WALLETS):
            first = 5 * ((number + moved) % len(WALLETS))
            lying.holds(each, *(entry(token(first + place)) for place in range(5)))
        assert sync(lying.url, WALLETS).code == 0
        assert len(held(lake)) == 5 * len(WALLETS)
    check_lake(lake)


def test_a_sweep_into_a_new_wallet_is_a_transfer(
    full: int, lying: Provider, lake: Path, sync: Sync
) -> None:
    for each in WALLETS:
        lying.holds(each)
    swept = [entry(token(number), str(5 * full // EDITIONS)) for number in range(EDITIONS)]
    lying.holds(wallet(700), *swept)
    outcome = sync(lying.url, [*WALLETS, wallet(700)])
    assert outcome.code == 0, outcome.said
    assert {wallet_id for wallet_id, _ in held(lake)} == {wallet(700)}
    check_lake(lake)
