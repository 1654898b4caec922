"""Kill workers and drivers of a lake at random moments, and look what is left.

    python -m tests.nightly.chaos --kills 20
    python -m tests.nightly.chaos --kills 20 --seed 17     # one alone, that failed

The world changes between two kills; a reader looks at each run that is pinned meanwhile. In the end
a last run says what the provider says, and its change log, played from the start, says so too.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Self

from nftsync.cli import main as run_command
from nftsync.errors import NftsyncError
from nftsync.lake.ledger import Ledger
from nftsync.lake.storage import Lake
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from tests.kit.lake_cluster import Cluster, check_lake, cluster_of, driver, held, played
from tests.kit.worlds import PATIENCE, listed

WALLETS, NFTS, BUCKETS = 60, 4, 4
#: Seconds that a driver needs to come to its end, about.
_LONGEST = 10.0


class Reader:
    """Reads what is pinned, in a loop: each time whole runs alone."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.looks = 0
        self.runs: set[int] = set()
        self.fault: BaseException | None = None

    def _look(self) -> None:
        while not self._over.wait(0.5):
            try:
                run = Ledger(Lake(str(self._lake))).finished()
            except NftsyncError:
                continue  # none is there so far
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                if (self._lake / "runs").exists():
                    self.fault = error
                    return
                continue
            try:
                assert played(self._lake, run.versions) == held(self._lake, run.versions)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
                self.fault = error
                return
            self.looks += 1
            self.runs.add(run.run_id)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _change(world: World, rng: random.Random) -> None:
    """Let some tokens change hands, be made, and be called otherwise."""
    wallets = world.wallets()
    for (giver, token), amount in rng.sample(sorted(listed(world).items()), 6):
        world.transfer(giver, rng.choice([x for x in wallets if x != giver]), token, amount)
    world.mint(rng.choice(wallets), rng.randrange(1, 9), {"name": f"Minted {rng.random()}"})
    _, token = rng.choice(sorted(listed(world)))
    world.edit_metadata(token, {"name": f"Renamed {rng.random()}"})


def _is_writing(lake: Path) -> bool:
    """Whether all has been read, and the tables are being written."""
    runs = Ledger(Lake(str(lake))).runs() if (lake / "runs").exists() else []
    return bool(runs) and runs[-1].status == "running" and runs[-1].applied_at is not None


def _hit(
    process: subprocess.Popen[str], cluster: Cluster, rng: random.Random, figures: Counter[str]
) -> None:
    """Kill the driver, or a worker in whose place another is started, or both."""
    whom = rng.choice(["worker", "driver", "both"])
    figures.update(kills=1, **{whom: 1})
    if whom != "driver":
        place = rng.randrange(len(cluster.workers))
        cluster.workers[place].kill()
        cluster.workers[place].wait()
        cluster.workers[place] = cluster.start_worker()
    if whom != "worker":
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def sync_here(*arguments: object) -> tuple[object, str]:
    """`nftsync lake sync` in this process: its exit code, and what it printed."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            run_command(["lake", "sync", *map(str, arguments)])
        except SystemExit as ended:
            return ended.code, said.getvalue()
    raise AssertionError("a command ends with a code")


def run_seed(seed: int, kills: int, folder: Path, cluster: Cluster) -> Counter[str]:
    """Kill so many times; what was counted.

    Raises:
        AssertionError: something is wrong in what is left.
    """
    # Who is killed does not hang on how often a run had ended before.
    rng, hits, resumes = (random.Random(seed) for _ in range(3))
    figures: Counter[str] = Counter()
    lake = folder / "lake"
    with (
        SandboxServer(
            lambda url: generate(wallets=WALLETS, nfts=NFTS, seed=seed, image_base=url),
            latency=0.02,
        ) as provider,
        Reader(lake) as reader,
    ):
        (folder / "wallets.txt").write_text("\n".join(provider.world.wallets()))
        arguments = [lake, "--wallets-file", folder / "wallets.txt", "--takeover-after", "1s"]
        arguments += ["--base-url", provider.url, "--scheduler", cluster.address]
        arguments += ["--buckets", BUCKETS, "--concurrency", 2, "--allow-removals"]
        while figures["kills"] < kills:
            resume = ["--resume"] * resumes.randrange(2)
            process = driver(*arguments, *resume, folder=folder)
            while figures["kills"] < kills:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(rng.uniform(0.5, _LONGEST))
                if process.poll() is not None:
                    break
                figures["writing"] += _is_writing(lake)
                _hit(process, cluster, hits, figures)
            out, err = process.communicate(timeout=PATIENCE)
            assert process.returncode in {0, -signal.SIGKILL}, err
            figures["ended"] += process.returncode == 0
            figures["resumed"] += '"resumed"' in out
            _change(provider.world, rng)
        for _ in range(2):
            code, said = sync_here(*arguments)
            assert code == 0, said
        assert held(lake) == listed(provider.world)
        check_lake(lake)
    if reader.fault is not None:
        raise reader.fault
    runs = Ledger(Lake(str(lake))).runs()
    figures.update(runs=len(runs), attempts=sum(run.attempt for run in runs))
    figures.update(looks=reader.looks, seen=len(reader.runs))
    return figures


def main() -> int:
    """The long run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    for seed in range(given.seeds) if given.seed is None else [given.seed]:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, cluster_of(Path(folder), 2) as cluster:
            try:
                figures = run_seed(seed, given.kills, Path(folder), cluster)
            except AssertionError as error:
                print(f"FAULT: seed {seed}: {error}")
                return 1
        print(f"seed {seed}: {dict(figures)}, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
