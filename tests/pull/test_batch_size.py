"""How much goes into one write transaction."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 1e6)), max_size=30))
def test_the_size_stays_in_its_bounds(seen: list[tuple[int, float]]) -> None:
    size = BatchSize()
    for entries, seconds in seen:
        size.learn(entries, seconds)
        assert 200 <= size.entries <= 8_000
