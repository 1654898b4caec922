"""A real kernel that cells are run in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer

#: Seconds for a cell; what takes longer will not come.
_PATIENCE = 240


@pytest.fixture(scope="session")
def provider() -> Iterator[SandboxServer]:
    with SandboxServer(generate(wallets=30, nfts=5)) as server:
        yield server


@pytest.fixture
def run_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[list[list[Any]], Any]]:
    """Run cells in a clean kernel: what each put out, and the notebook."""
    for name in os.environ:
        if name.startswith("NFTSYNC_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NFTSYNC_CONFIG", os.devnull)
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))

    def run(*cells: str, allow_errors: bool = True) -> tuple[list[list[Any]], Any]:
        v4: Any = nbformat.v4
        notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
        NotebookClient(
            notebook,
            timeout=_PATIENCE,
            kernel_name="python3",
            allow_errors=allow_errors,
            resources={"metadata": {"path": str(tmp_path)}},
        ).execute()
        return [cell.outputs for cell in notebook.cells], notebook

    return run
