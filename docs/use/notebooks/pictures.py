"""Charts and galleries as PNG, drawn by Chromium."""

from __future__ import annotations

import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import click
import plotly.io
from playwright.sync_api import Page, sync_playwright

_FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-sync"),
]
#: Milliseconds that a busy machine may take.
_PATIENCE = 300_000
_WIDTH = 900
_CHART_HEIGHT = 450
_GALLERY_WIDTH = 840
_GALLERY_HEIGHT = 490
_ROWS_HEIGHT = 430
_PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><style>body {{ margin: 0; font-family: sans-serif }}</style>
</head><body>{body}</body></html>"""

#: Whether there are pictures in view, and all are loaded and decoded. One without a picture fails.
_LOADED = """async () => {
  const within = ({top, bottom, width}) => width && bottom > 0 && top < innerHeight;
  const shown = [...document.images].filter((image) => within(image.getBoundingClientRect()));
  if (!shown.length || !shown.every((image) => image.complete && image.naturalWidth)) return false;
  await Promise.all(shown.map((image) => image.decode()));
  return true;
}"""


class Pictures:
    """A browser that draws; a context manager that ends it.

    Args:
        folder: where the pictures of pages go.

    Attributes:
        folder: where the pictures of pages go.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        executable = shutil.which("chromium")
        if executable is None:
            sys.exit("Chromium is not installed: on Debian, apt install chromium")
        playwright = self._stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=executable, args=_FLAGS)
        self._stack.callback(browser.close)
        self._browser = browser
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def chart(self, figure: dict[str, Any], path: Path) -> None:
        """Draw a figure, as JupyterLab gets it, on white."""
        drawn = plotly.io.from_json(plotly.io.to_json(figure, validate=False))
        height = drawn.layout.height or _CHART_HEIGHT
        body = drawn.to_html(
            full_html=False,
            include_plotlyjs=True,
            include_mathjax=False,
            config={"displayModeBar": False},
            default_width=f"{_WIDTH}px",
            default_height=f"{height}px",
        )
        page = self._open(body, round(height))
        page.wait_for_selector(".main-svg")
        self._keep(page, path)

    def gallery(self, html: str, path: Path) -> None:
        """Draw what a gallery's cell puts out, once all pictures in view are there."""
        page = self._open(html, _GALLERY_HEIGHT, _GALLERY_WIDTH)
        page.wait_for_function("() => frames.length === 1")
        page.frames[1].wait_for_function(_LOADED)
        self._keep(page, path)

    def row(self, html: str, path: Path) -> None:
        """Draw the first rows of pictures, once all are there."""
        page = self._open(html, _GALLERY_HEIGHT, _GALLERY_WIDTH)
        height = min(page.evaluate("document.body.scrollHeight"), _ROWS_HEIGHT)
        page.set_viewport_size({"width": _GALLERY_WIDTH, "height": height})
        page.wait_for_function(_LOADED)
        self._keep(page, path)

    def _open(self, body: str, height: int, width: int = _WIDTH) -> Page:
        page = self._browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(_PATIENCE)
        page.set_content(_PAGE.format(body=body), wait_until="networkidle")
        return page

    def _keep(self, page: Page, path: Path) -> None:
        page.screenshot(path=path)
        page.close()
        click.echo(f"{path.name}: {path.stat().st_size // 1024} KiB")
