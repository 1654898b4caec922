"""Batches of reads against the rules alone: a short profile; `make soak` runs the long one."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.model.batches import WALLETS, run_seed


@pytest.mark.parametrize("seed", range(6))
def test_the_mirror_follows_its_rules_after_each_batch(seed):
    figures = run_seed(seed)
    assert figures["reads"] >= 250


def test_the_seeds_reach_all_results():
    """Otherwise, a model that compares nothing would pass."""
    figures = sum((run_seed(seed, 120) for seed in range(4)), Counter())
    for what in ("ok", "unchanged", "incomplete", "failed", "stale", "staged", "skips offered"):
        assert figures[what] > len(WALLETS), what
    assert figures["held"] > 0


def test_a_seed_repeats_itself():
    assert run_seed(3, 60) == run_seed(3, 60)
