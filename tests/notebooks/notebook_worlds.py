"""Databases for notebooks, and notebooks run on them from a clean kernel."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from nftsync.lab.demo import run_demo
from nftsync.store.schema import open_store

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]-*.ipynb"))
PAGES = ROOT / "docs" / "notebooks"

#: Seconds for a cell; what takes longer will not come.
_PATIENCE = 240


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def make_demo(folder: Path) -> Path:
    """The demo's database, with history and webhooks; its provider has ended."""
    database = folder / "data" / "demo.db"
    run_demo(database, lambda _: None, progress=False, port=0)
    return database


def make_empty(folder: Path) -> Path:
    """A database that nothing was read into."""
    database = folder / "empty.db"
    open_store(database).close()
    return database


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def execute(
    notebook: Path, database: Path | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Run a notebook in a kernel of its own, whose warnings are errors; return it with outputs."""
    if database is not None:
        monkeypatch.setenv("NFTSYNC_DATABASE", str(database))
    monkeypatch.setenv("NFTSYNC_CONFIG", "/dev/null")
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(folder / name.lower()))
    run = read(notebook)
    client = NotebookClient(
        run, timeout=_PATIENCE, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return run


def outputs(run: Any, ident: str) -> list[Any]:
    """What a cell has put out."""
    (cell,) = [cell for cell in run.cells if cell.id == ident]
    return list(cell.outputs)


def text_of(output: Any) -> str:
    """An output as text: what it printed, or the HTML it shows."""
    if output.output_type == "stream":
        return str(output.text)
    return str(output.data.get("text/html", output.data.get("text/plain", "")))


def count(database: Path, statement: str) -> int:
    import sqlite3

    with closing(sqlite3.connect(database)) as connection:
        found: int = connection.execute(statement).fetchone()[0]
    return found
