"""The removal guard of a lake decides on all buckets together, and compares with 24 hours ago."""

from __future__ import annotations

from pathlib import Path

from tests.kit.lake_cluster import check_lake, held
from tests.kit.provider import Provider, entry, token, wallet
from tests.lake.conftest import Sync

WALLETS = [wallet(number) for number in range(60)]
EDITIONS = 20


def editions(provider: Provider, amount: str) -> None:
    """Let each wallet list five of twenty tokens that all share."""
    for number, each in enumerate(WALLETS):
        tokens = (token((number + 4 * place) % EDITIONS) for place in range(5))
        provider.holds(each, *(entry(one, amount) for one in tokens))


def test_new_wallets_hide_no_loss_of_the_others(lying: Provider, lake: Path, sync: Sync) -> None:
    """An approval makes what is there old; then three times as many wallets are read."""
    editions(lying, "5")
    assert sync(lying.url, WALLETS, "--allow-removals").code == 0
    new = [wallet(number) for number in range(100, 100 + 3 * len(WALLETS))]
    for number, each in enumerate(new):
        lying.holds(each, *(entry(token(1_000 + 5 * number + place), "5") for place in range(5)))
    assert sync(lying.url, [*WALLETS, *new]).code == 0
    before = held(lake)
    assert len(before) == 20 * len(WALLETS)
    for lost in (WALLETS[:40], new):
        editions(lying, "5")
        for each in lost:
            lying.holds(each)
        assert (sync(lying.url).code, held(lake)) == (1, before)
    check_lake(lake)


def test_amounts_that_fall_in_steps_are_held_once_they_are_below_half(
    lying: Provider, lake: Path, sync: Sync
) -> None:
    for amount, allowed, code, kept in (
        *(("5", False, 0, "5"), ("4", False, 0, "4"), ("3", False, 0, "3")),
        *(("2", False, 1, "3"), ("2", False, 1, "3"), ("2", True, 0, "2")),
        ("1", False, 0, "1"),  # half of what was approved
    ):
        editions(lying, amount)
        assert sync(lying.url, WALLETS, *["--allow-removals"] * allowed).code == code
        assert set(held(lake).values()) == {kept}
        check_lake(lake)


def test_tokens_that_all_wallets_pass_on_or_sweep_into_one_are_transfers(
    lying: Provider, lake: Path, sync: Sync
) -> None:
    """Each wallet gets tokens that its bucket has not seen before."""
    for moved in (0, 1, 7):
        for number, each in enumerate(WALLETS):
            first = 5 * ((number + moved) % len(WALLETS))
            lying.holds(each, *(entry(token(first + place)) for place in range(5)))
        assert sync(lying.url, WALLETS).code == 0
        assert len(held(lake)) == 5 * len(WALLETS)
    for each in WALLETS:
        lying.holds(each)
    lying.holds(wallet(700), *(entry(token(number)) for number in range(5 * len(WALLETS))))
    outcome = sync(lying.url, [*WALLETS, wallet(700)])
    assert outcome.code == 0, outcome.said
    assert {wallet_id for wallet_id, _ in held(lake)} == {wallet(700)}
    check_lake(lake)
