"""Simulate power cuts of a `serve` under load, and check the remaining files.

    python -m tests.nightly.powercuts --seeds 20 --cuts 2000
    python -m tests.nightly.powercuts --seed 17 --cuts 2000     # one seed alone

A seed is a `serve`, recorded by strace, that receives webhooks on several connections, processes
them and makes its first sync. At each cut, the files are rebuilt as a disk may leave them that lost
unsynced writes: each webhook that was answered 200 must be stored, and the mirror consistent.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import get_args

import httpx

import nftsync
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.store.mirror import Mirror
from nftsync.store.rules import check_rules
from nftsync.store.schema import open_store
from nftsync.times import now
from tests.kit.serve_process import Serve, environment, post, query, webhook
from tests.kit.worlds import mirrored, replayed
from tests.nightly.recorded_disk import Disk, How, can_record, recording

#: Broken by a cut; the next sync or replay repairs it.
_UNDER_WAY = "no run, lease, webhook or message is stuck"


#: Checkpoints are frequent, so that some are cut.
_LAUNCH = """
import sys
from nftsync.receiver import committer
from nftsync.store import checkpoints, writer
from nftsync import whole_files
committer._CHECKPOINT_ROWS = 30
writer.Writer.__init__.__kwdefaults__["checkpoint_rows"] = 50
{mutation}
{code}
"""
_MAIN = "from nftsync.cli import main; main(sys.argv[1:])"

#: Bugs that the cuts must find.
MUTATIONS = {
    "": "",
    "webhooks are answered before they are synced": """
class Weaker(writer.Writer):
    def __init__(self, path, **options):
        super().__init__(path, **options | {"synchronous": "NORMAL"})
committer.Writer = Weaker
""",
    "the log begins anew before the database is synced": """
begin = checkpoints.Checkpoints.__init__
def weaker(self, path, writer, **options):
    begin(self, path, writer, **options)
    self._connection.execute("PRAGMA synchronous = OFF")
checkpoints.Checkpoints.__init__ = weaker
""",
    "files get their names before they are synced": """
whole_files.sync_to_disk = lambda path: None
""",
}


def recorded_serve(folder: Path, seed: int, webhooks: int, mutation: str = "") -> Disk:
    """Record a `serve` with a database in an empty folder until it has taken all webhooks."""
    data = folder / "data"
    data.mkdir()
    database = data / "nftsync.db"
    rng = random.Random(seed)
    with SandboxServer(
        lambda url: generate(wallets=12, nfts=3, seed=seed, image_base=url)
    ) as provider:
        wallets = provider.world.wallets()
        open_store(database).close()
        half = wallets[:6] if seed % 2 else wallets
        (folder / "wallets.csv").write_text("\n".join(["wallet_id", *half]))
        shutil.copytree(data, folder / "before")
        arguments = ["serve", "-d", database, "--port", 0, "--base-url", provider.url]
        arguments += ["--wallets-file", folder / "wallets.csv", "--sync-every", "1h"]
        process = subprocess.Popen(
            [*_launched(folder, mutation), *map(str, arguments)],
            env=environment(),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        server = Serve(process)
        try:
            _load(server, provider, rng, webhooks)
        finally:
            os.kill(_pid(folder / "trace"), signal.SIGTERM)
            server.wait()
    return Disk(data, folder / "before", folder / "trace")


def _launched(folder: Path, mutation: str, code: str = _MAIN) -> list[str]:
    code = _LAUNCH.format(mutation=MUTATIONS[mutation], code=code)
    return [*recording(folder / "trace"), sys.executable, "-c", code]


def _load(server: Serve, provider: SandboxServer, rng: random.Random, webhooks: int) -> None:
    wallets = provider.world.wallets()
    left = iter(range(webhooks))
    lock = threading.Lock()

    def run(mine: random.Random) -> None:
        with httpx.Client(trust_env=False, verify=False, timeout=60) as client:
            while True:
                with lock:
                    if next(left, None) is None:
                        return
                wallet = mine.choice(wallets)
                provider.world.mint(
                    wallet, mine.randrange(1, 9), {"name": "x" * mine.randrange(400)}
                )
                kind = "Wallet" if mine.random() < 0.9 else "Transaction"
                body = webhook(kind, wallet, changes={"padding": "y" * mine.randrange(300)})
                while post(server.url, body, client=client) != 200:
                    time.sleep(0.02)
                if mine.random() < 0.1:
                    post(server.url, body, client=client)

    threads = [threading.Thread(target=run, args=(random.Random(rng.random()),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def recorded(folder: Path, code: str, *arguments: object, mutation: str = "") -> Disk:
    """Record the changes that a program makes to `folder / "data"`."""
    data = folder / "data"
    shutil.copytree(data, folder / "before")
    call = [*_launched(folder, mutation, code), *map(str, arguments)]
    subprocess.run(call, env=environment(), check=True, capture_output=True)
    return Disk(data, folder / "before", folder / "trace")


def _pid(trace: Path) -> int:
    """Return the id of the program, which has the first calls."""
    with trace.open("rb") as file:
        return int(file.read(12).split(b" ", 1)[0])


def left_by(disk: Disk, at: int, how: How, rng: random.Random, folder: Path) -> Path:
    """Return the folder after a power cut."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path, content in disk.cut(at, how, rng).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def table(disk: Disk, at: int, how: How, rng: random.Random, folder: Path) -> str | None:
    """Cut the power of a `serve`, and open the database; return a fault or None."""
    database = left_by(disk, at, how, rng, folder) / "nftsync.db"
    if rng.random() < 0.5:  # it is never synced, so its content is random
        (folder / "nftsync.db-shm").write_bytes(rng.randbytes(32_768))
    answered = {
        str(json.loads(reply.request.partition(b"\r\n\r\n")[2])["id"])
        for reply in disk.replies
        if reply.at < at and reply.request.startswith(b"POST /webhooks ")
    }
    try:
        with Mirror(database) as mirror:
            mirror.index_tokens()  # an interrupted run leaves this to the next one
        stored = {row[0] for row in query(database, "SELECT webhook_id FROM webhooks")}
        if answered - stored:
            return f"{len(answered - stored)} of {len(answered)} webhooks answered 200 are lost"
        for rule in check_rules(database, now()):
            if rule.broken and rule.rule != _UNDER_WAY:
                return f"{rule.rule}: {rule.examples}"
        if mirrored(database) != replayed(database):
            return "the changes do not come to what is held"
    except (nftsync.NftsyncError, AssertionError) as error:
        return repr(error)
    return None


