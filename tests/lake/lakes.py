"""Lakes for the tests of what reads them, made of a database without a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from nftsync.lake.copies import put_runs
from nftsync.lake.ledger import Ledger
from nftsync.lake.rows import TABLES, from_database, to_mirror
from nftsync.lake.setup import create_tables
from nftsync.lake.storage import Lake
from nftsync.store.mirror import Mirror
from nftsync.store.schema import reading
from tests.kit.lake_cluster import environment


def lake_of(database: Path, folder: Path, buckets: int = 2) -> str:
    """Make a lake of one run that has all that a database has."""
    lake = Lake(str(folder))
    create_tables(lake)
    ledger = Ledger(lake)
    run = ledger.begin("", buckets, 0.0)
    run.versions = {}
    with reading(database) as connection:
        for name in TABLES:
            run.versions[name] = lake.overwrite(name, from_database(connection, name, buckets))
        (ended,) = connection.execute("SELECT max(finished_at) FROM sync_runs").fetchone()
    run.status, run.finished_at = "ok", ended or run.started_at
    run.started_at = run.finished_at
    ledger.save(run)
    return lake.url


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


def write(lake: Lake, name: str, rows: pa.Table, bucket: int) -> int:
    """Put rows into a bucket of a table; the new version."""
    file = lake.write_file(name, bucket, rows.to_batches())
    newest = lake.open(name).version()
    return lake.commit(name, newest, [file], replace=not TABLES[name].log)


def one_file(url: str, path: Path) -> Path:
    """Put all buckets of a lake's last run into one database, one after the other."""
    lake = Lake(url)
    runs = Ledger(lake).runs()
    versions = runs[-1].versions or {}
    with Mirror(path) as mirror, mirror.transaction() as transaction:
        for name in ["tokens", *(x for x in TABLES if "tokens" not in x)]:
            for bucket in range(runs[-1].buckets):
                rows = lake.stored(name, versions, buckets=[bucket])
                to_mirror(transaction.connection, name, rows)
        put_runs(transaction.connection, runs)
    return path
