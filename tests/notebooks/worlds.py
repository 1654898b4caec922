"""Databases for notebooks, and runs of notebooks in a clean kernel."""

from __future__ import annotations

import os
import re
import socket
import sqlite3
from contextlib import closing
from html import unescape
from itertools import chain
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

PLOTLY = "application/vnd.plotly.v1+json"
ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]-*.ipynb"))
PAGES = ROOT / "docs" / "use" / "notebooks"

#: The cells with charts, by notebook.
CHARTS = {
    "1-first-look": ["collections-chart", "holders"],
    "2-what-changed": ["arrivals", "over-time", "ages-chart"],
    "3-collections-and-holders": ["lorenz", "holders", "overlap-chart"],
    "4-webhooks-and-freshness": ["lag", "backlog"],
    "5-report": ["growth"],
}

#: Limit for a cell, in seconds.
_PATIENCE = 240


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


_v4: Any = nbformat.v4


def of_cells(*cells: str) -> Any:
    """A notebook of code cells."""
    kernel = {"name": "python3", "display_name": "", "language": "python"}
    made = [_v4.new_code_cell(cell) for cell in cells]
    return _v4.new_notebook(cells=made, metadata={"kernelspec": kernel})


def execute(notebook: Any, patch: pytest.MonkeyPatch, *, allow_errors: bool = False) -> Any:
    """Run a notebook in a new kernel and the working directory, and return it with outputs."""
    here = Path.cwd()
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
    """Return an output as text: its printed text, or its HTML without scripts."""
    if output.output_type == "stream":
        return str(output.text)
    shown = str(output.data.get("text/html", output.data.get("text/plain", "")))
    return _SCRIPT.sub("", shown)  # plotly's has megabytes


_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)


def texts_of(page: str) -> list[str]:
    """Return the texts of the table cells and paragraphs of an output."""
    return [unescape(re.sub("<[^>]*>", "", text)).strip() for text in _CELL.findall(page)]


_CELL = re.compile(r"<(?:td|th|p|b)\b[^>]*>(.*?)</(?:td|th|p|b)>", re.DOTALL)


class Run:
    """The outputs of the cells of all notebooks, by notebook and id."""

    def __init__(self, cells: list[Any]) -> None:
        self.outputs = {cell.id[2:]: cell.outputs for cell in cells if cell.cell_type == "code"}

    @classmethod
    def on_each(
        cls, databases: list[Path], patch: pytest.MonkeyPatch, *changes: tuple[str, str]
    ) -> list[Run]:
        """Run all notebooks on each database, in one kernel that forgets all names between runs.

        The first database is found by default and has the environment's provider; others have
        none. A database without reads has no report.
        """
        joined = of_cells()
        for place, database in enumerate(databases):
            if place:
                joined.cells.append(_v4.new_code_cell(_OTHER.format(str(database))))
            for path in NOTEBOOKS:
                if path.stem == "5-report" and not count(
                    database, "SELECT count(*) FROM sync_runs"
                ):
                    continue
                joined.cells.append(_v4.new_code_cell("%reset -f"))
                for cell in read(path).cells:
                    cell.id = f"{place}-{path.stem}-{cell.id}"
                    joined.cells.append(cell)
                    for old, new in changes if place == 0 else ():
                        cell.source = cell.source.replace(old, new)
        cells = execute(joined, patch).cells
        places = range(len(databases))
        return [cls([x for x in cells if x.id.startswith(f"{place}-")]) for place in places]

    def assert_quiet(self) -> None:
        """Check that there is no warning and no error."""
        for output in chain(*self.outputs.values()):
            assert output.output_type != "error"
            assert output.get("name") != "stderr", output.text

    def assert_draws(self, *, marked: bool) -> None:
        """Check that each chart is there, with or without marks."""
        for name, idents in CHARTS.items():
            for ident in idents:
                if name == "5-report" and not marked:
                    continue
                outputs = self.outputs[f"{name}-{ident}"]
                figure = outputs[0].data[PLOTLY]
                marks = [trace for trace in figure["data"] if trace.keys() & {"x", "y", "z"}]
                assert bool(marks) == marked, (name, ident)
                assert figure["layout"]["title"]["text"]

    def shown(self, name: str, ident: str) -> str:
        return "\n".join(map(text_of, self.outputs[f"{name}-{ident}"]))

    def without_a_value(self) -> list[tuple[str, str]]:
        """Return texts for missing values other than a dash, and dashes instead of an id."""
        pages = {
            ident: text_of(output)
            for ident, outputs in self.outputs.items()
            # Units and editions may be missing, and a corner of pandas is blank.
            if not ident.endswith(("-explain", "-gallery", "-all-columns"))
            for output in outputs
        }
        blank = [
            (ident, text)
            for ident, page in pages.items()
            for text in texts_of(page)
            if not text or _MISSING.search(text)
        ]
        return blank + [
            (ident, head)
            for ident, page in pages.items()
            for head, column in columns_of(page).items()
            if head in _NAMES and {"", "–"}.intersection(column)
        ]


#: Code that opens another database without a provider.
_OTHER = """
import os
os.environ["NFTSYNC_DATABASE"] = {!r}
os.environ.pop("NFTSYNC_BASE_URL", None)
"""

#: Missing values, as Python and pandas show them.
_MISSING = re.compile(r"\b(?:NaN|nan|None|NaT)\b(?!\.)|<NA>")
#: Columns with an id in place of a missing name.
_NAMES = {"NFT", "wallet", "series", "collection"}


def columns_of(page: str) -> dict[str, list[str]]:
    """Return the columns of the table of an output, by their headings."""
    heads = [unescape(head) for head in re.findall("<th\\b[^>]*>(.*?)</th>", page)]
    cells = [unescape(cell) for cell in re.findall("<td\\b[^>]*>(.*?)</td>", page)]
    return {head: cells[place :: len(heads)] for place, head in enumerate(heads)}


def count(database: Path, statement: str) -> int:
    with closing(sqlite3.connect(database)) as connection:
        found: int = connection.execute(statement).fetchone()[0]
    return found
