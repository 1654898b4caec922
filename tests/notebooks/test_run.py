"""Runs of every notebook: on a database with history and webhooks, and without one."""

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from nftsync import frames
from nftsync.notebooks.jupyter import notebook_environment
from tests.notebooks.worlds import Run, columns_of, count, text_of

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
    ("5-report", "open"): ["Wallets: 41."],
    ("5-report", "headline"): ["797", "collections", "total amount"],
    ("5-report", "statement"): ["customers", "house", "total"],
    ("5-report", "collections"): ["797 NFTs are Tidal Almanac", "share"],
    ("5-report", "pictures"): ["Freshly Minted"],
    ("5-report", "transfers"): ["between two wallets", "Freshly Minted"],
    ("5-report", "concentration"): ["largest holder share"],
    ("5-report", "quality"): ["All wallets were read without errors", "missing"],
    ("5-report", "sources"): ["last sync", "confirmed by reads before and after", "Written at "],
}


def test_all_notebooks_run_on_the_demo_with_all_some_and_no_labels_and_on_an_empty_database(
    copied, empty, tmp_path, monkeypatch
):
    (tmp_path / "data").symlink_to(copied.parent)
    some, nameless = (shutil.copytree(copied.parent, tmp_path / name) for name in ("some", "none"))
    some, nameless = some / copied.name, nameless / copied.name
    for database, without in ((some, "label LIKE 'Customer%'"), (nameless, "true")):
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute(f"UPDATE wallets SET label = NULL WHERE {without}")
    syncs = count(copied, "SELECT count(*) FROM sync_runs WHERE kind = 'sync'")
    with notebook_environment(copied, None, lambda _: None) as environment:
        monkeypatch.setenv("NFTSYNC_BASE_URL", environment["NFTSYNC_BASE_URL"])
        runs = Run.on_each(
            [copied, some, nameless, empty], monkeypatch, ("read_now = False", "read_now = True")
        )
    for run in runs:
        run.assert_quiet()
        assert run.without_a_value() == []
    assert count(copied, "SELECT count(*) FROM sync_runs WHERE kind = 'sync'") == syncs + 1
    see_the_demo(runs[0])
    see_names_or_ids(runs[1], some)
    see_names_or_ids(runs[2], nameless)
    see_that_there_is_nothing(runs[3])


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
    gaps = columns_of(run.shown("5-report", "quality"))
    assert gaps == columns_of(run.shown("3-collections-and-holders", "quality"))
    heading, pairs, sides = map(text_of, run.outputs["5-report-transfers"])
    counts = re.search(r"(\d+) between two wallets, (\d+) received, (\d+) sent", heading)
    assert counts is not None
    paired, received, sent = map(int, counts.groups())
    assert f"{paired - 15:,} more rows" in pairs
    assert f"{received + sent - 10:,} more rows" in sides


def see_that_there_is_nothing(run: Run) -> None:
    for name in ("1-first-look", "3-collections-and-holders"):
        assert "No data yet: no read has been stored;" in run.shown(name, "open")
    run.assert_draws(marked=False)
    assert "There are no transfers." in run.shown("2-what-changed", "moves")


def see_names_or_ids(run: Run, database: Path) -> None:
    """Each wallet by its label or short id; both sides of a transfer."""
    wallets = set(frames.wallets(database)["wallet"])
    for name, ident, column in (
        ("1-first-look", "holdings", "wallet"),
        ("1-first-look", "wallets", "wallet"),
        ("2-what-changed", "as-of-rows", "wallet"),
        ("2-what-changed", "log", "wallet"),
        ("4-webhooks-and-freshness", "trace", "wallet"),
    ):
        shown = set(columns_of(run.shown(name, ident))[column])
        assert shown, ident
        assert shown <= wallets, ident
    columns = columns_of(run.shown("2-what-changed", "moves"))
    sides = [*zip(columns["from"], columns["to"], columns["kind"], strict=True)]
    assert sum(kind == "transfer" for *_, kind in sides) > 5
    for giver, receiver, kind in sides:
        assert giver in wallets or kind == "received"
        assert receiver in wallets or kind == "sent"
    _, pairs, one_sided = map(text_of, run.outputs["5-report-transfers"])
    columns = columns_of(pairs)
    assert {*columns["from"], *columns["to"], *columns_of(one_sided)["wallet"]} <= wallets
