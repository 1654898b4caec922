"""Notebooks that come with nftsync, run in real JupyterLab on the demo's database."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_browser import Lab, running_lab
from notebooks.notebook_worlds import NOTEBOOKS, make_demo, read
from playwright.sync_api import BrowserContext, expect
from seen_browser import Record

from nftsync.lab.demo_provider import provider_again

#: These two have a table, a gallery and a chart of each kind; all five run in kernels elsewhere.
_LOOKED_AT = [path for path in NOTEBOOKS if path.name[0] in "13"]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_demo(tmp_path_factory.mktemp("demo"))


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
    with running_lab(tmp_path_factory.mktemp("lab"), environment) as lab:
        yield lab


def _code_cells(notebook: Path, text: str) -> list[int]:
    return [
        number
        for number, cell in enumerate(read(notebook).cells)
        if cell.cell_type == "code" and text in cell.source and "import " not in cell.source
    ]


@pytest.mark.parametrize("path", _LOOKED_AT, ids=lambda path: path.stem)
def test_it_runs_and_draws_without_a_word_on_the_console_or_to_another_host(
    path: Path, lab: Lab, provider: str, context: BrowserContext, record: Record
) -> None:
    shutil.copy(path, lab.notebooks)
    notebook = lab.open(context, path.name)
    notebook.run_all()
    assert notebook.errors() == []
    for cell in _code_cells(path, "charts."):
        chart = notebook.outputs(cell).locator(".js-plotly-plot")
        expect(chart.locator(".gtitle")).not_to_be_empty()
        expect(chart.locator(".bars path, .lines path, .hm image").first).to_be_visible()
    for cell in _code_cells(path, "nftsync.gallery("):
        gallery = notebook.gallery(notebook.outputs(cell))
        picture = gallery.locator("li.card img").first
        expect(picture).to_have_js_property("complete", True)
        assert picture.evaluate("(image) => image.naturalWidth") > 0
    record.check(lab.url, provider)
