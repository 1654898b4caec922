"""Display of a sync and of an error in a real kernel."""

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


def test_a_kernel_shows_progress_results_and_errors_of_one_line(sync, monkeypatch):
    """Bars are widgets or text, a result is a table, and other errors keep their traceback."""
    monkeypatch.setenv("NFTSYNC_API_TOKEN", SECRET)
    cells = (
        "import nftsync\nfrom nftsync import frames\nframes.holdings('missing.db').head()\n1 / 0",
        f"nftsync.sync(['{UNKNOWN}'], database='x.db')",
        "try:\n    raise nftsync.NftsyncError\nexcept Exception:\n    raise RuntimeError",
        *(sync, "import sys; sys.modules['ipywidgets'] = None", sync),
        f"nftsync.sync(['{UNKNOWN}'], base_url='http://127.0.0.1:1', database='x.db', retries=1)",
    )
    notebook = execute(of_cells(*cells), monkeypatch, allow_errors=True)
    assert SECRET not in nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    *failed, first, _, second, unreached = [cell.outputs for cell in notebook.cells]
    see_errors(*failed)
    assert unreached[-1].output_type == "execute_result"  # a run that failed is a result
    assert "failed" in unreached[-1].data["text/html"]
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


def see_errors(missing: list[Any], unset: list[Any], other: list[Any]) -> None:
    for (error,), words in (
        (missing, ["NoDatabase", "there is no database at", "missing.db", "nftsync sync"]),
        (unset, ["SettingsError", "base_url", "NFTSYNC_BASE_URL"]),
    ):
        assert error.output_type == "error"
        (line,) = error.traceback
        assert "\n" not in line
        assert "Traceback" not in line
        assert error.evalue in line
        assert all(word in line for word in words)
    (error,) = other
    assert error.ename == "RuntimeError"
    assert len("\n".join(error.traceback).splitlines()) > 3
