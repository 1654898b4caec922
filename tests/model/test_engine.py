"""The engine on a simulated machine: 5,000 steps and more; `make soak` makes a million."""

from __future__ import annotations

import pytest

from tests.model.engine import run_seed

# A process that is killed closes nothing.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_the_rules_hold_after_each_commit_and_the_mirror_ends_equal_to_the_provider():
    figures = run_seed(4)[0] + run_seed(5)[0]
    assert figures["steps"] >= 5_000
    # A simulation in which nothing happens would pass too.
    for what in (
        "ends of serve",
        "webhooks acknowledged",
        "sync ok",
        "done",
        "wallets approved",
        "past states",
        "of these within runs",
    ):
        assert figures[what] > 0, what


def test_a_seed_repeats_itself_to_the_byte():
    assert run_seed(3, 800) == run_seed(3, 800)
