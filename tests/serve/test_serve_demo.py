"""`demo` shows the whole, again and again, and only in a database of its own."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from serve_process import assert_settled, query, run
from worlds import mirrored, replayed

from nftsync import frames

PROGRAM = Path(sys.executable).parent / "nftsync"


def test_it_follows_the_provider_by_webhooks_and_can_be_run_again(tmp_path: Path) -> None:
    database = tmp_path / "data" / "demo.db"
    # Neither the environment nor a file of settings is read, however wrong.
    (tmp_path / "nftsync.toml").write_text("base_url = 5\nno_such_key = 1\n")
    changed = []
    for _ in range(2):
        done = run("demo", cwd=tmp_path, NFTSYNC_BASE_URL="nonsense", NFTSYNC_CONCURRENCY="x")
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert str(database) in done.stdout
        webhooks = frames.webhooks(database)
        assert set(webhooks["state"]) == {"done"}
        changes = frames.changes(database)
        caused = changes[~changes["baseline"]]
        assert caused["webhook_id"].notna().all()
        assert set(caused["webhook_id"]) <= set(webhooks["webhook_id"])
        assert {"left", "came"} <= {
            "came" if row.old_amount is None else "left" if row.new_amount is None else "changed"
            for row in caused.itertuples()
        }
        assert len(frames.token_changes(database)) == 1
        assert mirrored(database) == replayed(database)
        assert_settled(database)
        syncs = query(database, "SELECT wallets_unchanged FROM sync_runs WHERE kind = 'sync'")
        assert syncs == [(0,), (41,)], "webhooks had told of all that changed"
        changed.append(len(caused))
    assert changed[0] == changed[1] > 0


@pytest.mark.parametrize("installed", [True, False])
def test_what_it_says_to_do_next_works_in_the_shell_that_ran_it(
    tmp_path: Path, installed: bool
) -> None:
    """Also where nothing has put the program on the shell's path, and in a folder with a space."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    path = os.pathsep.join([*([str(PROGRAM.parent)] if installed else []), os.defpath])
    shell = partial(
        subprocess.run, shell=True, cwd=folder, env={**os.environ, "PATH": path}, text=True
    )
    demo = "nftsync" if installed else shlex.quote(os.path.relpath(PROGRAM, folder))
    done = shell(f"{demo} demo", capture_output=True)
    assert done.returncode == 0, done.stderr
    commands = re.findall(r"  (\S+ (?:holdings|changes|inbox) -d .*)", done.stdout)
    assert len(commands) == 3
    for command in commands:
        assert command.startswith(f"{demo} ")
        told = shell(command, capture_output=True)
        assert told.returncode == 0, told.stderr
        assert told.stdout


@pytest.mark.parametrize("kind", ["text", "database", "empty", "folder"])
def test_it_leaves_alone_what_no_demo_has_made(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "theirs.db"
    if kind == "folder":
        path.mkdir()
    elif kind == "database":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE theirs (a)")
    else:
        path.write_text("some text\n" * 100 if kind == "text" else "")
    before = None if kind == "folder" else path.read_bytes()
    done = run("demo", "-d", path, cwd=tmp_path)
    assert done.returncode in {1, 2}
    assert done.stderr.startswith("nftsync: ")
    assert done.stderr.count("\n") == 1
    assert str(path) in done.stderr
    assert before is None or path.read_bytes() == before


def test_it_leaves_alone_a_database_that_a_sync_has_made(synced: Path) -> None:
    done = run("demo", "-d", synced, cwd=synced.parent)
    assert done.returncode == 2
    assert "demo" in done.stderr
    assert len(mirrored(synced)) == 12


def test_it_begins_afresh_after_one_that_was_killed(tmp_path: Path) -> None:
    assert run("demo", "-d", "demo.db", cwd=tmp_path).returncode == 0
    database = tmp_path / "demo.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE webhooks SET state = 'running', lease_no = 99")
    (tmp_path / "demo.db-wal").write_bytes(b"what a killed one leaves")
    done = run("demo", "-d", "demo.db", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_settled(database)
