"""The databases that notebooks are run on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from notebook_worlds import free_port

from nftsync.demo.provider import address_file
from nftsync.store.schema import open_store


@pytest.fixture(autouse=True)
def _no_settings(own_settings: None) -> None:
    """No settings of whoever runs the tests."""


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that nothing was read into."""
    database = tmp_path_factory.mktemp("empty") / "empty.db"
    open_store(database).close()
    return database


@pytest.fixture
def copied(demo: Path, tmp_path: Path) -> Path:
    """The demo's files, to be changed, and a port of its own for its provider."""
    folder = tmp_path / "copied"
    shutil.copytree(demo.parent, folder)
    address_file(folder / "demo.db").write_text(f"http://127.0.0.1:{free_port()}\n")
    return folder / "demo.db"
