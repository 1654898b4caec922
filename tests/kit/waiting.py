"""Waiting for a condition, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.kit.worlds import PATIENCE


def wait_until(condition: Callable[[], object], what: object = "it") -> None:
    """Wait until a condition is true; `what` names it, or returns the state for the error.

    Conditions that read a lake take milliseconds: they use a fifth of a processor at most.
    """
    deadline = time.monotonic() + PATIENCE
    began = time.thread_time()
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(
                f"still waiting for: {str(what() if callable(what) else what)[:2_000]}"
            )
        time.sleep(max(0.02, 4 * (time.thread_time() - began)))
        began = time.thread_time()


def has_ended(number: Path) -> bool:
    """Return whether the process whose number is in a file has ended."""
    if not number.exists() or not number.read_text().endswith("\n"):
        return False
    with suppress(OSError):
        return Path(f"/proc/{number.read_text().strip()}/stat").read_text().split()[2] == "Z"
    return True
