"""Databases of earlier versions, compressed beside this file.

Commands of 0.5.0 (commit 74803b2) made its database against its own sandbox: two syncs, labels and
groups, transfers, changed metadata, webhooks and held removals. For a later version, take the
database of its demo, from a checkout of its commit:

    git worktree add --detach /tmp/nftsync-0.6.0 COMMIT
    .venv/bin/python -m tests.versions.make_databases 0.6.0 /tmp/nftsync-0.6.0
    git worktree remove --force /tmp/nftsync-0.6.0
"""

import gzip
import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path


def packed(version: str) -> Path:
    """Return the file of a version's database, compressed."""
    return Path(__file__).with_name(f"{version}.db.gz")


def unpacked(version: str, path: Path) -> Path:
    """Write a version's database to a path, and return that."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.decompress(packed(version).read_bytes()))
    return path


def main(version: str, checkout: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "nftsync", "demo"]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(checkout)}
        subprocess.run(command, cwd=folder, env=environment, check=True)
        small = Path(folder, "small.db")
        with closing(sqlite3.connect(Path(folder, "data", "demo.db"))) as connection:
            connection.execute("VACUUM INTO ?", (str(small),))
        with closing(sqlite3.connect(small)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")  # like a database in use
        packed(version).write_bytes(gzip.compress(small.read_bytes(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
