"""Runs of every notebook: on a database with history and webhooks, and without one."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import chain
from pathlib import Path

from nftsync import frames
from nftsync.notebooks.database import provider_address
from nftsync.notebooks.jupyter import notebook_environment
from tests.kit.browser import PATIENCE, Record, open_chromium
from tests.notebooks.worlds import NOTEBOOKS, PAGES, PLOTLY, Run, count, text_of, texts_of

#: A time to the microsecond, or with its offset.
_LONG_TIME = re.compile(r"\d:\d\d\.\d|\+00:00")
#: Texts that the notebooks show for the demo, by notebook and cell.
SHOWN = {
    ("1-first-look", "figures"): ["NFTs", "41"],
    ("1-first-look", "gallery"): ["Freshly Minted"],
    ("1-first-look", "holdings"): ["Treasury"],
    ("1-first-look", "sync"): ["41"],
    ("2-what-changed", "figures"): ["transfers", "received", "sent"],
    ("2-what-changed", "gallery"): ["Freshly Minted"],
    ("2-what-changed", "moves"): ["transfer", "received", "Freshly Minted"],
    ("2-what-changed", "log"): ["Treasury", "Freshly Minted"],
    ("2-what-changed", "as-of"): ["bracketed", "gap"],
    ("2-what-changed", "ages"): ["under a year"],
    ("3-collections-and-holders", "concentration"): ["nakamoto"],
    ("3-collections-and-holders", "quality"): ["missing"],
    ("4-webhooks-and-freshness", "figures"): ["done"],
    ("4-webhooks-and-freshness", "stuck"): ["No webhook is stuck."],
    ("4-webhooks-and-freshness", "runs"): ["ok"],
    ("4-webhooks-and-freshness", "by-webhook"): ["a webhook", "a sync"],
    ("5-report", "heading"): ["NFTs", "41"],
    ("5-report", "holdings"): ["Holdings: 2", "797 NFTs are Tidal Almanac"],
    ("5-report", "changed"): ["Changes: ", " transfers, ", " received, ", " sent"],
    ("5-report", "moves"): ["Freshly Minted"],
    ("5-report", "whom"): ["By wallet: ", "most transfers: Artist royalties", "Treasury"],
    ("5-report", "wrong"): ["Problems: gaps in", "All wallets were read without errors"],
    ("5-report", "quality"): ["missing"],
    ("5-report", "freshness"): ["Freshness: all read within "],
}


def test_all_notebooks_run_on_the_demo_without_labels_and_on_an_empty_database(
    copied, empty, tmp_path, monkeypatch
):
    (tmp_path / "data").symlink_to(copied.parent)
    nameless = shutil.copytree(copied.parent, tmp_path / "nameless") / copied.name
    with closing(sqlite3.connect(nameless)) as connection, connection:
        connection.execute("UPDATE wallets SET label = NULL")
    syncs = count(copied, "SELECT count(*) FROM sync_runs WHERE kind = 'sync'")
    with notebook_environment(copied, None, lambda _: None) as environment:
        monkeypatch.setenv("NFTSYNC_BASE_URL", environment["NFTSYNC_BASE_URL"])
        runs = Run.on_each(
            [copied, nameless, empty], monkeypatch, ("read_now = False", "read_now = True")
        )
    for run in runs:
        run.assert_quiet()
        assert run.without_a_value() == []
    assert count(copied, "SELECT count(*) FROM sync_runs WHERE kind = 'sync'") == syncs + 1
    see_the_demo(runs[0])
    see_ids_for_names(runs[1], nameless)
    see_that_there_is_nothing(runs[2])


def see_the_demo(run: Run) -> None:
    """All charts are drawn, and the wallets were read again as a cell was told to."""
    run.assert_draws(marked=True)
    for (name, ident), words in SHOWN.items():
        assert [word for word in words if word not in run.shown(name, ident)] == [], ident
    for name, idents in (
        ("1-first-look", ["holdings", "freshness", "wallets"]),
        ("2-what-changed", ["moves", "log", "token", "as-of-rows"]),
        ("4-webhooks-and-freshness", ["trace", "runs", "freshness"]),
    ):
        assert not any(_LONG_TIME.search(run.shown(name, ident)) for ident in idents)
    assert "application/vnd.jupyter.widget-view+json" in run.outputs["1-first-look-sync"][0].data
    report = list(chain(*(run.outputs[cell] for cell in run.outputs if cell.startswith("5-"))))
    assert not [output for output in report if output.output_type == "stream"]
    assert "No database is configured" in run.shown("5-report", "freshness")
    assert "before the end of the first sync" not in "".join(map(text_of, report))
    assert_charts_say_what_tables_do(run)


def assert_charts_say_what_tables_do(run: Run) -> None:
    """The heading of the report's changes, its table and its chart are of the same changes."""
    heading = text_of(run.outputs["5-report-changed"][0])
    counts = {
        kind: int(number) for number, kind in re.findall(r"(\d+) (transfer|received|sent)", heading)
    }
    (chart, _) = run.outputs["5-report-arrivals"]
    came, went = (sum(trace["y"]) for trace in chart.data[PLOTLY]["data"])
    assert came == counts["transfer"] + counts["received"] > counts["transfer"] > 0
    assert -went == counts["transfer"] + counts["sent"] > counts["transfer"]
    assert f"{sum(counts.values()) - 12:,} more rows" in run.shown("5-report", "moves")


def see_that_there_is_nothing(run: Run) -> None:
    for name in ("1-first-look", "3-collections-and-holders"):
        assert "No data yet: no read has been stored;" in run.shown(name, "open")
    assert "Holdings: no data yet" in run.shown("5-report", "holdings")
    run.assert_draws(marked=False)
    assert "There are no transfers." in run.shown("2-what-changed", "moves")
    assert "Changes: no transfers" in run.shown("5-report", "changed")
    assert "never read" in run.shown("5-report", "freshness")


def see_ids_for_names(run: Run, nameless: Path) -> None:
    """Each side of a transfer, above all."""
    moved = texts_of(run.shown("2-what-changed", "moves"))
    transfers = moved.count("transfer")
    assert transfers > 5
    ids = {wallet[:8] for wallet in frames.wallets(nameless)["wallet_id"]}
    assert sum(text[:8] in ids for text in moved) >= 2 * transfers
    whom = texts_of(run.shown("5-report", "whom"))
    assert sum(text[:8] in ids for text in whom) >= 5


# The page of the report ---------------------------------------------------------------------------

_BLOCK = re.compile(r"^```sh\n(papermill .*?)```$", re.DOTALL | re.M)


def test_two_commands_make_one_page_that_draws_without_a_network(demo, tmp_path):
    """Those of docs/use/notebooks/README.md, from before the first sync, and up to a time."""
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
            block.replace("-p start 2026", "-p end 1s -p start 2020"),
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
        view.wait_for_function("document.querySelectorAll('.js-plotly-plot .gtitle').length >= 4")
    pictures = f"{provider_address(demo)}/sandbox/images/"
    assert text.count(f'src="{pictures}') == 8
    asked = [url for url in record.requests if not url.startswith(("file:", "data:", "blob:"))]
    assert all(url.startswith(pictures) for url in asked), "nothing else is anywhere else"
    assert len(record.messages) <= len(asked), "but for pictures, which are not there offline"
