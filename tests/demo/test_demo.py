"""`demo` shows the whole, again and again, and only in a database of its own, which others name."""

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from nftsync import frames
from tests.kit.provider import wallet
from tests.kit.serve_process import assert_settled, environment, query
from tests.kit.worlds import mirrored, replayed

PROGRAM = Path(sys.executable).parent / "nftsync"
#: How often the wallets were read before the demo begins.
YEAR = 52


def assert_has_a_year(database: Path, syncs: list[tuple[int]]) -> None:
    """Weekly reads went before, of wallets that grew in number, and the live one found news."""
    runs = frames.runs(database)
    past = runs[: YEAR + 1]
    assert len(syncs) == YEAR + 2
    assert set(past["status"]) == {"ok"}
    assert past["started_at"].is_monotonic_increasing
    assert past["wallets_ok"].is_monotonic_increasing
    assert (past["wallets_ok"].iloc[0], past["wallets_ok"].iloc[-1]) == (32, 40)
    assert 350 < (past["started_at"].iloc[-1] - past["started_at"].iloc[0]).days <= 365
    assert 0 < syncs[YEAR][0] < 40
    ages = frames.holding_ages(database)
    assert set(ages["bucket"]) >= {"under a month", "under 3 months", "under a year"}
    known = ages[~ages["censored"]]
    assert 0.2 < len(known) / len(ages) < 0.8
    assert (frames.changes(database)["observed_at"].diff().dropna() >= timedelta(0)).all()


def assert_followed_by_webhooks(database: Path) -> int:
    """Return the number of changes from webhooks: all since the first real sync."""
    webhooks = frames.webhooks(database)
    assert set(webhooks["state"]) == {"done"}
    changes = frames.changes(database)
    live = changes[changes["run_id"] > YEAR + 1]
    assert live["baseline"].sum() == 1, "of the new wallet"
    caused = live[~live["baseline"]]
    assert caused["webhook_id"].notna().all()
    assert set(caused["webhook_id"]) <= set(webhooks["webhook_id"])
    assert caused["old_amount"].isna().any(), "an NFT came"
    assert caused["new_amount"].isna().any(), "an NFT left"
    assert frames.token_changes(database)["webhook_id"].notna().sum() == 1
    assert mirrored(database) == replayed(database)
    assert_settled(database)
    syncs = query(database, "SELECT wallets_unchanged FROM sync_runs WHERE kind = 'sync'")
    assert syncs[-1] == (41,), "webhooks had told of all that changed"
    assert_has_a_year(database, syncs)
    return len(caused)


def test_it_follows_the_provider_by_webhooks_and_what_it_says_to_do_next_works(demo, tmp_path):
    """Also after one that was killed, off the shell's path, and in a folder with a space."""
    folder = tmp_path / "a folder"
    shutil.copytree(demo.parent, folder / "data")
    # Neither the environment nor a file of settings is read, however wrong.
    (folder / "nftsync.toml").write_text("base_url = 5\nno_such_key = 1\n")
    wrong = environment(NFTSYNC_BASE_URL="nonsense", NFTSYNC_CONCURRENCY="x")
    database = folder / "data" / "demo.db"
    before = assert_followed_by_webhooks(database)
    query(database, "UPDATE webhooks SET state = 'running', lease_no = 99")
    (database.parent / "demo.db-wal").write_bytes(b"what a killed one leaves")
    shell = partial(subprocess.run, shell=True, cwd=folder, capture_output=True, text=True)
    typed = shlex.quote(os.path.relpath(PROGRAM, folder))
    done = shell(f"{typed} demo", env={**wrong, "PATH": os.defpath})
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert assert_followed_by_webhooks(database) == before > 0
    commands = re.findall(r"  (\S+ (?:holdings|changes|inbox) -d .*)", done.stdout)
    assert len(commands) == 3
    (folder / "nftsync.toml").unlink()
    told = shell(commands[0], env={**environment(), "PATH": os.defpath}, cwd="/")
    assert told.returncode == 0, told.stderr
    assert told.stdout


@pytest.mark.parametrize("kind", ["text", "database", "empty", "folder", "sync"])
def test_it_leaves_alone_what_no_demo_has_made(request, tmp_path, command, kind):
    path = tmp_path / "theirs.db"
    if kind == "folder":
        path.mkdir()
    elif kind == "sync":
        request.getfixturevalue("site").database.rename(path)
    elif kind == "database":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE theirs (a)")
    else:
        path.write_text("some text\n" * 100 if kind == "text" else "")
    before = None if kind == "folder" else path.read_bytes()
    done = command("demo", "-d", path)
    assert (done.code in {1, 2}, done.err.count("\n")) == (True, 1)
    assert done.err.startswith("nftsync: ")
    assert str(path) in done.err
    assert before is None or path.read_bytes() == before


ID = wallet(1)
#: Commands that need a database.
READING = (
    *("holdings", "holdings --json", "changes", "changes --follow", "transfers", "status"),
    *("statement --from 30d", "evidence Treasury", f"evidence {ID} --at 2026-01-01", "inbox"),
    *("wallets", f"wallets untrack {ID}", f"wallets label {ID} Ann", "outbox", "removals"),
    *("collections", "find kite", "hidden", "routes suggest", "inbox requeue --state dead"),
    *(f"inbox show {ID}", f"inbox requeue {ID}", "inbox prune --older-than 1d", "hide --suggest"),
    *("verify --sample 0", "snapshot copy.db", "export files", "backup copies", "migrate"),
)


@pytest.fixture
def beside(demo, tmp_path):
    """The working directory, with a demo's database in `data`."""
    (tmp_path / "data").mkdir()
    shutil.copy(demo, tmp_path / "data" / "demo.db")
    return tmp_path


def test_a_command_without_a_database_names_the_demo_and_makes_nothing(beside, command):
    advice = f". The demo's: --database {Path('data', 'demo.db')}\n"
    for words in map(shlex.split, READING):
        done = command(*words).tells("there is no database at", code=1)
        assert done.err.startswith("nftsync: ")
        assert done.err.endswith(advice), words
    found = [str(file.relative_to(beside)) for file in beside.rglob("*")]
    assert sorted(found) == ["data", "data/demo.db"]
    command("holdings", *advice.partition(": ")[2].split()).says()


def test_it_is_named_below_its_folder(beside, command, monkeypatch):
    folder = beside / "a" / "folder"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    command("holdings").tells(". The demo's: --database ../../data/demo.db\n", code=1)


def test_only_its_own_database_is_named(beside, command, monkeypatch):
    assert "demo" not in command("holdings", "-d", "other.db").tells("other.db", code=1).err
    monkeypatch.setenv("NFTSYNC_DATABASE", "other.db")
    assert "demo" not in command("holdings").tells("other.db", code=1).err
    monkeypatch.delenv("NFTSYNC_DATABASE")
    for content in (b"", b"text", None):
        file = beside / "data" / "demo.db"
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        assert "demo" not in command("holdings").tells("no database", code=1).err
        file.touch()
