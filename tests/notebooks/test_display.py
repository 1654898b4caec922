"""Display in notebooks: results, errors, tables, pictures, and one-line rows."""

import json
import re
import warnings
from decimal import Decimal
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from markupsafe import escape
from nbformat.v4 import new_code_cell

from nftsync import NftsyncWarning, frames
from nftsync.errors import NftsyncError, StoreError
from nftsync.notebooks import display
from nftsync.notebooks.picture_cards import picture_cards
from nftsync.pull.result import BalanceCounts, Failure, SyncResult, TokenCounts, WalletCounts
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.notebooks.worlds import execute, texts_of

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"


def result(failures: list[Failure], error: str | None = None) -> SyncResult:
    counts = WalletCounts(5012, 5000, 4321, 12), TokenCounts(1234, 5), BalanceCounts(100000, 2, 3)
    status = "failed" if error else "partial"
    return SyncResult(7, status, *counts, 6000, 17, 12.345, failures, error)


def cells(page: str) -> list[str]:
    return [
        "".join(cell.itertext())
        for cell in fromstring(f"<div>{page}</div>").iter()
        if cell.tag in {"td", "th"}
    ]


@pytest.mark.parametrize(("count", "shown"), [(0, 0), (1, 1), (20, 20), (21, 21), (5000, 21)])
def test_a_result_shows_every_count_and_names_the_first_20_failures(count, shown):
    failures = [Failure(f"wallet {n}", f"error {n}") for n in range(count)]
    page = cells(result(failures)._repr_html_())
    assert dict(zip(page[:12:2], page[1:12:2], strict=True)) == {
        "Status": "partial",
        "Wallets": "5,000 read (4,321 unchanged), 12 failed",
        "Balances": "100,000 added, 2 changed, 3 removed",
        "Tokens": "1,234 new, 5 changed",
        "Requests": "6,000 (retries: 17)",
        "Time": "12.3 s",
    }
    assert len(page[12:]) == 2 * shown
    assert page[12:14] == ["wallet 0", "error 0"][: 2 * count]
    if count > 20:
        assert page[-2:] == [f"and {count - 20:,} more", "in .failures"]


def test_a_result_needs_neither_scripts_nor_colors():
    """A notebook that is not trusted shows neither, and a dark theme has its own colors."""
    page = result([Failure(HOSTILE, HOSTILE, HOSTILE)], error=HOSTILE)._repr_html_()
    elements = list(fromstring(f"<div>{page}</div>").iter())[1:]
    assert {one.tag for one in elements} == {"p", "strong", "table", "tbody", "tr", "th", "td"}
    assert {item for one in elements for item in one.attrib.items()} == {
        ("style", "text-align: left")
    }
    shown = cells(page)
    assert shown[1] == f"failed: {HOSTILE}"
    assert {HOSTILE, f"{HOSTILE}, token {HOSTILE}"} <= set(shown)


def test_the_line_of_an_error_has_no_control_characters():
    (line,) = StoreError("a\nb\x1b[2J\x9bc")._render_traceback_()
    assert line == "\x1b[31mStoreError\x1b[39m: a\\x0ab\\x1b[2J\\x9bc"
    (line,) = NftsyncError()._render_traceback_()
    assert line.startswith("\x1b[31mNftsyncError")


def test_explanations_and_freshness_are_shown_whole_and_safe(build):
    told = frames.explain("holdings")
    for shown in (told._repr_html_(), repr(told)):
        plain = shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        assert all(text in plain for name in ("meaning", "column") for text in told[name])
    for number in range(3):
        build.wallet(number, label=HOSTILE)
    found = frames.freshness(build.close())
    (detail,) = found.loc[found["what"] == "wallets never read", "detail"]
    assert len(detail) > 100
    assert detail in repr(found)
    page = found._repr_html_()
    assert "<script" not in page
    assert page.count("<td") == page.count('<td style="text-align: left">') == found.size
    assert len(repr(found.iloc[:0])) > 0
    for made in (found.head(2), found.copy(), told.copy()):
        assert type(made) is pd.DataFrame


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    pages: list[str] = []
    monkeypatch.setattr(
        "IPython.display.display", lambda forms, **_: pages.append(forms["text/html"])
    )
    return pages


