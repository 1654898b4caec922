"""Notebooks in real JupyterLab: plain data in both themes, and hostile metadata."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import FrameLocator, expect

import nftsync
from nftsync import charts, frames
from nftsync.provider.config import ClientConfig
from nftsync.pull.plan import SyncRequest
from nftsync.pull.run import sync_wallets
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from nftsync.store.wallets import WalletLine
from tests.kit.browser import Record
from tests.kit.way_out import WayOut
from tests.notebooks.hostile_world import HOSTILE_WALLETS, RAN, TRAP, hostile_provider, script
from tests.notebooks.lab_browser import Lab, LabPage, running_lab, write_notebook

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
    "nftsync.gallery(holdings.drop_duplicates('token_id'))",
    "nftsync.sync(wallets=['<img src onerror=alert(1)> of nobody'])",
)
_GALLERY = 7
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
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxServer]:
    with hostile_provider(tmp_path_factory.mktemp("world")) as provider:
        yield provider


@pytest.fixture(scope="module")
def database(provider: SandboxServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = tmp_path_factory.mktemp("mirror") / "nftsync.db"
    request = SyncRequest(wallets=HOSTILE_WALLETS)
    sync_wallets(database, ClientConfig(base_url=provider.url), request, progress=False)
    return database


@pytest.fixture(scope="module")
def lab(
    provider: SandboxServer,
    database: Path,
    outside: WayOut,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Lab]:
    """JupyterLab, whose kernels have no other way out than the browser."""
    environment = {
        "HTTP_PROXY": outside.url,
        "HTTPS_PROXY": outside.url,
        "NO_PROXY": "127.0.0.1",
        "NFTSYNC_DATABASE": str(database),
        "NFTSYNC_BASE_URL": provider.url,
        "NFTSYNC_IPFS_GATEWAY": f"{provider.url}/ipfs/",
        "NFTSYNC_CONFIG": "/dev/null",
    }
    with running_lab(tmp_path_factory.mktemp("lab"), environment) as lab:
        yield lab


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


#: Shown enlarged, one after the other.
_OPEN_ALL = "(all) => all.forEach((each) => { each.click(); })"


def test_no_script_of_metadata_runs_and_nothing_else_is_asked_for(lab, provider, context, record):
    write_notebook(lab.notebooks / "hostile.ipynb", _CELLS)
    notebook = lab.open(context, "hostile.ipynb")
    notebook.run_all()
    assert [error.partition(":")[0] for error in notebook.errors()] == ["InputError"]
    grid = notebook.gallery(notebook.outputs(_GALLERY)).locator("#grid")
    expect(grid.locator("li.card").filter(has_text=_LITERAL)).not_to_have_count(0)
    grid.get_by_role("button", name="Details").evaluate_all(_OPEN_ALL)
    grid.evaluate(_LOAD_ALL)
    _hover_over_charts(notebook)
    labels = notebook.page.locator(".js-plotly-plot .yaxislayer-above")
    expect(labels.filter(has_text=_LITERAL)).not_to_have_count(0)
    expect(notebook.page.locator(".js-plotly-plot .main-svg a")).to_have_count(0)
    _nothing_ran(notebook, record)
    record.check(lab.url, provider.url, known=_KNOWN)


def _nothing_ran(notebook: LabPage, record: Record) -> None:
    """Nor was anything asked of the trap: see the way out."""
    assert notebook.live_parts() == []
    assert notebook.page.evaluate("window.name") != RAN
    assert _said(record) == 0


def _said(record: Record) -> int:
    return [text for _, text, _ in record.messages].count(RAN)


def test_an_untrusted_notebook_shows_the_same_without_frames_and_scripts(
    lab, provider, database, outside, context, record
):
    """The file came with its outputs, and nobody signed it here: its script does not run.

    It does once a person runs the notebook, and then each test of this module would see it.
    """
    inner = script("/frame")
    attack = f"""
        <script>{script()}</script>
        <iframe sandbox="allow-scripts" srcdoc="<script>{inner}</script>"></iframe>
        <a href="javascript:1" onclick="1">gift</a><img src="file:///etc/passwd">
        <iframe srcdoc="<img src=https://pictures.invalid/1.png>"></iframe>
    """
    held = frames.holdings(database).drop_duplicates("token_id")
    gallery = nftsync.gallery(held, base_url=provider.url, ipfs_gateway=f"{provider.url}/ipfs/")
    figure = charts.holdings_by_collection(held)
    shown = {
        0: {"text/html": gallery._repr_html_()},
        1: {"text/html": held._repr_html_()},
        2: {"text/html": f"<script>{script()}</script>"},
        3: {"application/vnd.plotly.v1+json": json.loads(figure.to_json())},
    }
    cells = ["pass", "pass", f"from IPython.display import HTML\nHTML({attack!r})", "pass"]
    write_notebook(lab.notebooks / "by-mail.ipynb", cells, shown)
    notebook = lab.open(context, "by-mail.ipynb")
    rows = notebook.outputs(0).locator("table tbody tr")
    expect(rows).not_to_have_count(0)
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
    notebook.wait_until(lambda: ran <= set(outside.wanted) and _said(record) == 2)
    notebook.wait_until(lambda: f"{TRAP}/ran" in record.strangers(lab.url, provider.url))
    notebook.wait_until(lambda: record.dialogs == [RAN])
    assert set(outside.wanted) == ran
    outside.wanted.clear()
    assert notebook.page.evaluate("window.name") == RAN
    assert len(notebook.live_parts()) == 3
    with pytest.raises(AssertionError):
        record.check(lab.url, provider.url, known=_KNOWN)


# Plain data ---------------------------------------------------------------------------------------

_LABELS = ("Treasury", "Auctions", "Marketing", "Cold storage", "Artist royalties", "Team")
_PLAIN_CELLS = (
    "nftsync.sync()",
    "holdings = frames.holdings()\nholdings",
    "charts.holdings_by_collection(holdings)",
    "charts.concentration(holdings)",
    "charts.arrivals_and_departures()",
    "charts.overlap(holdings)",
    "nftsync.gallery(holdings)",
)
#: Background colors; a frame adopts its page's theme a moment later.
_DARK = re.compile(r"^rgb\((?:[0-7]?\d(?:, )?){3}\)$")
_LIGHT = re.compile(r"^rgb\((?:2\d\d(?:, )?){3}\)$")
#: Whether any mark of a chart has a visible area.
_LARGE = """(marks) => marks.some((mark) => {
  const {width, height} = mark.getBoundingClientRect();
  return width * height > 50;
})"""
_SYNC, _TABLE, _BARS, _CURVES, _MOVES, _HEAT = range(1, 7)


def test_progress_tables_charts_and_the_gallery_are_drawn_and_nobody_else_is_asked(
    lab, context, record, tmp_path
):
    """Of a mirror with history: after its first reads an NFT changed hands."""

    def build(url: str) -> World:
        return generate(wallets=len(_LABELS), nfts=15, seed=3, image_base=url)

    with SandboxServer(build) as provider:
        database, wallets = tmp_path / "nftsync.db", provider.world.wallets()
        config = ClientConfig(base_url=provider.url)
        lines = [WalletLine(*each) for each in zip(wallets, _LABELS, strict=True)]
        sync_wallets(database, config, SyncRequest(wallets=lines), progress=False)
        token = frames.holdings(database, wallet=wallets[0])["token_id"].iloc[0]
        provider.world.transfer(wallets[0], wallets[1], token, 1)
        sync_wallets(database, config, SyncRequest(), progress=False)
        names = {"NFTSYNC_DATABASE": str(database), "NFTSYNC_BASE_URL": provider.url}
        first = f"import os\nos.environ.update({names!r})\n{_CELLS[0]}"
        write_notebook(lab.notebooks / "look.ipynb", [first, *_PLAIN_CELLS])
        _look(lab.open(context, "look.ipynb"), database)
        record.check(lab.url, provider.url)


def _look(notebook: LabPage, database: Path) -> None:
    notebook.run_all()
    assert notebook.errors() == []
    _see_progress(notebook)
    expect(notebook.outputs(_TABLE).locator("table.dataframe")).to_be_visible()
    _see_charts(notebook)
    gallery = notebook.gallery(notebook.outputs(_GALLERY))
    _see_gallery(gallery, database)
    _search(gallery, database)
    expect(gallery.locator("body")).to_have_css("background-color", _LIGHT)
    notebook.change_theme("JupyterLab Dark")
    expect(gallery.locator("body")).to_have_css("background-color", _DARK)
    _see_charts(notebook)
    assert notebook.live_parts() == []


def _see_progress(notebook: LabPage) -> None:
    shown = notebook.outputs(_SYNC)
    expect(shown.locator(".widget-hprogress, .jupyter-widgets.widget-hbox").first).to_be_visible()
    expect(shown).to_contain_text(f"{len(_LABELS)}/{len(_LABELS)}")
    expect(shown).to_contain_text("wallets")


def _see_charts(notebook: LabPage) -> None:
    """Each chart has marks of a size that can be seen, and says what it shows."""
    for cell, marks in (
        *((_BARS, ".bars path"), (_CURVES, ".lines path"), (_MOVES, ".bars path")),
        (_HEAT, ".hm image"),
    ):
        chart = notebook.outputs(cell).locator(".js-plotly-plot")
        expect(chart.locator(marks).first).to_be_visible()
        notebook.wait_until(partial(chart.locator(marks).evaluate_all, _LARGE))
        expect(chart.locator(".gtitle")).not_to_be_empty()


def _see_gallery(gallery: FrameLocator, database: Path) -> None:
    """All that are held have a card, and their pictures have come from the provider."""
    held = frames.holdings(database)
    expect(gallery.locator("#status")).to_contain_text(f"{len(held)} holdings")
    pictures = gallery.locator("li.card img")
    expect(pictures).not_to_have_count(0)
    for picture in pictures.all()[:12]:
        picture.scroll_into_view_if_needed()
        expect(picture).to_have_js_property("complete", True)
        expect(picture).not_to_have_js_property("naturalWidth", 0)


def _search(gallery: FrameLocator, database: Path) -> None:
    held = frames.holdings(database)
    wanted = int((held["wallet_label"] == "Auctions").sum())
    assert 0 < wanted < len(held)
    gallery.get_by_role("searchbox").fill("auctions")
    expect(gallery.locator("li.card")).to_have_count(wanted)
    expect(gallery.locator("#status")).to_contain_text(f"{wanted} of {len(held)} holdings")
    gallery.get_by_role("searchbox").fill("no NFT says this")
    expect(gallery.locator("li.card")).to_have_count(0)
    expect(gallery.get_by_text("No matches.")).to_be_visible()
    gallery.get_by_role("searchbox").fill("")
    expect(gallery.locator("li.card")).not_to_have_count(0)
