"""A copy of the demo, and Chromium."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from nftsync.demo.provider import address_file
from tests.kit.browser import Record, open_chromium
from tests.kit.database import begun
from tests.kit.serve_process import free_port
from tests.kit.way_out import WayOut


@pytest.fixture
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return begun(tmp_path_factory.mktemp("empty") / "empty.db")


@pytest.fixture
def copied(demo: Path, tmp_path: Path) -> Path:
    """Return a copy of the demo's files, with another port for its provider."""
    folder = tmp_path / "copied"
    shutil.copytree(demo.parent, folder)
    address_file(folder / "demo.db").write_text(f"http://127.0.0.1:{free_port()}\n")
    return folder / "demo.db"


@pytest.fixture(scope="module")
def outside() -> Iterator[WayOut]:
    """Record all requests of the browser to other machines."""
    with WayOut() as outside:
        yield outside


@pytest.fixture(scope="module")
def shared_record(outside: WayOut) -> Iterator[Record]:
    """Record a context that a module's windows share, because JupyterLab loads slowly."""
    with open_chromium(proxy=outside.url) as browser:
        yield Record(browser, viewport={"width": 1440, "height": 1200})


@pytest.fixture
def record(outside: WayOut, shared_record: Record) -> Iterator[Record]:
    """Record the pages of a test, and close them after it.

    The test fails if the browser sends a request to another machine.
    """
    outside.wanted.clear()
    shared_record.forget()
    yield shared_record
    for page in shared_record.context.pages:
        page.close()
    assert outside.wanted == []
