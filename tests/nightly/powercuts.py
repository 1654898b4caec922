"""Simulate power cuts of a `serve` under load, and check the remaining files.

A seed is a `serve`, recorded by strace, that receives webhooks on several connections, processes
them and makes its first sync. At each cut, the files are rebuilt as a disk may leave them that lost
unsynced writes: each webhook that was answered 200 must be stored, and the mirror consistent.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from nftsync.errors import NftsyncError
from nftsync.store.mirror import Mirror
from nftsync.store.rules import check_rules
from nftsync.store.schema import open_store
from nftsync.times import now
from tests.kit.serve_process import Serve, environment, post, query, webhook
from tests.kit.worlds import mirrored, replayed
from tests.nightly.recorded_disk import Cut, Disk, recording
from tests.nightly.rounds import MEMORY, run_seeds, sandbox

#: Broken by a cut; the next sync or replay repairs it.
_UNDER_WAY = "no run, lease, webhook or message is stuck"
#: Checkpoints are frequent, so that some are cut.
_LAUNCH = """
import sys
from nftsync.cli import main
from nftsync.receiver import committer
from nftsync.store import checkpoints, writer
from nftsync import whole_files
committer._CHECKPOINT_ROWS = 30
writer.Writer.__init__.__kwdefaults__["checkpoint_rows"] = 50
"""
#: Bugs that the cuts must find.
ANSWERED_TOO_EARLY = """
class Weaker(writer.Writer):
    def __init__(self, path, **options):
        super().__init__(path, **options | {"synchronous": "NORMAL"})
committer.Writer = Weaker
"""
LOG_RESTARTED_TOO_EARLY = """
begin = checkpoints.Checkpoints.__init__
def weaker(self, path, writer, **options):
    begin(self, path, writer, **options)
    self._connection.execute("PRAGMA synchronous = OFF")
checkpoints.Checkpoints.__init__ = weaker
"""
RENAMED_TOO_EARLY = "whole_files.sync_to_disk = lambda path: None"


def recorded(folder: Path, code: str, *arguments: object) -> Disk:
    """Record the changes that a program makes to `folder / "data"`."""
    call = [*recording(folder), sys.executable, "-c", _LAUNCH + code, *map(str, arguments)]
    subprocess.run(call, env=environment(), check=True, capture_output=True)
    return Disk(folder)


def recorded_serve(folder: Path, seed: int, webhooks: int, bug: str = "") -> Disk:
    """Record a `serve` with a database in an empty folder until it has taken all webhooks."""
    (data := folder / "data").mkdir(parents=True)
    open_store(data / "nftsync.db").close()
    with sandbox(12, 3, seed) as provider, ThreadPoolExecutor(4) as threads:
        wallets = provider.world.wallets()
        some = wallets[:6] if seed % 2 else wallets
        (folder / "wallets.csv").write_text("\n".join(["wallet_id", *some]))
        words = ["serve", "-d", data / "nftsync.db", "--port", 0, "--base-url", provider.url]
        words += ["--wallets-file", folder / "wallets.csv", "--sync-every", "1h"]
        code = _LAUNCH + bug + "\nmain(sys.argv[1:])"
        process = subprocess.Popen(
            [*recording(folder), sys.executable, "-c", code, *map(str, words)],
            cwd=folder,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        server, client = Serve(process), httpx.Client(trust_env=False, verify=False, timeout=60)

        def send(number: int) -> None:
            rng = random.Random(f"{seed} {number}")
            wallet = rng.choice(wallets)
            name = {"name": "x" * rng.randrange(400)}
            provider.world.mint(wallet, rng.randrange(1, 9), name)
            kind = "Wallet" if rng.random() < 0.9 else "Transaction"
            body = webhook(kind, wallet, changes={"padding": "y" * rng.randrange(300)})
            while post(server.url, body, client=client) != 200:
                time.sleep(0.02)
            if rng.random() < 0.1:
                post(server.url, body, client=client)

        with client:
            try:
                list(threads.map(send, range(webhooks)))
            finally:
                with (folder / "trace").open() as trace:  # its first line is a call of the program
                    os.kill(int(trace.readline().split()[0]), signal.SIGTERM)
                server.wait()
    return Disk(folder)


def run_seed(seed: int, *, webhooks: int, cuts: int, bug: str = "") -> Counter[str]:
    rng = random.Random(seed)

    def check(cut: Cut) -> None:
        database = cut.left / "nftsync.db"
        if rng.random() < 0.5:  # it is never synced, so its content is random
            database.with_name("nftsync.db-shm").write_bytes(rng.randbytes(32_768))
        try:
            with Mirror(database) as mirror:
                mirror.index_tokens()  # an interrupted run leaves this to the next one
        except NftsyncError as error:
            raise AssertionError(repr(error)) from error
        answered = {webhook_id for at, webhook_id in bodies if at < cut.at}
        stored = {row[0] for row in query(database, "SELECT webhook_id FROM webhooks")}
        assert answered <= stored, f"{len(answered - stored)} webhooks answered 200 are lost"
        broken = [rule for rule in check_rules(database, now()) if rule.broken]
        assert [rule for rule in broken if rule.rule != _UNDER_WAY] == []
        assert mirrored(database) == replayed(database)

    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name).resolve()
        disk = recorded_serve(folder, seed, webhooks, bug)
        bodies = [
            (at, str(json.loads(request.partition(b"\r\n\r\n")[2])["id"]))
            for at, request in disk.replies
            if request.startswith(b"POST /webhooks ")
        ]
        figures = disk.check_cuts(check, cuts, rng, folder, *(at + 1 for at, _ in bodies))
    return figures + Counter(answered=len(bodies))


def checked_seed(seed: int, _: Path, **options: int) -> Counter[str]:
    """Check first, once, that the cuts find bugs: else cuts without any loss would pass."""
    for bug in (ANSWERED_TOO_EARLY, LOG_RESTARTED_TOO_EARLY) if seed == 0 else ():
        with pytest.raises(AssertionError):
            run_seed(0, webhooks=150, cuts=500, bug=bug)
    return run_seed(seed, **options)


if __name__ == "__main__":
    run_seeds(__doc__, checked_seed, seeds=20, webhooks=400, cuts=2_000)
