"""Folders for seeds, and the commands that run many."""

from __future__ import annotations

import argparse
import atexit
import hashlib
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from nftsync.store.catalog import TABLES
from nftsync.store.mirror import Mirror

#: Nothing waits for a disk there.
_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


@cache
def template() -> Path:
    """An empty database, made once."""
    path = Path(tempfile.mkdtemp(dir=_MEMORY)) / "template.db"
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    with Mirror(path) as mirror:
        mirror.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@contextmanager
def place(level: str, seed: int, steps: int) -> Iterator[Path]:
    """A folder in memory for a seed; an error gets the command that repeats it."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        try:
            yield Path(folder)
        except Exception as error:
            error.add_note(f"python -m tests.model.{level} --seed {seed} --of {steps}")
            raise


def digest(database: Path) -> str:
    """Of all public tables."""
    sums = hashlib.sha256()
    with closing(sqlite3.connect(database)) as connection:
        for table in TABLES.values():
            rows = repr(connection.execute(table.select()).fetchall())
            sums.update(rows.replace(str(database.parent), "").encode())
    return sums.hexdigest()


def main(
    about: str | None,
    run_seed: Callable[[int, int], tuple[Counter[str], str]],
    *,
    unit: str,
    steps: int,
    of: int,
) -> None:
    """Run seeds of `of` steps, until together they have `steps` of a unit, or one alone, twice.

    `run_seed` returns figures, with the unit, and a digest of the database.
    """
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this seed alone, twice")
    parser.add_argument("--of", type=int, default=of, help="steps of a seed")
    asked = parser.parse_args()
    if asked.seed is not None:
        (figures, digest), (_, again) = (run_seed(asked.seed, asked.of) for _ in range(2))
        print(dict(figures), digest)
        if digest != again:
            raise SystemExit(f"it left {digest}, and then {again}")
        return
    total, seed = Counter[str](), asked.first
    while total[unit] < asked.steps:
        total += run_seed(seed, asked.of)[0]
        seed += 1
    told = ", ".join(f"{count:,} {name}" for name, count in total.items())
    print(f"seeds {asked.first} to {seed - 1}: {told}; {time.process_time():.0f} s")
