"""Tables of results: of all for the terminal, of some for `docs/develop/performance.md`."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.scripts import installed, peers_python

DOCUMENT = Path(__file__).resolve().parent.parent / "docs/develop/performance.md"
#: The benchmarks, in the order of runs and of the table.
NAMES = ("startup", "frames", "analysis", "sync", "failing", "growth", "receiver", "webhooks")
BEGIN = "<!-- Made by `make bench`, up to the next comment. -->"
END = "<!-- Made by `make bench` up to here. -->"
HEAD = ("benchmark", "what", "result", "compared")

Rows = list[tuple[str, ...]]


def rows_of(name: str, figures: Iterable[Figure]) -> Rows:
    """Return a row of the document's table for each listed figure of a benchmark."""
    return [(name, *figure[:3]) for figure in figures if figure.listed]


def with_targets(name: str, figures: Iterable[Figure]) -> Rows:
    """Return a row of the terminal's table for each figure of a benchmark."""
    met = {True: "yes", False: "no", None: "?"}
    return [(name, *figure[:4], met[figure.met] if figure.target else "–") for figure in figures]


def table(rows: Rows, head: Sequence[str] = HEAD) -> str:
    """Return rows as a table of Markdown."""
    cells = (row for row in (head, ("---",) * len(head), *rows))
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in cells)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def written(document: str, new: Mapping[str, Rows]) -> str:
    """Return a document with new rows for some benchmarks; the other benchmarks keep theirs."""
    before, rest = document.split(BEGIN)
    former, after = rest.split(END)
    rows = {**rows_in(former), **new}
    every = [row for name in NAMES for row in rows.get(name, [])]
    return f"{before}{BEGIN}\n\n{machine()}\n\n{table(every)}\n\n{END}{after}"


def rows_in(text: str) -> dict[str, Rows]:
    """Return the rows of the document's table, by benchmark."""
    rows: dict[str, Rows] = {}
    for line in text.splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == len(HEAD) and cells[0] in NAMES:
            rows.setdefault(cells[0], []).append(tuple(cells))
    return rows


def machine() -> str:
    """Describe the machine and the versions."""
    ours = ["nftsync", "pandas", "pyarrow", "httpx", "msgspec"]
    parts = [f"{name} {version(name)}" for name in ours]
    peers = _peers(["dlt", "pyarrow", "httpx", "sqlite-utils"])
    return (
        f"{platform.system()} {platform.machine()} with {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {_nginx()}. "
        f"Ours: {', '.join(parts)}. Peers: {', '.join(peers) or 'not installed'}."
    )


def _peers(packages: Sequence[str]) -> list[str]:
    if not installed("dlt"):
        return []
    code = (
        "import sys; from importlib.metadata import version;"
        " print(*(f'{name} {version(name)}' for name in sys.argv[1:]), sep='\\n')"
    )
    command = [peers_python(), "-c", code, *packages]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def _nginx() -> str:
    if (nginx := shutil.which("nginx")) is None:
        return "the tests' server instead of nginx"
    said = subprocess.run([nginx, "-v"], capture_output=True, text=True, check=False).stderr
    return said.rpartition(": ")[2].strip().replace("/", " ") or "nginx"
