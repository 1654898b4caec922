"""Databases for notebooks, and notebooks run on them from a clean kernel."""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]-*.ipynb"))
PAGES = ROOT / "docs" / "notebooks"

#: The cells that draw, by notebook.
CHARTS = {
    "1-first-look": ["collections-chart"],
    "2-what-changed": ["arrivals", "over-time", "ages-chart"],
    "3-collections-and-holders": ["lorenz", "holders", "overlap-chart"],
    "4-webhooks-and-freshness": ["lag", "backlog"],
    "5-report": ["arrivals", "by-collection", "holders"],
}

#: Seconds for a cell; what takes longer will not come.
_PATIENCE = 240


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def of_cells(*cells: str) -> Any:
    """A notebook of code cells."""
    v4: Any = nbformat.v4
    kernel = {"name": "python3", "display_name": "", "language": "python"}
    made = [v4.new_code_cell(cell) for cell in cells]
    return v4.new_notebook(cells=made, metadata={"kernelspec": kernel})


def execute(
    notebook: Any, database: Path | None, patch: pytest.MonkeyPatch, *, allow_errors: bool = False
) -> Any:
    """Run a notebook, in a kernel of its own and the working directory; return it with outputs."""
    here = Path.cwd()
    if database is not None:
        patch.setenv("NFTSYNC_DATABASE", str(database))
    patch.setenv("NFTSYNC_CONFIG", os.devnull)
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        patch.setenv(name, str(here / name.lower()))
    NotebookClient(
        notebook,
        timeout=_PATIENCE,
        kernel_name="python3",
        allow_errors=allow_errors,
        resources={"metadata": {"path": str(here)}},
    ).execute()
    return notebook


def text_of(output: Any) -> str:
    """An output as text: what it printed, or the HTML it shows."""
    if output.output_type == "stream":
        return str(output.text)
    return str(output.data.get("text/html", output.data.get("text/plain", "")))


def count(database: Path, statement: str) -> int:
    with closing(sqlite3.connect(database)) as connection:
        found: int = connection.execute(statement).fetchone()[0]
    return found
