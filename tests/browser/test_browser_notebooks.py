"""The notebooks that come with nftsync, run in real JupyterLab on the demo's database."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_browser import Lab
from playwright.sync_api import BrowserContext, expect
from seen_browser import Record

from nftsync.lab.demo import run_demo
from nftsync.lab.demo_provider import provider_again

_NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9]-*.ipynb"))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = tmp_path_factory.mktemp("demo") / "demo.db"
    # Demos of other tests, of the same wallets, come and go at the usual port.
    run_demo(database, lambda _: None, progress=False, port=0)
    return database


@pytest.fixture(scope="module")
def provider(database: Path) -> Iterator[str]:
    with provider_again(database) as url:
        yield url


@pytest.fixture(scope="module")
def lab(database: Path, provider: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    environment = {
        "NFTSYNC_DATABASE": str(database),
        "NFTSYNC_BASE_URL": provider,
        "NFTSYNC_CONFIG": "/dev/null",
    }
    with Lab(tmp_path_factory.mktemp("lab"), environment) as lab:
        for notebook in _NOTEBOOKS:
            shutil.copy(notebook, lab.notebooks)
        yield lab


def _cells_that_say(notebook: Path, text: str) -> list[int]:
    cells = json.loads(notebook.read_text())["cells"]
    return [
        number
        for number, cell in enumerate(cells)
        if cell["cell_type"] == "code" and text in "".join(cell["source"])
    ]


@pytest.mark.parametrize("path", _NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_draws_without_a_word_on_the_console_or_to_another_host(
    path: Path, lab: Lab, provider: str, context: BrowserContext, record: Record, tmp_path: Path
) -> None:
    notebook = lab.open(context, path.name)
    notebook.run_all()
    assert notebook.errors() == []
    drawn = [cell for cell in _cells_that_say(path, "charts.") if cell not in _imports(path)]
    for cell in drawn:
        chart = notebook.outputs(cell).locator(".js-plotly-plot")
        expect(chart.locator(".gtitle")).not_to_be_empty()
        expect(chart.locator(".bars path, .lines path, .hm image").first).to_be_visible()
    galleries = _cells_that_say(path, "nftsync.gallery(")
    for cell in galleries:
        gallery = notebook.gallery(notebook.outputs(cell))
        picture = gallery.locator("li.card img").first
        expect(picture).to_have_js_property("complete", True)
        assert picture.evaluate("(image) => image.naturalWidth") > 0
    notebook.picture(tmp_path, path.stem, *drawn, *galleries)
    record.check(lab.url, provider)


def _imports(path: Path) -> list[int]:
    return _cells_that_say(path, "import nftsync")
