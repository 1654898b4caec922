"""Lakes for the tests of what reads them, made of a database without a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nftsync.lake.copies import export_lake, import_database
from nftsync.store.rules import check_rules
from nftsync.times import now
from tests.kit.lake_cluster import environment
from tests.nightly.lake_rounds import TABLES, rows_of


def lake_of(database: Path, folder: Path, buckets: int = 2) -> str:
    """Make a lake of one run that has all that a database has."""
    import_database(database, str(folder), buckets=buckets)
    return str(folder)


#: Runs code on the lake `url`, and ends of a signal once so many files below some folder changed.
_STOPPED = """
import os, sys, threading, time
url, code, number, least, below = *sys.argv[1:3], *map(int, sys.argv[3:5]), sys.argv[5]
def listed():
    return {(folder, name) for folder, _, names in os.walk(url) for name in names
            if below in folder}
def watch():
    known, seen = listed(), 0
    while seen < least:
        found = listed()
        seen += len(found ^ known)
        known = found
        time.sleep(0.001)
    os.kill(os.getpid(), number)
threading.Thread(target=watch, daemon=True).start()
exec(code)
"""


def stopped(code: str, url: str, number: int, changes: int, below: str = "") -> int:
    """Run code until so many files of a lake have changed; return the exit code."""
    words = [sys.executable, "-c", _STOPPED, url, code, str(int(number)), str(changes), below]
    return subprocess.run(
        words, env=environment(), check=False, stderr=subprocess.DEVNULL
    ).returncode


def one_file(url: str, path: Path) -> Path:
    """Put all buckets of a lake's last run into one database."""
    export_lake(url, path)
    return path


def same_as_sqlite(lake: Path, database: Path) -> None:
    """A lake and a database say the same, but for numbers and times; no rule is broken."""
    copy = lake.parent / "copy.db"
    copy.unlink(missing_ok=True)
    export_lake(str(lake), copy)
    assert [rule for rule in check_rules(copy, now()) if rule.broken] == []
    for name, query in TABLES.items():
        here, there = (rows_of(path, query, []) for path in (copy, database))
        assert here == there, name