def test_a_table_has_a_dash_for_missing_values_and_names_instead_of_ids(shown):
    ids = [f"{number}aaaaaaa-0000-4000-8000-000000000000" for number in range(3)]
    display.show_table(
        pd.DataFrame(
            {
                "at": pd.to_datetime(["2026-01-31T23:59:59.999999Z", None, None]),
                "wallet_id": ids,
                "wallet": pd.Series([HOSTILE, None, " "], dtype="str"),
                "amount": pd.Series([1234567, None, 2**256 - 1], dtype=object),
                "share": [0.123456, None, 1.0],
                "hhi": [0.0004, None, 12.5],
                "run": pd.Series([1, None, 3], dtype="Int64"),
                "age": pd.to_timedelta(["1.5s", None, "3 days"]),
            }
        )
    )
    (page,) = shown
    assert "<script" not in page
    texts = texts_of(page)
    assert {HOSTILE, "2026-01-31 23:59:59", "1,234,567", f"{2**256 - 1:,}", "–"} <= set(texts)
    assert {"wallet", "12.3 %", "100.0 %", "<0.001", "12.500"} <= set(texts)
    assert not {"", "nan", "None", "NaT", "<NA>"} & set(texts)
    assert not any(text.startswith(("1aaaaaaa", "2aaaaaaa")) for text in texts)


def test_a_table_keeps_the_order_of_columns_and_says_how_many_rows_it_leaves_out(shown):
    display.show_table(pd.DataFrame({"amount": [1], "nft": "Map #1", "from_wallet": "Treasury"}))
    display.show_table(pd.DataFrame({"a": range(1_500)}), most=3)
    display.show_table(pd.DataFrame({"a": []}), none="Nothing <b>.")
    assert texts_of(shown[0]) == ["amount", "NFT", "from", "1", "Map #1", "Treasury"]
    assert texts_of(shown[1]) == ["a", "0", "1", "2", "1,497 more rows are not shown."]
    assert shown[2] == "<p>Nothing &lt;b&gt;.</p>"


def test_numbers_below_zero_and_changes_have_one_sign_each(shown):
    changes = pd.Series([3, -1234, 0], dtype=object)
    display.show_table(pd.DataFrame({"change": changes, "net": changes, "mean": [0.5, -2.5, 0.0]}))
    display.show_figures(
        {"a": 5, "b": 1, "c": 2, "d": Decimal("1.5")},
        {"a": 2, "b": 4, "c": 2, "d": Decimal("2.25")},
    )
    table, figures = map(texts_of, shown)
    assert table[3:] == ["+3", "3", "0.500", "−1,234", "−1,234", "−2.500", "±0", "0", "0.000"]
    assert figures == ["5", "1", "2", "1.5"]
    assert re.findall(r"</b> (.*?)</div>", shown[1]) == ["+3", "−3", "±0", "−0.75"]


def test_pictures_have_allowed_addresses_and_escaped_texts(empty):
    urls = ["https://example.com/a.png?'\"><script>", "http://127.0.0.1/b", None]
    nfts = pd.DataFrame(
        {
            "token_id": ["b", "c", "a", "a"],
            "wallet_id": ["1", "2", "3", "4"],
            "wallet_label": [None, None, "x", "y"],
            "name": ["Second", None, HOSTILE, HOSTILE],
            "collection": ["Second", "Third", HOSTILE[::-1], HOSTILE[::-1]],
            "image": [urls[1], urls[2], urls[0], urls[0]],
            "amount": pd.Series([2**70, 1, 1, 1], dtype=object),
            "held_since": pd.Timestamp("2026-01-31", tz="UTC"),
        }
    )
    page = picture_cards(nfts, empty, 2, "nftsync holdings", embed=False)
    assert "<script" not in page
    assert page.count("<img") == 1, "the one with an allowed picture comes first"
    assert page.index(escape(HOSTILE)) < page.index("Second")
    assert "Not shown: http: is allowed only from the provider" in page
    assert f"1, amount {2**70:,}" in page
    assert "2 wallets" in page
    assert "<p>1 more NFT. All holdings: <code>nftsync holdings</code></p>" in page
    assert (
        picture_cards(nfts[:0], empty, 2, "", embed=False) == '<div class="nftsync-pictures"></div>'
    )


