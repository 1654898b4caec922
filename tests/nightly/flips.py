"""Damage a database, and run each command on it: one line, never a traceback.

    python -m tests.nightly.flips --rounds 2000
    python -m tests.nightly.flips --seed 17          # one alone

`nftsync check` must find all damage that SQLite's integrity_check finds. Ids and times differ in
each run, so a database with a fault is kept.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, closing, contextmanager
from pathlib import Path
from typing import Any

import nftsync
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.inbox import Inbox
from tests.kit.serve_process import webhook
from tests.kit.worlds import run_command
from tests.nightly.rounds import run_rounds

COMMANDS = (
    *(("check",), ("status",), ("holdings",), ("changes",), ("wallets",), ("collections",)),
    *(("inbox",), ("find", "a"), ("verify", "--sample", "0"), ("replay",), ("sync", "--tokens")),
    *(("snapshot", "copy.db"), ("backup", "backups"), ("export", "tables", "--format", "csv")),
    *(("inbox", "prune", "--older-than", "1s"), ("inbox", "requeue", "--state", "done")),
)


def make_database(database: Path, provider: SandboxServer) -> None:
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


def flip(database: Path, rng: random.Random) -> str:
    """Damage a file; return how."""
    size = database.stat().st_size
    how = rng.choice(["bit", "bits", "bytes", "page", "header", "tail"])
    with database.open("r+b") as file:
        start = rng.randrange(100) if how == "header" else rng.randrange(size)
        if how == "tail":
            file.truncate(start)
        elif how == "page":
            file.seek(start // 4096 * 4096)
            file.write(rng.choice([b"\0" * 4096, b"\xff" * 4096, rng.randbytes(4096)]))
        else:
            count = 1 if how in {"bit", "header"} else rng.randrange(2, 40)
            for _ in range(count):
                place = start if count == 1 else min(size - 1, start + rng.randrange(400))
                file.seek(place)
                old = file.read(1)[0]
                new = rng.randrange(256) if how == "bytes" else old ^ (1 << rng.randrange(8))
                file.seek(place)
                file.write(bytes([new]))
    return f"{how} at {start} of {size}"


def run_commands(folder: Path, url: str) -> Counter[str]:
    """Run each command on `nftsync.db` in a folder; count the exit codes.

    Raises:
        AssertionError: a traceback, or damage that only SQLite finds.
    """
    database = folder / "nftsync.db"
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


def run_seed(seed: int, original: Path, folder: Path, url: str) -> Counter[str]:
    """Damage a copy of a database, and run all commands; a faulty copy is kept in a file."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    database = Path(shutil.copy(original, folder / "nftsync.db"))
    how = flip(database, random.Random(seed))
    kept = Path(shutil.copy(database, Path(tempfile.gettempdir(), f"flipped-{seed}.db")))
    try:
        with chdir(folder):
            figures = run_commands(folder, url)
    except AssertionError as error:
        raise AssertionError(f"{how}, kept at {kept}: {error}") from error
    kept.unlink()
    return figures


@contextmanager
def original() -> Iterator[tuple[Path, str]]:
    """A new database, and the URL of its provider."""
    with (
        tempfile.TemporaryDirectory() as folder,
        SandboxServer(lambda url: generate(wallets=4, nfts=30, seed=3, image_base=url)) as server,
    ):
        database = Path(folder, "nftsync.db")
        make_database(database, server)
        yield database, server.url


def main() -> int:
    """The long run."""
    with original() as (database, url):
        damaged = database.with_name("damaged")
        return run_rounds(
            __doc__, lambda seed, _: run_seed(seed, database, damaged, url), rounds=2_000
        )


if __name__ == "__main__":
    sys.exit(main())
