"""How much goes into one write transaction."""

from __future__ import annotations

import pytest

from nftsync.store.mirror import BatchSize


@pytest.mark.parametrize(
    ("seconds", "sizes"),
    [(10.0, [500, 250, 200, 200]), (0.12, [1_000] * 4), (0.0, [2_000, 4_000, 8_000, 8_000])],
)
def test_slow_transactions_make_smaller_ones_and_quick_ones_larger(
    seconds: float, sizes: list[int]
) -> None:
    size = BatchSize()
    for expected in sizes:
        size.learn(size.entries, seconds)
        assert size.entries == expected


@pytest.mark.parametrize("entries", [0, 1, 500])
def test_a_small_transaction_says_nothing(entries: int) -> None:
    size = BatchSize()
    size.learn(entries, 10.0)
    assert size.entries == 1_000
