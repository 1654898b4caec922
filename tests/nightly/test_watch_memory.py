"""The memory of a `serve` with failing destinations is measured.

A short profile; `make watchmemory` runs the long one.
"""

from __future__ import annotations

from pathlib import Path

from tests.nightly.watch_memory import run


def test_a_serve_with_failing_destinations_shows_what_it_holds(tmp_path: Path) -> None:
    samples = run(tmp_path, minutes=0.1, speed=5, every=1, traced=False)
    assert samples
    assert {"rss", "anon", "used", "free", "sqlite", "arrow", "types"} <= samples[-1].keys()
