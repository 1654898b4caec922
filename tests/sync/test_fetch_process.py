"""The process that reads, where the plan it was started for comes to nothing."""

from __future__ import annotations

import os
import signal

import pytest

from nftsync.pull.process import FetchProcess


def test_a_process_that_is_told_nothing_ends_with_its_parents_interest() -> None:
    process = FetchProcess()
    process.close()
    assert process._child.returncode == 0


def test_ctrl_c_while_a_process_starts_is_the_parents_alone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    process = FetchProcess()
    os.kill(process._child.pid, signal.SIGINT)
    process.close()
    assert process._child.returncode == 0
    assert capfd.readouterr().err == ""
