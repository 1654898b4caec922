"""The report becomes one HTML page by the two commands that docs/notebooks/README.md shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from notebook_worlds import NOTEBOOKS, PAGES
from playwright.sync_api import sync_playwright

_BLOCK = re.compile(r"^```sh\n(papermill .*?)```$", re.DOTALL | re.M)
_PATIENCE = 240


class Asked(HTMLParser):
    """What a page makes a browser ask for, whatever it is shown in."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag != "a":
            self.addresses += [given[name] or "" for name in ("src", "href") if name in given]


def make_page(database: Path, folder: Path) -> Path:
    """The page that the commands make, in a folder of its own."""
    (folder / "notebooks").mkdir()
    shutil.copy(NOTEBOOKS[-1], folder / "notebooks")
    (block,) = _BLOCK.findall((PAGES / "README.md").read_text(encoding="utf-8"))
    assert len(block.splitlines()) == 2
    clean = {name: text for name, text in os.environ.items() if not name.startswith("NFTSYNC_")}
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder,
        env={
            **clean,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "NFTSYNC_DATABASE": str(database),
            "HOME": str(folder),
        },
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
    )
    assert ran.returncode == 0, ran.stderr
    return folder / "report.html"


def test_two_commands_make_one_page_that_draws_without_a_network(
    demo: Path, tmp_path: Path
) -> None:
    page = make_page(demo, tmp_path)
    text = page.read_text(encoding="utf-8")
    assert "<h1>Our NFTs</h1>" in text
    assert "Freshly Minted" in text
    assert "show_table(" not in text, "no code"
    asked = Asked()
    asked.feed(text)
    assert [address for address in asked.addresses if not address.startswith("data:")] == ["", ""]
    assert_drawn(page)


def assert_drawn(page: Path) -> None:
    """The three charts are there, and nothing was missed or asked for elsewhere."""
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("Chromium is not installed: on Debian, apt install chromium")
    said: list[str] = []
    asked: list[str] = []
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=executable, args=flags)
        view = browser.new_context(offline=True).new_page()
        view.set_default_timeout(1000 * _PATIENCE)
        view.on("pageerror", lambda error: said.append(str(error)))
        view.on("console", lambda message: said.append(message.text))
        view.on("request", lambda request: asked.append(request.url))
        view.goto(page.as_uri())
        view.wait_for_function("document.querySelectorAll('.js-plotly-plot .barlayer').length >= 3")
        bars = view.locator(".js-plotly-plot .bars path").count()
        browser.close()
    assert bars > 10
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
