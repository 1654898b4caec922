"""The report becomes one HTML page by the two commands that docs/notebooks/README.md shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from browser.seen_browser import PATIENCE, Record, open_chromium
from notebook_worlds import NOTEBOOKS, PAGES

_BLOCK = re.compile(r"^```sh\n(papermill .*?)```$", re.DOTALL | re.M)


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
    with open_chromium() as browser:
        context = browser.new_context(offline=True)
        context.set_default_timeout(PATIENCE)
        record, view = Record(context), context.new_page()
        view.goto(page.as_uri())
        view.wait_for_function("document.querySelectorAll('.js-plotly-plot .barlayer').length >= 3")
        assert view.locator(".js-plotly-plot .bars path").count() > 10
    assert record.messages == []
    asked = [url for url in record.requests if not url.startswith(("file:", "data:", "blob:"))]
    assert asked == []
