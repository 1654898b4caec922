"""`nftsync notebook` starts JupyterLab, which shows the five notebooks."""

import json
import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial

import httpx
import pytest
from playwright.sync_api import Locator, expect

from nftsync.demo.provider import address_file, remove_demo
from nftsync.errors import InputError
from tests.kit.database import begun
from tests.kit.layout import layout_faults
from tests.kit.serve_process import free_port, query
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE
from tests.notebooks.lab_browser import LabPage, started
from tests.notebooks.worlds import NOTEBOOKS, PLOTLY, ROOT


@pytest.mark.parametrize(
    ("folder", "database", "problem"),
    [
        ("analysis", "missing.db", "there is no database at"),
        ("analysis", "file", "is not a SQLite database"),
        ("file", "empty.db", "nftsync: cannot copy the notebooks to "),
    ],
)
def test_an_unusable_database_or_folder_is_refused_before_jupyterlab_starts(
    tmp_path, command, folder, database, problem
):
    begun(tmp_path / "empty.db")
    (tmp_path / "file").write_text("no database" * 1_000)
    before = {*tmp_path.iterdir()}
    done = command("notebook", folder, "--no-browser", "-d", database).tells(problem, code=1)
    assert done.err.count("\n") == 1
    assert {*tmp_path.iterdir()} == before


def test_it_copies_missing_notebooks_opens_the_demo_with_its_provider_and_ends_both(
    copied, tmp_path
):
    own = tmp_path / "mine" / NOTEBOOKS[0].name
    own.parent.mkdir()
    own.write_text("{}")
    port = free_port()
    with started(tmp_path, "--database", copied, "--port", port) as session:
        url, token = session.address

        def get(address: str, **headers: str) -> httpx.Response:
            return httpx.get(address, headers=headers, timeout=PATIENCE, trust_env=False)

        asked = partial(get, Authorization=f"token {token}")
        assert url == f"http://127.0.0.1:{port}"
        names = {entry["name"] for entry in asked(f"{url}/api/contents/").json()["content"]}
        assert names == {path.name for path in NOTEBOOKS}
        assert own.read_text() == "{}", "existing notebooks are kept"
        copies = {path.read_bytes() for path in own.parent.iterdir() if path != own}
        assert copies == {path.read_bytes() for path in NOTEBOOKS[1:]}
        wallets = f"{address_file(copied).read_text().strip()}/sandbox/wallets"
        assert get(wallets).is_success
        page = asked(f"{url}/lab").text
        (config,) = re.findall(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)
        assert json.loads(config)["news"] == {"disabled": True}
        assert json.loads(config)["extensionManager"]["can_install"] is False
        assert asked(f"{url}/lab/api/update").json() == {"notification": None}
        assert json.loads(config)["buildCheck"] is False  # which warns where nodejs is missing
        assert not re.search(r"^\[[DIW] ", session.told, re.M), session.told
        assert token not in session.told.partition("Copied")[0]
        assert get(f"{url}/api/contents/").is_client_error
        with pytest.raises(InputError, match="nftsync notebook"):
            remove_demo(copied)
        assert session.end(signal.SIGHUP) == 0, session.told
        for ended in (wallets, url):
            with pytest.raises(httpx.TransportError):
                get(ended)
        remove_demo(copied)
        assert "Traceback" not in session.told


def test_a_taken_port_is_an_error(empty, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with started(tmp_path, "--database", empty, "--port", port) as session:
            assert session.process.wait(PATIENCE) == 2
    assert f"nftsync: port {port} on 127.0.0.1 is taken by " in session.told
    assert f"(process {os.getpid()}); choose another with --port" in session.told


def test_without_the_extra_it_says_how_to_install_it(command, tmp_path, monkeypatch):
    monkeypatch.setattr("nftsync.extras.find_spec", {"jupyterlab": 1, "ipywidgets": 1}.get)
    install = shlex.join([sys.executable, *f"-m pip install --editable {ROOT}[notebook]".split()])
    needed = "nftsync: notebooks and reports need plotly, papermill; to install: "
    assert command("notebook") == (1, "", f"{needed}{install}\n")
    assert list(tmp_path.iterdir()) == []


_OUTPUTS = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea-output"


def test_all_notebooks_show_whole_texts_without_overlaps_questions_or_warnings(
    demo, copied, tmp_path, record
):
    """In a wide and in a narrow window, once everything is drawn."""
    # The copy's provider has another port, also for its pictures.
    ports = [address_file(database).read_text().strip() for database in (demo, copied)]
    query(copied, "UPDATE tokens SET image = replace(image, ?, ?)", *ports)
    with started(tmp_path, "--database", copied) as lab:
        page = record.context.new_page()
        page.goto("{}/lab?token={}".format(*lab.address))
        expect(page.locator(".jp-DirListing-item")).to_have_count(len(NOTEBOOKS))
        assert page.evaluate(_CUT_NAMES) == []
        for path in NOTEBOOKS:
            page.locator(f".jp-DirListing-item[title*='{path.name}']").dblclick()
            page.wait_for_function(_IN_FRONT, arg=path.name)
            notebook = LabPage(page)
            notebook.run_all()
            assert notebook.problems() == []
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