def run_seed(
    seed: int, webhooks: int, cuts: int, mutation: str = ""
) -> tuple[Counter[str], str | None]:
    """Cut a new recording at random moments; return figures and the first fault."""
    rng = random.Random(seed)
    figures: Counter[str] = Counter()
    fault = None
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name).resolve()
        disk = recorded_serve(folder, seed, webhooks, mutation)
        figures += Counter(recordings=1, answered=len(disk.replies), syncs=len(disk.syncs))
        after = [*disk.syncs, *(reply.at + 1 for reply in disk.replies)]
        for number in range(cuts):
            # Half of them after a sync or a response.
            at = rng.choice(after) if number % 2 else rng.randrange(disk.end + 1)
            how: How = rng.choice(get_args(How))
            fault = table(disk, at, how, rng, folder / "left")
            figures += Counter({"cuts": 1, how: 1})
            if fault is not None:
                fault = f"seed {seed}, cut {number} at {at} of {disk.end} ({how}): {fault}"
                break
    return figures, fault


def run_command(
    parser: argparse.ArgumentParser,
    run: Callable[[int, argparse.Namespace], tuple[Counter[str], str | None]],
    breaks: Mapping[str, Callable[[], tuple[Counter[str], str | None]]],
) -> int:
    """Cut the power in one seed after another, or in one alone.

    Args:
        parser: has the options of `run`, `--seeds` and `--mutation`.
        run: runs a seed with these options; returns figures and a fault or None.
        breaks: runs that must find a fault, as a check of the simulation.
    """
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    if not can_record():
        print("strace is not there or may not be used: nothing can be recorded")
        return 1
    if given.seed is None and not given.mutation:
        for mutation, run_broken in breaks.items():
            _, fault = run_broken()
            print(f"if {mutation}: {fault}", flush=True)
            if fault is None:
                return 1
    total: Counter[str] = Counter()
    for seed in range(given.seeds) if given.seed is None else [given.seed]:
        began = time.monotonic()
        figures, fault = run(seed, given)
        total += figures
        print(f"seed {seed}: {dict(figures)}, {time.monotonic() - began:.0f} s", flush=True)
        if fault is not None:
            print(f"FAULT: {fault}")
            return 1
    print(f"all held: {dict(total)}")
    return 0


def main() -> int:
    """The long run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cuts", type=int, default=2_000)
    parser.add_argument("--webhooks", type=int, default=400)
    parser.add_argument("--mutation", choices=MUTATIONS, default="")
    return run_command(
        parser,
        lambda seed, given: run_seed(seed, given.webhooks, given.cuts, given.mutation),
        {name: partial(run_seed, 0, 150, 500, name) for name in list(MUTATIONS)[1:3]},
    )


if __name__ == "__main__":
    sys.exit(main())
