"""Every notebook runs from a clean kernel: on a database with history and webhooks, and on none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from browser.seen_browser import PATIENCE, Record, open_chromium
from notebook_worlds import CHARTS, NOTEBOOKS, PAGES, count, execute, outputs, read, text_of

from nftsync.lab.jupyter import notebook_environment

#: A time to the microsecond, or with its offset.
_LONG_TIME = re.compile(r"\d:\d\d\.\d|\+00:00")
PLOTLY = "application/vnd.plotly.v1+json"


def all_outputs(run: Any) -> list[Any]:
    return [output for cell in run.cells if cell.cell_type == "code" for output in cell.outputs]


def assert_quiet(run: Any) -> None:
    """Nothing was warned of, and nothing failed."""
    for output in all_outputs(run):
        assert output.output_type != "error"
        assert output.get("name") != "stderr", output.text


@pytest.mark.parametrize("notebook", NOTEBOOKS[1:4], ids=lambda path: path.stem)
def test_on_a_database_with_history_all_charts_are_drawn(
    notebook: Path, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are run below."""
    monkeypatch.setenv("NFTSYNC_BASE_URL", "http://127.0.0.1:1")
    run = execute(read(notebook), demo, monkeypatch)
    assert_quiet(run)
    assert_draws(run, notebook.stem)
    assert_shows_the_demo(run, notebook.stem)


def assert_draws(run: Any, name: str, *, marked: bool = True) -> None:
    """Each chart is there, with marks or without any."""
    for ident in CHARTS[name]:
        (output,) = outputs(run, ident)
        figure = output.data[PLOTLY]
        marks = [trace for trace in figure["data"] if trace.keys() & {"x", "y", "z"}]
        assert bool(marks) == marked, ident
        assert figure["layout"]["title"]["text"]


def assert_shows_the_demo(run: Any, name: str) -> None:
    """What the notebook is for is in its tables."""

    def shown(ident: str) -> str:
        return "\n".join(text_of(output) for output in outputs(run, ident))

    if name == "1-first-look":
        assert "Treasury" in shown("holdings")
        assert "Freshly Minted" in shown("gallery")
        assert "41 wallets" in shown("holdings")
        assert not _LONG_TIME.search(shown("holdings") + shown("freshness") + shown("wallets"))
    elif name == "2-what-changed":
        assert "Treasury" in shown("log")
        assert "Freshly Minted" in shown("log")
        assert not _LONG_TIME.search(shown("log") + shown("token") + shown("as-of-rows"))
        for kind in ("arrived", "left", "changed", "first_seen"):
            assert kind in shown("diff")
        assert "bracketed" in shown("as-of")
        assert "gap" in shown("as-of")
    elif name == "3-collections-and-holders":
        assert "nakamoto" in shown("concentration")
        assert "missing" in shown("quality")
        assert "provider" not in shown("quality"), "the demo's own pictures are fine"
    elif name == "4-webhooks-and-freshness":
        assert "done" in shown("states")
        assert shown("runs").count("<td>ok</td>") == 2
        assert "a webhook" in shown("by-webhook")
        assert not _LONG_TIME.search(shown("trace") + shown("runs") + shown("freshness"))
    else:
        assert "Freshly Minted" in shown("changed")
        assert "first_seen" not in shown("changed")
        assert "missing" in shown("quality")
        assert "provider" not in shown("quality"), "the demo's own pictures are fine"


def changed(notebook: Path, *changes: tuple[str, str]) -> Any:
    """A notebook in which lines begin otherwise."""
    text = notebook.read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(f'"{old}') == 1
        text = text.replace(f'"{old}', f'"{new}')
    return nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]


def test_the_first_one_reads_the_wallets_again_when_told_to(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with notebook_environment(copied, None, lambda _: None) as environment:
        monkeypatch.setenv("NFTSYNC_BASE_URL", environment["NFTSYNC_BASE_URL"])
        run = execute(
            changed(NOTEBOOKS[0], ("read_now = False", "read_now = True")), copied, monkeypatch
        )
    assert_quiet(run)
    bar, result = outputs(run, "sync")[0], outputs(run, "sync")[-1]
    assert "application/vnd.jupyter.widget-view+json" in bar.data
    assert "41" in text_of(result)
    assert_draws(run, NOTEBOOKS[0].stem)
    assert_shows_the_demo(run, NOTEBOOKS[0].stem)
    assert count(copied, "SELECT count(*) FROM sync_runs WHERE kind = 'sync'") == 3


def said(run: Any) -> str:
    return "\n".join(text_of(output) for output in all_outputs(run) if PLOTLY not in output.data)


def test_a_report_from_before_the_first_sync_to_a_time_says_what_that_means(
    demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = changed(
        NOTEBOOKS[-1],
        ("start = None", "start = '2020-01-31'"),
        ("end = None", "end = '2100-01-31'"),
    )
    run = execute(asked, demo, monkeypatch)
    assert_quiet(run)
    assert "before the end of the first sync" in said(run)
    assert outputs(run, "arrivals") == [], "it would go up to now"
    assert "Freshly Minted" in said(run)


def test_a_report_on_the_demo_draws_all_and_says_so_below_its_heading(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").symlink_to(demo.parent)
    run = execute(read(NOTEBOOKS[-1]), None, monkeypatch)
    assert_quiet(run)
    assert_draws(run, NOTEBOOKS[-1].stem)
    assert_shows_the_demo(run, NOTEBOOKS[-1].stem)
    assert not [output for output in all_outputs(run) if output.output_type == "stream"]
    (heading,) = outputs(run, "heading")
    assert "No database is named" in text_of(heading).partition("</h1>")[2]
    assert "before the end of the first sync" not in said(run)


def test_on_an_empty_database_nothing_fails(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor in the report: see below."""
    run = execute(read(NOTEBOOKS[0]), empty, monkeypatch)
    assert_quiet(run)
    assert_draws(run, NOTEBOOKS[0].stem, marked=False)


# The page of the report ---------------------------------------------------------------------------

_BLOCK = re.compile(r"^```sh\n(papermill .*?)```$", re.DOTALL | re.M)


def test_two_commands_make_one_page_that_draws_without_a_network(
    empty: Path, tmp_path: Path
) -> None:
    """Those of docs/notebooks/README.md; an empty database has all charts, too."""
    (tmp_path / "notebooks").mkdir()
    shutil.copy(NOTEBOOKS[-1], tmp_path / "notebooks")
    (block,) = _BLOCK.findall((PAGES / "README.md").read_text(encoding="utf-8"))
    assert len(block.splitlines()) == 2
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path)}
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        env={**environment, "NFTSYNC_DATABASE": str(empty)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h1>Our NFTs</h1>" in text
    assert "show_table(" not in text, "no code"
    with open_chromium() as browser:
        context = browser.new_context(offline=True)
        context.set_default_timeout(PATIENCE)
        record, view = Record(context), context.new_page()
        view.goto((tmp_path / "report.html").as_uri())
        view.wait_for_function("document.querySelectorAll('.js-plotly-plot .gtitle').length >= 3")
    assert record.messages == []
    asked = [url for url in record.requests if not url.startswith(("file:", "data:", "blob:"))]
    assert asked == []
