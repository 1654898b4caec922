"""Hostile metadata in real JupyterLab."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import v4
from playwright.sync_api import expect

import nftsync
from nftsync import charts, frames
from tests.kit.browser import Record
from tests.kit.provider import Provider
from tests.kit.way_out import WayOut
from tests.notebooks.hostile_world import HOSTILE_WALLETS, RAN, TRAP, hostile_provider, script
from tests.notebooks.lab_browser import Lab, LabPage, started

_GALLERY = "nftsync.gallery(holdings.drop_duplicates('token_id'))"
_CELLS = (
    """
import pandas
import nftsync
from nftsync import charts, frames
pandas.set_option('display.max_colwidth', 500, 'display.max_columns', None)
""",
    "nftsync.sync()",
    "holdings = frames.holdings()\nholdings",
    """
for read in (frames.tokens, frames.wallets, frames.changes, frames.token_changes,
             frames.runs, frames.webhooks, frames.collections):
    display(read())
""",
    """
display(frames.freshness(), frames.quality(), frames.holding_ages())
display(frames.diff(None, '2020-01-01'))
""",
    """
for measure in (frames.concentration, frames.overlap, frames.editions):
    display(measure(holdings))
""",
    """
for name in charts.__all__:
    display(getattr(charts, name)())
""",
    _GALLERY,
    "nftsync.sync(wallets=['<img src onerror=alert(1)> of nobody'])",
)
_SHOW = "from IPython.display import HTML\nHTML({!r})"
#: A name and a contract, too short to be truncated.
_LITERAL = "<a href='https://a.invalid'>gift</a>"
#: Every picture, visible or not, has loaded or failed.
_LOAD_ALL = """(grid) => Promise.all([...grid.querySelectorAll('img')].map((image) => {
  image.loading = 'eager';
  return image.complete || new Promise((done) => {
    image.addEventListener('load', done);
    image.addEventListener('error', done);
  });
}))"""
#: All pictures have loaded or failed, and some were drawn.
_DRAWN = """(images) => images.every((image) => image.complete)
  && images.some((image) => image.naturalWidth > 0)"""
#: A picture that the provider lacks, and one that it refuses.
_KNOWN = (r"Failed to load resource: the server responded with a status of 404 .*/art/",)


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with hostile_provider() as provider:
        yield provider


@pytest.fixture(scope="module")
def database(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = tmp_path_factory.mktemp("mirror") / "nftsync.db"
    file = database.with_name("wallets.csv")
    with file.open("w", newline="") as lines:
        csv.writer(lines).writerows([("wallet_id", "label", "group"), *HOSTILE_WALLETS])
    nftsync.sync(wallets_file=file, base_url=provider.url, database=database, progress=False)
    return database


@pytest.fixture(scope="module")
def lab(
    provider: Provider, database: Path, outside: WayOut, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    """Run JupyterLab, whose kernels have the same proxy as the browser."""
    with started(
        tmp_path_factory.mktemp("lab"),
        *("--database", database),
        HTTP_PROXY=outside.url,
        HTTPS_PROXY=outside.url,
        NO_PROXY="127.0.0.1",
        NFTSYNC_BASE_URL=provider.url,
        NFTSYNC_IPFS_GATEWAY=f"{provider.url}/ipfs/",
    ) as lab:
        yield lab


def _open(
    lab: Lab, record: Record, name: str, cells: Sequence[str], *shown: dict[str, Any]
) -> LabPage:
    """Open a new unsigned notebook of code cells, with the outputs of the first ones."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = [*map(v4.new_code_cell, cells)]
    for cell, data in zip(made, shown, strict=False):
        cell.outputs = [v4.new_output("display_data", data)]
    assert lab.address  # it has made its folder
    nbformat.write(
        v4.new_notebook(cells=made, metadata={"kernelspec": kernel}), lab.notebooks / name
    )
    return lab.open(record.context, name)


def _hover_over_charts(notebook: LabPage) -> None:
    drawn = notebook.page.locator(".js-plotly-plot")
    expect(drawn).to_have_count(len(charts.__all__))
    for chart in drawn.all():
        expect(chart.locator(".main-svg").first).to_be_visible()
        chart.scroll_into_view_if_needed()
        area = chart.bounding_box()
        assert area is not None
        for place in range(1, 6):
            across, down = area["x"] + area["width"] * place / 6, area["y"] + area["height"] / 2
            notebook.page.mouse.move(across, down)


