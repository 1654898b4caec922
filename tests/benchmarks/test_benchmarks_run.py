"""Every benchmark runs, at tiny sizes, and the document has a row for each of its targets."""

import importlib
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

import nftsync
from benchmarks.figure import Figure
from benchmarks.filled import multiply
from benchmarks.report import BEGIN, DOCUMENT, END, NAMES, Rows, rows_in, rows_of, written
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.worlds import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
#: How many targets each benchmark has to meet.
TARGETS = {
    "startup": 2,
    "frames": 5,
    "analysis": 0,
    "sync": 5,
    "failing": 1,
    "growth": 3,
    "receiver": 2,
    "webhooks": 1,
}


def targets(rows: Rows) -> set[tuple[str, str]]:
    """Return the rows with targets, without the sizes, which are tiny here."""
    return {(re.sub(r"[\d,]+", "#", row[1]), row[4]) for row in rows if row[4]}


def committed() -> dict[str, Rows]:
    text = DOCUMENT.read_text()
    return rows_in(text[text.index(BEGIN) : text.index(END)])


def assert_complete(name: str, rows: Rows) -> None:
    assert len(targets(rows)) >= TARGETS[name]
    assert targets(rows) <= targets(committed().get(name, []))


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_benchmark_runs(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    benchmark = importlib.import_module(f"benchmarks.{name}")
    assert_complete(name, rows_of(name, benchmark.figures(small=True)))


def test_the_command_runs_one_in_a_process_of_its_own(tmp_path):
    env = {key: value for key, value in os.environ.items() if not key.startswith("NFTSYNC_")}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", NAMES[0], "--small"],
        cwd=ROOT,
        env=env | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = rows_in(done.stdout)
    assert list(found) == [NAMES[0]]
    assert_complete(NAMES[0], found[NAMES[0]])


@pytest.mark.skipif(not (ROOT / ".venv").exists(), reason="compares checkouts with a .venv")
def test_two_checkouts_are_compared(tmp_path):
    trial = ("--small", "--pairs", "1", "--only", "sync")
    output = subprocess.check_output(
        [sys.executable, "-m", "benchmarks.pairs", str(ROOT), str(ROOT), *trial],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        text=True,
        timeout=PATIENCE,
    )
    assert re.search(r"^first sync, s +\S+ +\S+ +\S+ +\S+ to", output, re.M)


def test_the_document_has_a_row_for_every_target():
    rows = committed()
    assert list(rows) == list(NAMES)
    for name, least in TARGETS.items():
        judged = [row[5] for row in rows[name] if row[4]]
        assert len(judged) >= least
        assert set(judged) <= {"yes", "**no**"}, "each target was measured"


def test_benchmarks_that_did_not_run_keep_their_rows():
    old = {name: rows_of(name, [Figure(f"{name} | once", "1 s")]) for name in ("growth", "frames")}
    new = {"frames": rows_of("frames", [Figure("frames again", "2 s", "", "under 3 s", True)])}
    text = written(written(f"before\n{BEGIN}\n\n{END}\nafter\n", old), new)
    assert rows_in(text) == {"frames": new["frames"], "growth": old["growth"]}
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert sorted(rows_in(text), key=NAMES.index) == list(rows_in(text))


def test_a_multiplied_database_is_sound_and_knows_its_wallets(tmp_path):
    original, large = tmp_path / "original.db", tmp_path / "large.db"
    world = generate(wallets=6, nfts=4, seed=1)
    with SandboxServer(world) as server:
        known = {"base_url": server.url, "wallets": world.wallets(), "progress": False}
        nftsync.sync(**known, database=original)
        multiply(original, large, 5)
        again = nftsync.sync(**known, database=large)
    assert (again.wallets.ok, again.wallets.unchanged) == (6, 6)
    assert (again.balances.added, again.tokens.added) == (0, 0)
    with closing(sqlite3.connect(large)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for table, count in (("wallets", 30), ("balances", 120), ("balance_changes", 120)):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (count,)
        numbers = connection.execute("SELECT wallet_no FROM wallets ORDER BY 1").fetchall()
        word = connection.execute("SELECT name FROM tokens LIMIT 1").fetchone()[0].split()[0]
        found = connection.execute("SELECT rowid FROM tokens_fts(?)", (f'"{word}"',)).fetchall()
    assert len(numbers) == len(set(numbers)) == 30
    assert len(found) >= 5
