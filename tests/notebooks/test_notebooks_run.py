"""Every notebook runs: on a database with history and webhooks, and on none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from browser.seen_browser import PATIENCE, Record, open_chromium
from nbformat import v4
from notebook_worlds import CHARTS, NOTEBOOKS, PAGES, count, execute, of_cells, read, text_of

from nftsync.lab.jupyter import notebook_environment

#: A time to the microsecond, or with its offset.
_LONG_TIME = re.compile(r"\d:\d\d\.\d|\+00:00")
PLOTLY = "application/vnd.plotly.v1+json"

#: What the notebooks are for is in their tables: by notebook and cell, what is shown of the demo.
SHOWN = {
    ("1-first-look", "holdings"): ["Treasury", "41 wallets"],
    ("1-first-look", "gallery"): ["Freshly Minted"],
    ("1-first-look", "sync"): ["41"],
    ("2-what-changed", "log"): ["Treasury", "Freshly Minted"],
    ("2-what-changed", "diff"): ["arrived", "left", "changed", "first_seen"],
    ("2-what-changed", "as-of"): ["bracketed", "gap"],
    ("3-collections-and-holders", "concentration"): ["nakamoto"],
    ("3-collections-and-holders", "quality"): ["missing"],
    ("4-webhooks-and-freshness", "states"): ["done"],
    ("4-webhooks-and-freshness", "runs"): ["<td>ok</td>"],
    ("4-webhooks-and-freshness", "by-webhook"): ["a webhook"],
    ("5-report", "changed"): ["Freshly Minted"],
    ("5-report", "quality"): ["missing"],
}


class Run:
    """All notebooks, run after one another in one kernel, which forgets all names in between."""

    def __init__(
        self, database: Path | None, patch: pytest.MonkeyPatch, *changes: tuple[str, str]
    ) -> None:
        joined = of_cells()
        for path in NOTEBOOKS:
            joined.cells.append(v4.new_code_cell("%reset -f"))
            for cell in read(path).cells:
                cell.id = f"{path.stem}-{cell.id}"
                joined.cells.append(cell)
        for cell in joined.cells:
            for old, new in changes:
                cell.source = cell.source.replace(old, new)
        run = execute(joined, database, patch)
        self.outputs = {cell.id: cell.outputs for cell in run.cells if cell.cell_type == "code"}

    def assert_quiet(self) -> None:
        """Nothing was warned of, and nothing failed."""
        for output in chain(*self.outputs.values()):
            assert output.output_type != "error"
            assert output.get("name") != "stderr", output.text

    def assert_draws(self, *, marked: bool) -> None:
        """Each chart is there, with marks or without any."""
        for name, idents in CHARTS.items():
            for ident in idents:
                (output,) = self.outputs[f"{name}-{ident}"]
                figure = output.data[PLOTLY]
                marks = [trace for trace in figure["data"] if trace.keys() & {"x", "y", "z"}]
                assert bool(marks) == marked, (name, ident)
                assert figure["layout"]["title"]["text"]

    def shown(self, name: str, ident: str) -> str:
        return "\n".join(map(text_of, self.outputs[f"{name}-{ident}"]))


def test_on_the_demo_all_charts_are_drawn_and_the_wallets_read_again_when_told_to(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").symlink_to(copied.parent)
    syncs = count(copied, "SELECT count(*) FROM sync_runs WHERE kind = 'sync'")
    with notebook_environment(copied, None, lambda _: None) as environment:
        monkeypatch.setenv("NFTSYNC_BASE_URL", environment["NFTSYNC_BASE_URL"])
        run = Run(None, monkeypatch, ("read_now = False", "read_now = True"))
    run.assert_quiet()
    run.assert_draws(marked=True)
    for (name, ident), words in SHOWN.items():
        assert [word for word in words if word not in run.shown(name, ident)] == [], ident
    for name, idents in (
        ("1-first-look", ["holdings", "freshness", "wallets"]),
        ("2-what-changed", ["log", "token", "as-of-rows"]),
        ("4-webhooks-and-freshness", ["trace", "runs", "freshness"]),
    ):
        assert not any(_LONG_TIME.search(run.shown(name, ident)) for ident in idents)
    assert "application/vnd.jupyter.widget-view+json" in run.outputs["1-first-look-sync"][0].data
    assert count(copied, "SELECT count(*) FROM sync_runs WHERE kind = 'sync'") == syncs + 1
    report = list(chain(*(run.outputs[cell] for cell in run.outputs if cell.startswith("5-"))))
    assert not [output for output in report if output.output_type == "stream"]
    assert "No database is named" in run.shown("5-report", "heading").partition("</h1>")[2]
    assert "before the end of the first sync" not in "".join(map(text_of, report))
    assert "first_seen" not in run.shown("5-report", "changed")


def test_on_an_empty_database_nothing_fails(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(empty, monkeypatch)
    run.assert_quiet()
    run.assert_draws(marked=False)


# The page of the report ---------------------------------------------------------------------------

_BLOCK = re.compile(r"^```sh\n(papermill .*?)```$", re.DOTALL | re.M)


def test_two_commands_make_one_page_that_draws_without_a_network(
    demo: Path, tmp_path: Path
) -> None:
    """Those of docs/notebooks/README.md, from before the first sync, and up to a time."""
    (tmp_path / "notebooks").mkdir()
    shutil.copy(NOTEBOOKS[-1], tmp_path / "notebooks")
    (block,) = _BLOCK.findall((PAGES / "README.md").read_text(encoding="utf-8"))
    assert len(block.splitlines()) == 2
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path)}
    ran = subprocess.run(
        [
            "bash",
            "-euo",
            "pipefail",
            "-c",
            block.replace(" -p start", " -p end 2100-01-31 -p start"),
        ],
        env={**environment, "NFTSYNC_DATABASE": str(demo)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    for words in ("<h1>Our NFTs</h1>", "before the end of the first sync", "Freshly Minted"):
        assert words in text
    assert "show_table(" not in text, "no code"
    assert "from the provider" not in text, "the demo's own pictures are fine"
    with open_chromium() as browser:
        context = browser.new_context(offline=True)
        context.set_default_timeout(PATIENCE)
        record, view = Record(context), context.new_page()
        view.goto((tmp_path / "report.html").as_uri())
        # That of arrivals is left out, as it would go up to now.
        view.wait_for_function("document.querySelectorAll('.js-plotly-plot .gtitle').length >= 2")
    assert record.messages == []
    asked = [url for url in record.requests if not url.startswith(("file:", "data:", "blob:"))]
    assert asked == []