def _nothing_ran(notebook: LabPage, record: Record) -> None:
    assert notebook.live_parts() == []
    assert notebook.page.evaluate("window.name") != RAN
    assert _ran(record) == 0


def _ran(record: Record) -> int:
    return [text for _, text, _ in record.messages].count(RAN)


def test_no_script_of_metadata_runs_or_makes_a_request(lab, provider, record):
    notebook = _open(lab, record, "hostile.ipynb", _CELLS)
    notebook.run_all()
    assert notebook.problems()[-1] == "InputError"
    grid = notebook.gallery(_CELLS.index(_GALLERY)).locator("#grid")
    expect(grid.locator("li.card").filter(has_text=_LITERAL)).not_to_have_count(0)
    open_all = "(all) => all.forEach((each) => { each.click(); })"
    grid.get_by_role("button", name="Details").evaluate_all(open_all)
    grid.evaluate(_LOAD_ALL)
    _hover_over_charts(notebook)
    labels = notebook.page.locator(".js-plotly-plot .yaxislayer-above")
    expect(labels.filter(has_text=_LITERAL)).not_to_have_count(0)
    expect(notebook.page.locator(".js-plotly-plot .main-svg a")).to_have_count(0)
    _nothing_ran(notebook, record)
    record.check(lab.url, provider.url, known=_KNOWN)


def test_an_untrusted_notebook_shows_its_outputs_without_frames_and_scripts(
    lab, provider, database, outside, record
):
    """An unsigned file shows its outputs, but its scripts run only once a person runs the notebook.

    Then the checks of this module detect them.
    """
    attack = f"""
        <script>{script()}</script>
        <iframe sandbox="allow-scripts" srcdoc="<script>{script("/frame")}</script>"></iframe>
        <a href="javascript:1" onclick="1">gift</a><img src="file:///etc/passwd">
        <iframe srcdoc="<img src=https://pictures.invalid/1.png>"></iframe>
    """
    held = frames.holdings(database).drop_duplicates("token_id")
    gallery = nftsync.gallery(held, base_url=provider.url, ipfs_gateway=f"{provider.url}/ipfs/")
    figure = charts.holdings_by_collection(held)
    notebook = _open(
        *(lab, record, "by-mail.ipynb", ["pass", "pass", _SHOW.format(attack), "pass"]),
        {"text/html": gallery._repr_html_()},
        {"text/html": held._repr_html_()},
        {"text/html": f"<script>{script()}</script>"},
        {"application/vnd.plotly.v1+json": json.loads(figure.to_json())},
    )
    rows = notebook.outputs(0).locator("table tbody tr")
    expect(rows.filter(has_text=_LITERAL)).not_to_have_count(0)
    pictures = notebook.outputs(0).locator("img")
    expect(pictures).not_to_have_count(0)
    notebook.wait_until(lambda: pictures.evaluate_all(_DRAWN))
    expect(notebook.outputs(0).locator("iframe")).to_have_count(0)
    expect(notebook.outputs(3).locator(".js-plotly-plot .bars path").first).to_be_visible()
    _nothing_ran(notebook, record)
    record.check(lab.url, provider.url, known=_KNOWN)
    assert outside.wanted == []
    notebook.run_all()
    ran = {f"GET {TRAP}{path}/ran HTTP/1.1" for path in ("", "/frame")}
    ran.add("CONNECT pictures.invalid:443 HTTP/1.1")
    notebook.wait_until(lambda: ran <= set(outside.wanted) and _ran(record) == 2)
    notebook.wait_until(lambda: f"{TRAP}/ran" in record.strangers(lab.url, provider.url))
    notebook.wait_until(lambda: record.dialogs == [RAN])
    assert set(outside.wanted) == ran
    outside.wanted.clear()
    assert notebook.page.evaluate("window.name") == RAN
    assert len(notebook.live_parts()) == 3
    with pytest.raises(AssertionError):
        record.check(lab.url, provider.url, known=_KNOWN)
