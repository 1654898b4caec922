"""Write the demo's report and gallery beside this file, and a picture of the report.

Run `python docs/examples/make_examples.py` when the report, the gallery or the demo has changed.
It needs Chromium. A report has a program of 5 MB that draws its chart; the example has the chart as
a drawing instead, so that it is small.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from playwright.sync_api import Page, sync_playwright

import nftsync
from nftsync import frames
from nftsync.demo.run import run_demo
from nftsync.notebooks.jupyter import notebook_environment
from nftsync.notebooks.report_page import write_report

_HERE = Path(__file__).parent
_PICTURE = _HERE.parent / "images" / "report.png"
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
_PATIENCE = 300_000
_WIDTH, _HEIGHT = 1000, 1046
#: Widths of the page's text on screens and on phones.
_CHART_WIDTHS = (960, 360)

#: Replaces each chart by drawings for screens and phones, and removes the scripts.
_FREEZE = """async ([wide, narrow]) => {
  for (const chart of document.querySelectorAll(".js-plotly-plot")) {
    const { height, title } = chart.layout;
    const draw = (width) => Plotly.toImage(chart, { format: "svg", width, height });
    const image = Object.assign(new Image(), { src: await draw(wide), alt: title.text });
    image.setAttribute("width", "100%");
    const source = document.createElement("source");
    source.media = "(max-width: 640px)";
    source.srcset = await draw(narrow);
    const picture = document.createElement("picture");
    picture.append(source, image);
    chart.closest("figure").querySelector("figcaption").append(
      " This example shows a drawing; a report's chart also shows values under the pointer.");
    chart.parentElement.replaceChildren(picture);
  }
  for (const added of document.querySelectorAll("script, style[id^=plotly], #js-plotly-tester")) {
    added.remove();
  }
}"""


def main() -> None:
    """Write the files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        database = folder / "data" / "demo.db"
        run_demo(database, click.echo, progress=False)
        report = folder / "report.html"
        write_report(report, [database], None, {}, click.echo)
        with notebook_environment(database, None, click.echo) as environment:
            os.environ.update(environment)
            gallery = nftsync.gallery(frames.holdings(database), title="The demo's NFTs")
            saved = gallery.save(folder / "gallery.html", embed=True)
        with _opened(report) as page:
            page.wait_for_selector(".main-svg")
            page.screenshot(path=_PICTURE)
            page.evaluate(_FREEZE, _CHART_WIDTHS)
            (_HERE / "report.html").write_text(f"{page.content().rstrip()}\n", "utf-8")
        (_HERE / "gallery.html").write_text(saved.read_text("utf-8"), "utf-8")
    for made in (*sorted(_HERE.glob("*.html")), _PICTURE):
        click.echo(f"{made.name}: {made.stat().st_size // 1024} KiB")


@contextmanager
def _opened(path: Path) -> Iterator[Page]:
    executable = shutil.which("chromium")
    if executable is None:
        sys.exit("Chromium is not installed: on Debian, apt install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=_FLAGS)
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme="light")
        page.set_default_timeout(_PATIENCE)
        page.goto(path.as_uri())
        yield page
        browser.close()


if __name__ == "__main__":
    main()
