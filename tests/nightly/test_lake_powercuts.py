"""A power cut leaves a lake at the newest run whose `ok` was printed, and the next sync works.

A short profile; `make powercuts` runs the long one, and shows first that cuts find a lake that is
not synced.
"""

from __future__ import annotations

import pytest

from tests.nightly.lake_powercuts import run_seed
from tests.nightly.recorded_disk import can_record

pytestmark = pytest.mark.skipif(
    not can_record(), reason="strace is not there, or may trace nothing here"
)


def test_a_run_whose_ok_was_printed_survives_and_the_next_sync_works() -> None:
    figures, fault = run_seed(seed=1, cuts=40, every=20)
    assert fault is None
    assert figures["run 2 shown"] + figures["run 3 shown"] >= 5
    assert figures["torn"] >= 5
