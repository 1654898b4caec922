"""What a sync and an error look like in a real kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from nbclient.exceptions import CellExecutionError

from nftsync.sandbox.server import SandboxServer

UNKNOWN = "aaaaaaaa-0000-4000-8000-000000000001"
SECRET = "a-token-that-must-not-be-seen"
WIDGET = "application/vnd.jupyter.widget-view+json"


def sync_cell(provider: SandboxServer, tmp_path: Path) -> str:
    wallets = [*provider.world.wallets(), UNKNOWN]
    return (
        "import nftsync\n"
        f"result = nftsync.sync({wallets!r}, base_url={provider.url!r},"
        f" database={str(tmp_path / 'nftsync.db')!r}, tokens=True)\n"
        "result"
    )


def test_a_sync_shows_bars_as_widgets_and_its_result_as_a_table(
    provider: SandboxServer, tmp_path: Path, run_cells: Callable[..., Any]
) -> None:
    (outputs,), notebook = run_cells(sync_cell(provider, tmp_path))
    *bars, result = outputs
    assert [output.output_type for output in bars] == ["display_data"] * 2
    assert [output.data["text/plain"].split(":")[0] for output in bars] == ["wallets", "tokens"]
    assert all(WIDGET in output.data for output in bars)
    state = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    finished = [
        model["state"]["bar_style"]
        for model in state.values()
        if model["model_name"] == "FloatProgressModel"
    ]
    assert finished == ["success", "success"]
    assert "30 read" in result.data["text/html"]
    assert "30 wallets read" in result.data["text/plain"]
    assert UNKNOWN in result.data["text/html"]


def test_without_ipywidgets_the_bars_are_text(
    provider: SandboxServer, tmp_path: Path, run_cells: Callable[..., Any]
) -> None:
    (_, outputs), _ = run_cells(
        "import sys; sys.modules['ipywidgets'] = None", sync_cell(provider, tmp_path)
    )
    *bars, result = outputs
    assert {(output.output_type, output.name) for output in bars} == {("stream", "stderr")}
    shown = "".join(output.text for output in bars)
    # A carriage return puts each state over the one before.
    last_states = [line.rpartition("\r")[2] for line in shown.split("\n") if line]
    assert [line[:12] for line in last_states] == ["wallets: 100", "tokens: 100%"]
    assert "arning" not in shown
    assert "30 read" in result.data["text/html"]


def test_an_error_is_one_line_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cells: Callable[..., Any]
) -> None:
    monkeypatch.setenv("NFTSYNC_API_TOKEN", SECRET)
    outputs, notebook = run_cells(
        "import nftsync\nfrom nftsync import frames\nframes.holdings('missing.db')",
        f"nftsync.sync(['{UNKNOWN}'], database='x.db')",
        f"nftsync.sync(['{UNKNOWN}'], base_url='http://127.0.0.1:1', database='x.db', retries=1)",
        "frames.holdings('missing.db').head()\n1 / 0",
    )
    missing, unset, unreached, again = outputs
    for (error,), words in (
        (missing, ["StoreError", "there is no database at", "missing.db", "nftsync sync"]),
        (unset, ["SettingsError", "base_url", "NFTSYNC_BASE_URL"]),
        (again, ["StoreError"]),
    ):
        assert error.output_type == "error"
        (line,) = error.traceback
        assert "\n" not in line
        assert "Traceback" not in line
        assert error.evalue in line
        assert all(word in line for word in words)
    assert unreached[-1].output_type == "execute_result"  # a run that failed is a result
    assert "failed" in unreached[-1].data["text/html"]
    assert SECRET not in nbformat.writes(notebook)  # type: ignore[no-untyped-call]


def test_other_errors_keep_their_traceback(run_cells: Callable[..., Any]) -> None:
    (outputs,), _ = run_cells(
        "from nftsync import NftsyncError\n"
        "try:\n    raise NftsyncError('first')\n"
        "except NftsyncError as error:\n    raise RuntimeError('second') from error"
    )
    (error,) = outputs
    assert error.ename == "RuntimeError"
    assert len("\n".join(error.traceback).splitlines()) > 3


def test_runners_of_notebooks_still_fail(tmp_path: Path, run_cells: Callable[..., Any]) -> None:
    cell = "from nftsync import frames\nframes.holdings('missing.db')"
    with pytest.raises(CellExecutionError, match="there is no database at"):
        run_cells(cell, allow_errors=False)
    v4: Any = nbformat.v4
    notebook = v4.new_notebook(cells=[v4.new_code_cell(cell)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    nbformat.write(notebook, tmp_path / "in.ipynb")  # type: ignore[no-untyped-call]
    with pytest.raises(papermill.PapermillExecutionError, match="there is no database at"):
        papermill.execute_notebook(
            tmp_path / "in.ipynb", tmp_path / "out.ipynb", progress_bar=False, cwd=tmp_path
        )
