"""Databases for notebooks, and Chromium."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext

from nftsync.demo.provider import address_file
from nftsync.notebooks.jupyter import notebook_environment
from nftsync.store.schema import open_store
from tests.kit.browser import PATIENCE, Record, open_chromium
from tests.kit.way_out import WayOut
from tests.notebooks.worlds import free_port


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database without reads."""
    database = tmp_path_factory.mktemp("empty") / "empty.db"
    open_store(database).close()
    return database


@pytest.fixture
def copied(demo: Path, tmp_path: Path) -> Path:
    """Return a copy of the demo's files, with another port for its provider."""
    folder = tmp_path / "copied"
    shutil.copytree(demo.parent, folder)
    address_file(folder / "demo.db").write_text(f"http://127.0.0.1:{free_port()}\n")
    return folder / "demo.db"


@pytest.fixture
def running_provider(copied: Path) -> Iterator[str]:
    """Run the provider of the copied demo, and return its address."""
    with notebook_environment(copied, None, lambda _: None) as environment:
        yield environment["NFTSYNC_BASE_URL"]


@pytest.fixture(scope="module")
def outside() -> Iterator[WayOut]:
    """Record all requests of the browser to other machines."""
    with WayOut() as outside:
        yield outside


@pytest.fixture(scope="module")
def chromium(outside: WayOut) -> Iterator[Browser]:
    with open_chromium(proxy=outside.url) as browser:
        yield browser


@pytest.fixture(scope="module")
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """Return a browser context that a module's windows share, because JupyterLab loads slowly."""
    # By default, Playwright emulates a light color scheme in every page.
    context = chromium.new_context(viewport={"width": 1280, "height": 1200}, color_scheme="null")
    context.set_default_timeout(PATIENCE)
    yield context
    context.close()


@pytest.fixture(scope="module")
def _record(context: BrowserContext) -> Record:
    return Record(context)


@pytest.fixture
def record(context: BrowserContext, outside: WayOut, _record: Record) -> Iterator[Record]:
    """Record the pages of a test, and close them after it.

    The test fails if the browser sends a request to another machine.
    """
    outside.wanted.clear()
    _record.forget()
    yield _record
    for page in context.pages:
        page.close()
    assert outside.wanted == []
