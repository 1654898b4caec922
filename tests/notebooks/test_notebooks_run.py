"""Every notebook runs from a clean kernel: on a database with history and webhooks, and on none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from notebook_worlds import NOTEBOOKS, count, execute, outputs, text_of

from nftsync.lab.jupyter import notebook_environment

#: A time to the microsecond, or with its offset.
_LONG_TIME = re.compile(r"\d:\d\d\.\d|\+00:00")
PLOTLY = "application/vnd.plotly.v1+json"

#: The cells that draw, by notebook.
CHARTS = {
    "1-first-look": ["collections-chart"],
    "2-what-changed": ["arrivals", "over-time", "ages-chart"],
    "3-collections-and-holders": ["lorenz", "holders", "overlap-chart"],
    "4-webhooks-and-freshness": ["lag", "backlog"],
    "5-report": ["arrivals", "by-collection", "holders"],
}


def all_outputs(run: Any) -> list[Any]:
    return [output for cell in run.cells if cell.cell_type == "code" for output in cell.outputs]


def assert_quiet(run: Any) -> None:
    """Nothing was warned of, and nothing failed."""
    for output in all_outputs(run):
        assert output.output_type != "error"
        assert output.get("name") != "stderr", output.text


def marks(figure: Any) -> int:
    """How many traces of a figure have something to draw."""
    return sum(any(key in trace for key in ("x", "y", "z")) for trace in figure["data"])


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_on_a_database_with_history_all_charts_are_drawn(
    notebook: Path, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NFTSYNC_BASE_URL", "http://127.0.0.1:1")
    run = execute(notebook, demo, tmp_path, monkeypatch)
    assert_quiet(run)
    for ident in CHARTS[notebook.stem]:
        (output,) = outputs(run, ident)
        assert marks(output.data[PLOTLY]) > 0, ident
    assert_shows_the_demo(run, notebook.stem)


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


def test_the_first_one_reads_the_wallets_again_when_told_to(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = NOTEBOOKS[0].read_text(encoding="utf-8")
    assert text.count("read_now = False") == 1
    told = tmp_path / "told.ipynb"
    told.write_text(text.replace("read_now = False", "read_now = True"), encoding="utf-8")
    with notebook_environment(copied, None, lambda _: None) as environment:
        monkeypatch.setenv("NFTSYNC_BASE_URL", environment["NFTSYNC_BASE_URL"])
        run = execute(told, copied, tmp_path, monkeypatch)
    assert_quiet(run)
    bar, result = outputs(run, "sync")[0], outputs(run, "sync")[-1]
    assert "application/vnd.jupyter.widget-view+json" in bar.data
    assert "41" in text_of(result)
    assert count(copied, "SELECT count(*) FROM sync_runs WHERE kind = 'sync'") == 3


def report(folder: Path, database: Path, patch: pytest.MonkeyPatch, **parameters: str) -> Any:
    """The report after a run with parameters."""
    text = NOTEBOOKS[-1].read_text(encoding="utf-8")
    for name, value in parameters.items():
        assert text.count(f'"{name} = None') == 1
        text = text.replace(f'"{name} = None', f"\"{name} = '{value}'")
    given = folder / "given.ipynb"
    given.write_text(text, encoding="utf-8")
    return execute(given, database, folder, patch)


def said(run: Any) -> str:
    return "\n".join(text_of(output) for output in all_outputs(run) if PLOTLY not in output.data)


def test_a_report_from_before_the_first_sync_to_a_time_says_what_that_means(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = report(tmp_path, demo, monkeypatch, start="2020-01-31", end="2100-01-31")
    assert_quiet(run)
    assert "before the end of the first sync" in said(run)
    assert outputs(run, "arrivals") == [], "it would go up to now"
    assert "Freshly Minted" in said(run)


def test_a_report_on_the_demo_says_so_below_its_heading(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").symlink_to(copied.parent)
    monkeypatch.delenv("NFTSYNC_DATABASE", raising=False)
    run = execute(NOTEBOOKS[-1], None, tmp_path, monkeypatch)
    assert_quiet(run)
    assert not [output for output in all_outputs(run) if output.output_type == "stream"]
    (heading,) = outputs(run, "heading")
    assert "No database is named" in text_of(heading).partition("</h1>")[2]
    assert "before the end of the first sync" not in said(run)


@pytest.mark.parametrize("notebook", [NOTEBOOKS[0], NOTEBOOKS[-1]], ids=lambda path: path.stem)
def test_on_an_empty_database_nothing_fails(
    notebook: Path, empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = execute(notebook, empty, tmp_path, monkeypatch)
    assert_quiet(run)
    for ident in CHARTS[notebook.stem]:
        (output,) = outputs(run, ident)
        assert marks(output.data[PLOTLY]) == 0
        assert output.data[PLOTLY]["layout"]["title"]["text"]
