"""`nftsync notebook` starts JupyterLab, which shows the five notebooks."""

import json
import os
import re
import shlex
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from nftsync.demo.provider import address_file, remove_demo
from nftsync.errors import InputError
from tests.docs.pages import ROOT
from tests.kit.browser import PATIENCE
from tests.kit.layout import layout_faults
from tests.kit.waiting import wait_until
from tests.notebooks.lab_browser import Lab, LabPage, started
from tests.notebooks.worlds import NOTEBOOKS, PLOTLY, free_port

SECONDS = PATIENCE / 1000
NOTEBOOK = ("nftsync", "notebook", "--no-browser")


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "there is no database at"), ("no database", "is not a SQLite database")],
)
def test_an_unusable_database_is_refused_before_jupyterlab_starts(
    tmp_path, command, content, problem
):
    named = tmp_path / "named.db"
    if content is not None:
        named.write_text(content * 1_000)
    before = list(tmp_path.iterdir())
    done = command("notebook", tmp_path / "analysis", "--no-browser", "-d", named)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert problem in done.err
    assert list(tmp_path.iterdir()) == before


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=SECONDS, trust_env=False).is_success
    except httpx.TransportError:
        return False


def test_it_copies_missing_notebooks_opens_the_demo_with_its_provider_and_ends_both(
    copied, tmp_path
):
    port = free_port()  # one that no other test's session takes
    own = tmp_path / "mine" / NOTEBOOKS[0].name
    own.parent.mkdir()
    own.write_text("{}")
    arguments = ("mine", "--database", copied, "--port", port)
    with started(tmp_path, *NOTEBOOK, *arguments) as session:
        url, token = session.address

        def get(path: str) -> Any:
            asked = Request(f"{url}{path}", headers={"Authorization": f"token {token}"})
            with urlopen(asked, timeout=SECONDS) as answer:
                return json.load(answer)

        assert f"{url}/lab?token={token}" in session.told
        assert url.endswith(f"127.0.0.1:{port}")
        names = {entry["name"] for entry in get("/api/contents/")["content"]}
        assert names == {path.name for path in NOTEBOOKS}
        assert own.read_text() == "{}", "existing notebooks are kept"
        copies = {path.read_bytes() for path in own.parent.iterdir() if path != own}
        assert copies == {path.read_bytes() for path in NOTEBOOKS[1:]}
        provider = address_file(copied).read_text().strip()
        assert answers(f"{provider}/sandbox/wallets")
        with urlopen(f"{url}/lab?token={token}", timeout=SECONDS) as answer:
            page = answer.read().decode()
        (config,) = re.findall(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)
        assert json.loads(config)["news"] == {"disabled": True}
        assert json.loads(config)["extensionManager"]["can_install"] is False
        assert get("/lab/api/update") == {"notification": None}
        assert json.loads(config)["buildCheck"] is False  # which warns where nodejs is missing
        assert not re.search(r"^\[[DIW] ", session.told, re.M), session.told
        assert token not in session.told.partition("Copied")[0]
        assert not answers(f"{url}/api/contents/")
        with pytest.raises(InputError, match="nftsync notebook"):
            remove_demo(copied)
        assert session.end(signal.SIGHUP) == 0, session.told
        assert not answers(f"{provider}/sandbox/wallets")
        assert not answers(url)
        remove_demo(copied)
        assert "Traceback" not in session.told


def test_a_taken_port_is_an_error(empty, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with started(tmp_path, *NOTEBOOK, "--database", empty, "--port", port) as session:
            assert session.process.wait(SECONDS) == 2
    assert f"nftsync: port {port} on 127.0.0.1 is taken by " in session.told
    assert f"(process {os.getpid()}); choose another with --port" in session.told


def test_without_the_extra_it_says_how_to_install_it(command, tmp_path, monkeypatch):
    monkeypatch.setattr("nftsync.extras.find_spec", {"jupyterlab": 1, "ipywidgets": 1}.get)
    done = command("notebook")
    assert (done.code, done.out) == (1, "")
    install = shlex.join([sys.executable, *f"-m pip install --editable {ROOT}[notebook]".split()])
    needed = "nftsync: notebooks and reports need plotly, papermill; to install: "
    assert done.err == f"{needed}{install}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_line(command, empty):
    Path("file").write_text("")
    done = command("notebook", "file", "-d", empty)
    assert done.code == 1
    assert done.err.startswith("nftsync: cannot copy the notebooks to ")
    assert done.err.count("\n") == 1


# The five notebooks -------------------------------------------------------------------------------


_OUTPUTS = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea-output"


@pytest.fixture
def lab(demo: Path, copied: Path, tmp_path: Path) -> Iterator[Lab]:
    """Run JupyterLab on the demo, with a page that tests can query."""
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


def test_all_notebooks_show_whole_texts_without_overlaps_questions_or_warnings(lab, page):
    """In a wide and in a narrow window, once everything is drawn."""
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
    """Return the faults in a frame, scrolled into view, where browsers draw it."""
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
#: The standard error of cells, such as warnings.
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
