"""The databases that notebooks are run on, made once in each test process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from notebook_worlds import make_demo, make_empty


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("NFTSYNC_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_demo(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_empty(tmp_path_factory.mktemp("empty"))
