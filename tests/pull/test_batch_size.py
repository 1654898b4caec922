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
    size.learn(500, 10.0)  # a small transaction says nothing
    for expected in sizes:
        size.learn(size.entries, seconds)
        assert size.entries == expected
