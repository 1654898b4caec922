"""Processes that end with the test that started them, also if it fails."""

from __future__ import annotations

import subprocess
from typing import Any

_started: list[subprocess.Popen[Any]] = []


def start_process(*arguments: Any, **options: Any) -> subprocess.Popen[Any]:
    """Start a process as `Popen` does."""
    _started.append(subprocess.Popen(*arguments, **options))
    return _started[-1]


def end_processes() -> None:
    """Kill running processes, and close all pipes."""
    while _started:
        with _started.pop() as process:
            process.kill()
