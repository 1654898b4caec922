"""Display of a sync and of an error in a real kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import nbformat
import pytest

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.notebooks.worlds import execute, of_cells

UNKNOWN = "aaaaaaaa-0000-4000-8000-000000000001"
SECRET = "a-token-that-must-not-be-seen"
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def sync() -> Iterator[str]:
    """A cell that reads wallets of which one fails."""
    with SandboxServer(generate(wallets=8, nfts=5)) as server:
        wallets = [*server.world.wallets(), UNKNOWN]
        yield (
            f"import nftsync\nnftsync.sync({wallets!r}, base_url={server.url!r},"
            " database='synced.db', tokens=True)"
        )


def run_cells(patch: pytest.MonkeyPatch, *cells: str) -> tuple[list[list[Any]], Any]:
    """Run cells in a clean kernel: what each put out, and the notebook."""
    notebook = execute(of_cells(*cells), None, patch, allow_errors=True)
    return [cell.outputs for cell in notebook.cells], notebook


def test_a_sync_shows_bars_as_widgets_or_text_and_its_result_as_a_table(
    sync: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, _, second), notebook = run_cells(
        monkeypatch, sync, "import sys; sys.modules['ipywidgets'] = None", sync
    )
    *bars, result = first
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
    assert "8 read" in result.data["text/html"]
    assert "8 wallets read" in result.data["text/plain"]
    assert UNKNOWN in result.data["text/html"]
    *bars, result = second
    assert {(output.output_type, output.name) for output in bars} == {("stream", "stderr")}
    shown = "".join(output.text for output in bars)
    # A carriage return overwrites the previous state.
    last_states = [line.rpartition("\r")[2] for line in shown.split("\n") if line]
    assert [line[:12] for line in last_states] == ["wallets: 100", "tokens: 100%"]
    assert "arning" not in shown
    assert "8 read" in result.data["text/html"]


def test_an_error_is_one_line_that_says_what_to_do_and_others_keep_their_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NFTSYNC_API_TOKEN", SECRET)
    (missing, unset, unreached, other), notebook = run_cells(
        monkeypatch,
        "import nftsync\nfrom nftsync import frames\nframes.holdings('missing.db').head()\n1 / 0",
        f"nftsync.sync(['{UNKNOWN}'], database='x.db')",
        f"nftsync.sync(['{UNKNOWN}'], base_url='http://127.0.0.1:1', database='x.db', retries=1)",
        "try:\n    raise nftsync.NftsyncError('first')\n"
        "except nftsync.NftsyncError as error:\n    raise RuntimeError('second') from error",
    )
    for (error,), words in (
        (missing, ["StoreError", "there is no database at", "missing.db", "nftsync sync"]),
        (unset, ["SettingsError", "base_url", "NFTSYNC_BASE_URL"]),
    ):
        assert error.output_type == "error"
        (line,) = error.traceback
        assert "\n" not in line
        assert "Traceback" not in line
        assert error.evalue in line
        assert all(word in line for word in words)
    assert unreached[-1].output_type == "execute_result"  # a run that failed is a result
    assert "failed" in unreached[-1].data["text/html"]
    (error,) = other
    assert error.ename == "RuntimeError"
    assert len("\n".join(error.traceback).splitlines()) > 3
    assert SECRET not in nbformat.writes(notebook)  # type: ignore[no-untyped-call]
