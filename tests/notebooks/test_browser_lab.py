"""A notebook in real JupyterLab: run from the menu, looked at, searched, in both themes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, FrameLocator, expect

from nftsync import frames
from nftsync.provider.config import ClientConfig
from nftsync.pull.run import SyncRequest, sync_wallets
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from nftsync.store.wallets import WalletLine
from tests.kit.browser import Record
from tests.notebooks.lab_browser import Lab, LabPage, running_lab, write_notebook

_LABELS = ("Treasury", "Auctions", "Marketing", "Cold storage", "Artist royalties", "Team")
_NFTS = 15
_CELLS = (
    "import nftsync\nfrom nftsync import charts, frames",
    "nftsync.sync()",
    "holdings = frames.holdings()\nholdings",
    "charts.holdings_by_collection(holdings)",
    "charts.concentration(holdings)",
    "charts.arrivals_and_departures()",
    "charts.overlap(holdings)",
    "nftsync.gallery(holdings)",
)
#: Background colours; a frame learns of its page's theme a moment after the page.
_DARK = re.compile(r"^rgb\((?:[0-7]?\d(?:, )?){3}\)$")
_LIGHT = re.compile(r"^rgb\((?:2\d\d(?:, )?){3}\)$")
#: Whether any mark of a chart has an area that can be seen.
_LARGE = """(marks) => marks.some((mark) => {
  const {width, height} = mark.getBoundingClientRect();
  return width * height > 50;
})"""
_SYNC, _TABLE, _BARS, _CURVES, _MOVES, _HEAT, _GALLERY = range(1, 8)


@pytest.fixture(scope="module")
def provider() -> Iterator[SandboxServer]:
    def build(url: str) -> World:
        return generate(wallets=len(_LABELS), nfts=_NFTS, seed=3, image_base=url)

    with SandboxServer(build) as provider:
        yield provider


@pytest.fixture(scope="module")
def database(provider: SandboxServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror with history: after its first reads an NFT changed hands."""
    database = tmp_path_factory.mktemp("mirror") / "nftsync.db"
    wallets = provider.world.wallets()
    config = ClientConfig(base_url=provider.url)
    lines = [WalletLine(wallet, label) for wallet, label in zip(wallets, _LABELS, strict=True)]
    sync_wallets(database, config, SyncRequest(wallets=lines), progress=False)
    token = frames.holdings(database, wallet=wallets[0])["token_id"].iloc[0]
    provider.world.transfer(wallets[0], wallets[1], token, 1)
    sync_wallets(database, config, SyncRequest(), progress=False)
    return database


@pytest.fixture(scope="module")
def lab(
    provider: SandboxServer, database: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    environment = {"NFTSYNC_DATABASE": str(database), "NFTSYNC_BASE_URL": provider.url}
    environment["NFTSYNC_CONFIG"] = "/dev/null"
    with running_lab(tmp_path_factory.mktemp("lab"), environment) as lab:
        yield lab


def test_progress_tables_charts_and_the_gallery_are_drawn_and_nobody_else_is_asked(
    lab: Lab,
    provider: SandboxServer,
    database: Path,
    context: BrowserContext,
    record: Record,
) -> None:
    write_notebook(lab.notebooks / "look.ipynb", _CELLS)
    notebook = lab.open(context, "look.ipynb")
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
    record.check(lab.url, provider.url)


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
    expect(gallery.get_by_text("Nothing found.")).to_be_visible()
    gallery.get_by_role("searchbox").fill("")
    expect(gallery.locator("li.card")).not_to_have_count(0)
