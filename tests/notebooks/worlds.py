"""The shipped notebooks, runs of cells in a clean kernel, and the texts of outputs."""

import os
import re
from collections.abc import Iterable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from nbclient import NotebookClient
from nbformat import v4

PLOTLY = "application/vnd.plotly.v1+json"
ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]-*.ipynb"))


def execute(cells: Iterable[Any], patch: pytest.MonkeyPatch, *, allow_errors: bool = False) -> Any:
    """Run cells in a new kernel and the working directory, and return them with outputs."""
    here = Path.cwd()
    patch.setenv("NFTSYNC_CONFIG", os.devnull)
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        patch.setenv(name, str(here / name.lower()))
    kernel = {"name": "python3", "display_name": "", "language": "python"}
    notebook = v4.new_notebook(cells=[*cells], metadata={"kernelspec": kernel})
    NotebookClient(
        notebook,
        timeout=240,
        kernel_name="python3",
        allow_errors=allow_errors,
        resources={"metadata": {"path": str(here)}},
    ).execute()
    return notebook


def texts_of(page: str) -> list[str]:
    """Return the texts of the table cells and paragraphs of an output."""
    texts = re.findall(r"<(?:td|th|p|b)\b[^>]*>(.*?)</(?:td|th|p|b)>", page, re.DOTALL)
    return [unescape(re.sub("<[^>]*>", "", text)).strip() for text in texts]


def columns_of(page: str) -> dict[str, list[str]]:
    """Return the columns of the table of an output, by their headings."""
    heads, cells = (
        [unescape(text) for text in re.findall(f"<{tag}\\b[^>]*>(.*?)</{tag}>", page)]
        for tag in ("th", "td")
    )
    return {head: cells[place :: len(heads)] for place, head in enumerate(heads)}
