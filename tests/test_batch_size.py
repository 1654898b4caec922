"""How much goes into one write transaction."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync.store.mirror import BatchSize


def test_slow_transactions_make_smaller_ones_down_to_a_least_size() -> None:
    size = BatchSize()
    sizes = []
    for _ in range(10):
        size.learn(size.entries, 10.0)
        sizes.append(size.entries)
    assert sizes[:3] == [500, 250, 200]
    assert set(sizes[3:]) == {200}


def test_quick_transactions_make_larger_ones_up_to_a_most() -> None:
    size = BatchSize()
    sizes = []
    for _ in range(10):
        size.learn(size.entries, 0.0)
        sizes.append(size.entries)
    assert sizes[:4] == [2_000, 4_000, 8_000, 8_000]


def test_a_transaction_of_the_right_length_changes_nothing() -> None:
    size = BatchSize()
    size.learn(1_000, 0.08)
    assert size.entries == pytest.approx(1_000, abs=1)


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
