"""Processes that end with the test that started them, also if it fails."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kit.serve_process import command, environment
from tests.kit.worlds import PATIENCE, Outcome

_started: list[subprocess.Popen[Any]] = []


def start_process(*arguments: Any, **options: Any) -> subprocess.Popen[Any]:
    """Start a process as `Popen` does."""
    _started.append(subprocess.Popen(*arguments, **options))
    return _started[-1]


def start(*words: object, folder: Path, variables: Mapping[str, str] = {}) -> subprocess.Popen[str]:
    """Start a command of nftsync in a session of its own, with `--json`."""
    return start_process(
        command(*map(str, words), "--json"),
        cwd=folder,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> Outcome:
    """Wait for a process, and return its exit code and output."""
    out, err = process.communicate(timeout=PATIENCE)
    return Outcome(process.returncode, out, err)


def end_processes() -> None:
    """Kill running processes, and close all pipes."""
    while _started:
        with _started.pop() as process:
            process.kill()
