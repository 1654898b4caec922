"""Flip bits of a database, and have each command meet it: one line, never a traceback.

    python -m tests.nightly.flips --seeds 2000
    python -m tests.nightly.flips --seed 17          # one alone

Ids and times in the file differ each time, so what failed is kept, damaged as it was.
`nftsync check` must find each damage that SQLite's integrity_check finds.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import closing
from pathlib import Path

import nftsync
from nftsync.cli import main as run_command
from nftsync.provider.webhooks import read_webhook
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.store.inbox import Delivery, store
from nftsync.store.schema import open_store
from nftsync.times import now
from tests.kit.serve_process import webhook

COMMANDS = (
    *(("check",), ("status",), ("holdings",), ("changes",), ("wallets",), ("collections",)),
    *(("inbox",), ("find", "a"), ("verify", "--sample", "0"), ("replay",), ("sync", "--tokens")),
    *(("snapshot", "copy.db"), ("backup", "backups"), ("export", "tables", "--format", "csv")),
    *(("inbox", "prune", "--older-than", "1s"), ("inbox", "requeue", "--state", "done")),
)


def made_database(database: Path, provider: SandboxServer) -> None:
    """A database with everything in it: balances, tokens, changes, webhooks of each kind."""
    wallets = provider.world.wallets()
    nftsync.sync(wallets, base_url=provider.url, database=database, progress=False, tokens=True)
    for wallet in wallets:
        provider.world.mint(wallet, 1, {"name": "new"})
    nftsync.sync(wallets, base_url=provider.url, database=database, progress=False)
    with closing(open_store(database)) as connection:
        bodies = [webhook("Wallet", wallets[number % 4]) for number in range(40)]
        deliveries = [Delivery(body, read_webhook(body, None)) for body in bodies]
        connection.execute("BEGIN IMMEDIATE")
        store(connection, deliveries, now())
        connection.execute(
            "UPDATE webhooks SET state = 'done', finished_at = received_at WHERE webhook_no % 2"
        )
        connection.execute("COMMIT")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def flip(database: Path, rng: random.Random) -> str:
    """Damage a file, and say how."""
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


def meet(folder: Path, url: str) -> tuple[Counter[str], str | None]:
    """Run each command on `nftsync.db` in a folder: what it came to, and what is wrong."""
    database = folder / "nftsync.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.text_factory = lambda text: text.decode(errors="replace")
        try:
            report = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        except (sqlite3.Error, UnicodeDecodeError) as error:
            report = str(error)
    figures = Counter(damaged=report != "ok")
    for words in COMMANDS:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                run_command([*words, "-d", str(database), *_more(words[0], url)])
            except SystemExit as ended:
                code = ended.code
            except Exception:  # noqa: BLE001 - that is what is looked for
                return figures, f"{words}: {traceback.format_exc()}"
        figures[f"exit {code}"] += 1
        if "Traceback" in said.getvalue():
            return figures, f"{words}: {said.getvalue()}"
        if words == ("check",) and report != "ok" and "FAILED   database" not in said.getvalue():
            return figures, f"check calls it whole, integrity_check says {report}"
    return figures, None


def _more(name: str, url: str) -> list[str]:
    return ["--base-url", url] if name in {"check", "verify", "replay", "sync"} else []


def run_seed(seed: int, original: Path, folder: Path, url: str) -> tuple[Counter[str], str | None]:
    """Damage a copy; see `meet`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(original, folder / "nftsync.db")
    how = flip(folder / "nftsync.db", random.Random(seed))
    before = Path.cwd()
    os.chdir(folder)
    try:
        figures, fault = meet(folder, url)
    finally:
        os.chdir(before)
    return figures, fault and f"seed {seed}, {how}: {fault}"


def main() -> int:
    """The long run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    total: Counter[str] = Counter()
    faults = []
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as name,
        SandboxServer(lambda url: generate(wallets=4, nfts=30, seed=3, image_base=url)) as provider,
    ):
        made_database(Path(name) / "nftsync.db", provider)
        seeds = range(given.seeds) if given.seed is None else [given.seed]
        for seed in seeds:
            figures, fault = run_seed(
                seed, Path(name) / "nftsync.db", Path(name) / "damaged", provider.url
            )
            total += figures
            if fault is not None:
                faults.append(fault)
                kept = Path(tempfile.gettempdir()) / f"flipped-{seed}.db"
                shutil.copy(Path(name) / "nftsync.db", kept)
                fault += f"\nkept at {kept}, {flip(kept, random.Random(seed))}"
                print(f"FAULT: {fault}", flush=True)
    print(
        f"{len(seeds)} seeds, {len(faults)} faults, {time.monotonic() - began:.0f} s: {dict(total)}"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
