"""The five notebooks in the JupyterLab that `nftsync notebook` starts, as users meet them."""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from nftsync.demo.provider import address_file
from tests.kit.browser import PATIENCE
from tests.kit.layout import layout_faults
from tests.kit.waiting import wait_until
from tests.notebooks.lab_browser import Lab, LabPage, started
from tests.notebooks.worlds import NOTEBOOKS, PLOTLY, free_port

_OUTPUTS = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea-output"


@pytest.fixture
def lab(demo: Path, copied: Path, tmp_path: Path) -> Iterator[Lab]:
    """JupyterLab on the demo, as `nftsync notebook` starts it, with a page that tests can ask."""
    # The copy's provider has another port, also for its pictures.
    ports = [address_file(database).read_text().strip() for database in (demo, copied)]
    with closing(sqlite3.connect(copied)) as connection, connection:
        connection.execute("UPDATE tokens SET image = replace(image, ?, ?)", ports)
    _configure(
        tmp_path / "config", "jupyter_lab_config.json", {"LabApp": {"expose_app_in_browser": True}}
    )
    settings = "lab/user-settings/@jupyterlab/notebook-extension/tracker.jupyterlab-settings"
    _configure(tmp_path / "config", settings, {"windowingMode": "none"})
    words = ("--no-browser", "mine", "--database", copied, "--port", free_port())
    with started(tmp_path, "nftsync", "notebook", *words) as lab:
        yield lab


def _configure(folder: Path, name: str, values: dict[str, object]) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(values))


@pytest.fixture
def page(lab: Lab, chromium: Browser) -> Iterator[Page]:
    """A window of JupyterLab, once it lists the notebooks."""
    url, token = lab.address
    context = chromium.new_context(viewport={"width": 1440, "height": 1200})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(f"{url}/lab?token={token}")
    expect(page.locator(".jp-DirListing-item")).to_have_count(len(NOTEBOOKS))
    yield page
    context.close()


def test_all_notebooks_show_whole_texts_side_by_side_and_nothing_asks_or_warns(lab, page):
    """In a wide window and in a narrow one, as soon as everything is drawn."""
    assert page.evaluate(_CUT_NAMES) == []
    for path in NOTEBOOKS:
        page.locator(f".jp-DirListing-item[title*='{path.name}']").dblclick()
        page.wait_for_function(_IN_FRONT, arg=path.name)
        notebook = LabPage(page)
        notebook.run_all()
        assert notebook.errors() == []
        assert page.evaluate(_PRINTED) == []
        page.wait_for_function(_DRAWN, arg=[_OUTPUTS, PLOTLY])
        for width in (900, 1440):
            page.set_viewport_size({"width": width, "height": 1200})
            _wait_for_none(partial(layout_faults, page, _OUTPUTS))
            for gallery in page.locator(f"{_OUTPUTS} iframe").all():
                _wait_for_none(partial(_gallery_faults, gallery))
    # The last notebook is the report, in front.
    page.locator(".nftsync-pictures img").first.scroll_into_view_if_needed()
    _wait_for_none(partial(page.evaluate, _WITHOUT_PICTURE, ".nftsync-pictures > div"))
    expect(page.locator(".Toastify__toast")).to_have_count(0)
    assert not re.search(r"^\[[DIWE] |warning|error", lab.told, re.M | re.I), lab.told


def _wait_for_none(faults: Callable[[], list[str]]) -> None:
    """Charts, frames and pictures are drawn a moment later."""
    wait_until(lambda: not faults(), lambda: "\n".join(faults()))


def _gallery_faults(gallery: Locator) -> list[str]:
    """What is wrong in a frame, brought into sight: a browser draws it only there."""
    gallery.scroll_into_view_if_needed()
    frame = gallery.element_handle().content_frame()
    assert frame is not None
    without: list[str] = frame.evaluate(_WITHOUT_PICTURE, "li.card")
    return layout_faults(frame) + without


#: File names that are cut before their suffix.
_CUT_NAMES = """() => [...document.querySelectorAll('.jp-DirListing-itemText')].filter((item) => {
  const range = document.createRange();
  const text = document.createTreeWalker(item, NodeFilter.SHOW_TEXT).nextNode();
  range.setStart(text, 0);
  range.setEnd(text, text.data.lastIndexOf('.'));
  return range.getBoundingClientRect().right > item.getBoundingClientRect().right;
}).map((item) => item.textContent)"""
_IN_FRONT = "(name) => window.jupyterapp.shell.currentWidget?.title.label === name"
#: What cells wrote to standard error, such as warnings.
_PRINTED = """() => window.jupyterapp.shell.currentWidget.content.model.toJSON().cells
  .flatMap((cell) => cell.outputs ?? [])
  .filter((output) => output.name === 'stderr')
  .map((output) => output.text)"""
#: Whether each chart is drawn, with a height.
_DRAWN = """([root, type]) => {
  const cells = window.jupyterapp.shell.currentWidget.content.model.toJSON().cells;
  const outputs = cells.flatMap((cell) => cell.outputs ?? []);
  const charts = outputs.filter((output) => output.data?.[type]).length;
  const drawn = [...document.querySelectorAll(`${root}.js-plotly-plot .main-svg:first-child`)];
  return drawn.length === charts
    && drawn.every((chart) => chart.getBoundingClientRect().height > 150);
}"""
#: Texts of cards in sight that show no picture: all of the demo's first NFTs have one.
_WITHOUT_PICTURE = """(cards) => {
  const shown = [...document.querySelectorAll(cards)].filter((card) => {
    const {top, bottom} = card.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  });
  if (!shown.length) return ['no cards'];
  const without = shown.filter((card) => !card.querySelector('img')?.naturalWidth);
  return without.map((card) => `without a picture: ${card.textContent}`);
}"""
