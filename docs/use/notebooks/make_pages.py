"""Run each notebook on the demo, and write it as a page with what it showed: NAME.md beside this.

Run it with `python docs/use/notebooks/make_pages.py` when a notebook, a chart or the gallery has
changed. It needs Chromium, and makes the README's pictures of a chart and of the gallery too.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import click
import nbformat
from markdown_page import PLOTLY, page_of
from nbclient import NotebookClient
from pictures import Pictures

from nftsync.demo.run import run_demo
from nftsync.notebooks.jupyter import notebook_environment, shipped

_HERE = Path(__file__).parent
_IMAGES = _HERE.parents[1] / "images"
_PATIENCE = 600


def main() -> None:
    """Make all pages and pictures."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name).resolve()
        database = folder / "data" / "demo.db"
        run_demo(database, click.echo, progress=False)
        os.environ.update(stack.enter_context(notebook_environment(database, None, click.echo)))
        # Run before the browser starts: both want an event loop of their own.
        runs = {notebook.stem: _run(notebook, folder) for notebook in shipped()}
        pictures = stack.enter_context(Pictures(_HERE))
        for old in _HERE.glob("*.png"):
            old.unlink()
        for stem, run in runs.items():
            page = page_of(run, stem, pictures).replace(f"{folder}/", "")
            (_HERE / f"{stem}.md").write_text(page, encoding="utf-8")
        gallery = _output(runs["1-first-look"], "gallery").data["text/html"]
        pictures.gallery(gallery, _IMAGES / "gallery.png")
        growth = _output(runs["2-what-changed"], "over-time").data[PLOTLY]
        pictures.chart(growth, _IMAGES / "chart.png")


def _run(notebook: Path, folder: Path) -> Any:
    run = nbformat.read(notebook, as_version=4)
    click.echo(f"Running {notebook.name} ...")
    NotebookClient(
        run, timeout=_PATIENCE, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    return run


def _output(run: Any, ident: str) -> Any:
    """The first output of a cell."""
    return next(cell.outputs[0] for cell in run.cells if cell.id == ident)


if __name__ == "__main__":
    main()
