"""`%load_ext nftsync`: frames show a line a row and warn in a line, and only that changes."""

from __future__ import annotations

import warnings

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell

from nftsync import NftsyncWarning, frames


def test_rows_do_not_wrap_and_nothing_in_them_acts() -> None:
    frame = pd.DataFrame({"description": ['<b>$x$</b> class="dataframe" \n' * 99, None]})
    shell = InteractiveShell()

    def html(shown: pd.DataFrame) -> str | None:
        page: str | None = shell.display_formatter.format(shown)[0].get("text/html")
        return page

    before = html(frame)
    shell.extension_manager.load_extension("nftsync")
    page = html(frame)
    assert page is not None
    assert "white-space: nowrap" in page
    assert page.count("mathjax_ignore") == 1
    assert "<b>" not in page
    assert html(frame.head(1)) != html(frame)  # what is made of a frame shows alike
    assert "nowrap" in (html(frame.head(1)) or "")
    explained = frames.explain("holdings")
    assert html(explained) == explained._repr_html_()
    with pd.option_context("display.notebook_repr_html", False):
        assert html(frame) is None
    shell.extension_manager.unload_extension("nftsync")
    assert html(frame) == before


def test_what_nftsync_warns_of_is_a_line_and_other_warnings_stay(
    capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    shell = InteractiveShell()
    shell.extension_manager.load_extension("nftsync")
    warnings.warn("nothing is\x1b[2J known", NftsyncWarning, stacklevel=1)
    warnings.warn("another", UserWarning, stacklevel=1)
    shell.extension_manager.unload_extension("nftsync")
    warnings.warn("nothing is found", NftsyncWarning, stacklevel=1)
    assert capsys.readouterr() == ("Nothing is\\x1b[2J known.\n", "")
    assert [str(each.message) for each in recwarn] == ["another", "nothing is found"]


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """IPython keeps its history there."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
