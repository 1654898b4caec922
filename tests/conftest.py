"""What holds for all tests."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import settings
from worlds import Outcome

# How long an example takes says nothing about whether it is right.
settings.register_profile("nftsync", deadline=None)
settings.load_profile("nftsync")


@pytest.fixture
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of this machine: a working directory of its own, and no variables."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith(("NFTSYNC_", "SSL_CERT_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def one_day() -> None:
    """No midnight (UTC) while a test speaks of today: one that is near is waited for."""
    while datetime.now(UTC).strftime("%H:%M") >= "23:58":
        time.sleep(1)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True
        ).returncode
    except FileNotFoundError:
        mounted = 1
    if mounted != 0:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command in this process."""
    from nftsync.cli import main

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Outcome(ended.value.code, captured.out, captured.err)

    return run