def test_a_window_starts_at_the_end_of_a_day_or_30_days_back_after_the_first_sync(empty, demo):
    """Its start is a state that the present is compared with."""
    assert display.window_start(empty, "2026-01-31") == pd.Timestamp("2026-01-31T23:59:59.999999Z")
    assert display.window_start(empty, "2026-01-31T12:00") == pd.Timestamp("2026-01-31T12:00Z")
    end = pd.Timestamp.now("UTC")
    assert display.window_start(demo, None, end) == end - pd.Timedelta(days=30)
    runs = frames.runs(demo)
    first = runs.loc[runs["kind"] == "sync", "finished_at"].min()
    assert display.window_start(demo, None, first + pd.Timedelta(days=3)) == first


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """Return IPython with a history folder of its own."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    return InteractiveShell()


def test_rows_do_not_wrap_and_nothing_in_them_acts(shell):
    frame = pd.DataFrame({"description": ['<b>$x$</b> class="dataframe" \n' * 99, None]})

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
    assert html(frame.head(1)) != html(frame)  # a part of a frame is shown alike
    assert "nowrap" in (html(frame.head(1)) or "")
    explained = frames.explain("holdings")
    assert html(explained) == explained._repr_html_()
    with pd.option_context("display.notebook_repr_html", False):
        assert html(frame) is None
    shell.extension_manager.unload_extension("nftsync")
    assert html(frame) == before


def test_a_warning_of_nftsync_is_a_line_and_other_warnings_stay(shell, capsys, recwarn):
    shell.extension_manager.load_extension("nftsync")
    warnings.warn("no data\x1b[2J yet", NftsyncWarning, stacklevel=1)
    warnings.warn("another", UserWarning, stacklevel=1)
    shell.extension_manager.unload_extension("nftsync")
    warnings.warn("no match", NftsyncWarning, stacklevel=1)
    assert capsys.readouterr() == ("No data\\x1b[2J yet.\n", "")
    assert [str(each.message) for each in recwarn] == ["another", "no match"]


UNKNOWN = "aaaaaaaa-0000-4000-8000-000000000001"
SECRET = "a-token-that-must-not-be-seen"
WIDGET = "application/vnd.jupyter.widget"


def test_a_kernel_shows_progress_results_and_errors_of_one_line(monkeypatch):
    """Bars are widgets or text, a result is a table, and other errors keep their traceback."""
    monkeypatch.setenv("NFTSYNC_API_TOKEN", SECRET)
    with SandboxServer(generate(wallets=8, nfts=5)) as server:
        wallets = [*server.world.wallets(), UNKNOWN]  # one of them fails
        options = f"base_url={server.url!r}, database='synced.db', tokens=True"
        sync = f"import nftsync\nnftsync.sync({wallets!r}, {options})"
        codes = (
            "import nftsync\nnftsync.frames.holdings('missing.db').head()\n1 / 0",
            f"nftsync.sync(['{UNKNOWN}'], database='x.db')",
            "try:\n    raise nftsync.NftsyncError\nexcept Exception:\n    raise RuntimeError",
            *(sync, "import sys; sys.modules['ipywidgets'] = None", sync),
            f"nftsync.sync(['{UNKNOWN}'], base_url='http://127.0.0.1:1', database='x.db')",
        )
        notebook = execute(map(new_code_cell, codes), monkeypatch, allow_errors=True)
    assert SECRET not in json.dumps(notebook)
    missing, unset, other, first, _, second, failed = [cell.outputs for cell in notebook.cells]
    for (error,), words in (
        (missing, ["NoDatabase", "there is no database at", "missing.db", "nftsync sync"]),
        (unset, ["SettingsError", "base_url", "NFTSYNC_BASE_URL"]),
    ):
        (line,) = error.traceback
        assert "\n" not in line
        assert [word for word in (*words, error.evalue) if word not in line] == []
    assert other[0].ename == "RuntimeError"
    assert len("\n".join(other[0].traceback).splitlines()) > 3
    assert "failed" in failed[-1].data["text/html"]

    *bars, result = first
    assert [output.data["text/plain"].split(":")[0] for output in bars] == ["wallets", "tokens"]
    assert all(f"{WIDGET}-view+json" in output.data for output in bars)
    models = notebook.metadata.widgets[f"{WIDGET}-state+json"]["state"].values()
    progress = [model for model in models if model["model_name"] == "FloatProgressModel"]
    assert [model["state"]["bar_style"] for model in progress] == ["success", "success"]
    assert "8 wallets read" in result.data["text/plain"]
    assert UNKNOWN in result.data["text/html"]
    *bars, result = second
    assert {output.name for output in bars} == {"stderr"}
    shown = "".join(output.text for output in bars)
    # A carriage return overwrites the previous state.
    last_states = [line.rpartition("\r")[2] for line in shown.split("\n") if line]
    assert [line[:12] for line in last_states] == ["wallets: 100", "tokens: 100%"]
    assert "8 read" in result.data["text/html"]
