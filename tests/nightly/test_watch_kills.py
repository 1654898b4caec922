"""A `serve` that is killed loses no message and reports nothing twice.

A short profile; `make watchkills` runs the long one.
"""

from __future__ import annotations

from pathlib import Path

from tests.nightly.watch_kills import run_seed


def test_killed_senders_lose_nothing_and_report_each_change_once(tmp_path: Path) -> None:
    figures = run_seed(1, 2, tmp_path)
    assert figures["kills"] == 2
    assert figures["forwarded"] >= 1
    assert figures["events"] >= 1
