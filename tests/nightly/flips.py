"""Damage a database, and run each command on it: one line, never a traceback.

`nftsync check` must find all damage that SQLite's integrity_check finds. Ids and times differ in
each run, so a database with a fault is kept.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
import traceback
from collections import Counter
from contextlib import chdir, closing
from functools import partial
from pathlib import Path
from typing import Any

import nftsync
from nftsync.sandbox.server import SandboxServer
from tests.kit.inbox import Inbox
from tests.kit.serve_process import webhook
from tests.kit.worlds import run_command
from tests.nightly.rounds import run_seeds, sandbox

COMMANDS = (
    *(("check",), ("status",), ("holdings",), ("changes",), ("wallets",), ("collections",)),
    *(("inbox",), ("find", "a"), ("verify", "--sample", "0"), ("replay",), ("sync", "--tokens")),
    *(("snapshot", "copy.db"), ("backup", "backups"), ("export", "tables", "--format", "csv")),
    *(("inbox", "prune", "--older-than", "1s"), ("inbox", "requeue", "--state", "done")),
)


def make_database(database: Path, provider: SandboxServer) -> Path:
    """Make a database with balances, tokens, changes and webhooks."""
    wallets = provider.world.wallets()
    options: dict[str, Any] = {"base_url": provider.url, "database": database, "progress": False}
    nftsync.sync(wallets, tokens=True, **options)
    for wallet in wallets:
        provider.world.mint(wallet, 1, {"name": "new"})
    nftsync.sync(wallets, **options)
    inbox = Inbox(database)
    inbox.receive(*(webhook("Wallet", wallets[number % 4]) for number in range(40)))
    done = "UPDATE webhooks SET state = 'done', finished_at = received_at WHERE webhook_no % 2"
    inbox.run(done)
    inbox.run("PRAGMA wal_checkpoint(TRUNCATE)")
    return database


def flip(database: Path, rng: random.Random) -> str:
    content = bytearray(database.read_bytes())
    size, how = len(content), rng.choice(["bit", "bits", "bytes", "page", "header", "tail"])
    start = rng.randrange(100 if how == "header" else size)
    page = slice(start // 4096 * 4096, start // 4096 * 4096 + 4096)
    if how == "tail":
        del content[start:]
    elif how == "page":
        content[page] = rng.choice([b"\0" * 4096, b"\xff" * 4096, rng.randbytes(4096)])
    else:
        count = 1 if how in {"bit", "header"} else rng.randrange(2, 40)
        for _ in range(count):
            place = start if count == 1 else min(size - 1, start + rng.randrange(400))
            changed = content[place] ^ (1 << rng.randrange(8))
            content[place] = rng.randrange(256) if how == "bytes" else changed
    database.write_bytes(content)
    return f"{how} at {start} of {size}"


def check(database: Path, url: str) -> Counter[str]:
    """Run each command; no traceback, and `check` finds what SQLite finds."""
    with closing(sqlite3.connect(database)) as connection:
        connection.text_factory = lambda text: text.decode(errors="replace")
        try:
            report = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        except (sqlite3.Error, UnicodeDecodeError) as error:
            report = str(error)
    figures = Counter(damaged=report != "ok")
    for words in COMMANDS:
        more = ["--base-url", url] if words[0] in {"check", "verify", "replay", "sync"} else []
        try:
            done = run_command(*words, "-d", database, *more)
        except Exception as error:
            raise AssertionError(f"{words}: {traceback.format_exc()}") from error
        figures[f"exit {done.code}"] += 1
        assert "Traceback" not in done.said, f"{words}: {done.said}"
        if words == ("check",) and report != "ok":
            assert "FAILED   database" in done.said, f"check misses damage: {report}"
    return figures


def run_seed(seed: int, folder: Path, original: Path, url: str) -> Counter[str]:
    database = Path(shutil.copy(original, folder / "nftsync.db"))
    how = flip(database, random.Random(seed))
    kept = Path(shutil.copy(database, Path(tempfile.gettempdir(), f"flipped-{seed}.db")))
    try:
        with chdir(folder):
            figures = check(database, url)
    except AssertionError as error:
        raise AssertionError(f"{how}, kept at {kept}: {error}") from error
    kept.unlink()
    return figures


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, sandbox(4, 30, 3) as provider:
        database = make_database(Path(name, "original.db"), provider)
        run_seeds(__doc__, partial(run_seed, original=database, url=provider.url), seeds=2_000)
