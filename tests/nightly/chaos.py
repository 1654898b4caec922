"""Kill workers and drivers of a lake at random times, and check the lake.

    python -m tests.nightly.chaos --kills 20
    python -m tests.nightly.chaos --kills 20 --seed 17     # only one seed
    python -m tests.nightly.chaos --kills 20 --at listed   # between its tables and its pin

The world changes between two kills, and a reader reads the pinned runs. In the end, the last run
and its published table equal the provider's lists, and its changes add up to them.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

from nftsync.errors import NftsyncError
from nftsync.lake.pinned import pinned
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from tests.kit.lake_cluster import (
    Cluster,
    check_lake,
    cluster_of,
    command,
    ended,
    held,
    played,
    published,
    runs_of,
    start,
)
from tests.kit.worlds import listed

WALLETS, NFTS, BUCKETS = 60, 4, 4
#: About the seconds that a driver needs.
_LONGEST = 10.0
#: Moments of a run, by the files that it has then just written.
MOMENTS = {
    "stored": "buckets/*.zst",
    "published": "balances/_delta_log/*.json",
    "listed": "manifests/*.zst",
}


def _read(lake: Path, over: threading.Event) -> Counter[int]:
    """Read the pinned run again and again; return the number of reads of each run."""
    reads: Counter[int] = Counter()
    while not over.wait(0.5):
        try:
            run = pinned(lake).run.run_id
        except NftsyncError:
            continue  # no run has ended yet
        assert played(lake, run) == held(lake, run)
        reads[run] += 1
    return reads


def _change(world: World, rng: random.Random) -> None:
    """Transfer, mint and rename some tokens."""
    wallets = world.wallets()
    for (giver, token), amount in rng.sample(sorted(listed(world).items()), 6):
        world.transfer(giver, rng.choice([x for x in wallets if x != giver]), token, amount)
    world.mint(rng.choice(wallets), rng.randrange(1, 9), {"name": f"Minted {rng.random()}"})
    _, token = rng.choice(sorted(listed(world)))
    world.edit_metadata(token, {"name": f"Renamed {rng.random()}"})


def _await(process: subprocess.Popen[str], lake: Path, moment: str, rng: random.Random) -> None:
    """Wait until a run reaches a moment, for some time, or until it ends."""
    if moment not in MOMENTS:
        with suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0.5, _LONGEST))
        return
    before, least = {*lake.glob(MOMENTS[moment])}, rng.randint(1, BUCKETS - 1)
    least = least if moment == "stored" else 1
    while process.poll() is None and len({*lake.glob(MOMENTS[moment])} - before) < least:
        time.sleep(0.001)


def _kill(
    process: subprocess.Popen[str], cluster: Cluster, victim: str, rng: random.Random
) -> None:
    """Kill the driver, or a worker, in whose place another starts, or both."""
    if victim != "worker":  # first, because a moment is short
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if victim != "driver":
        place = rng.randrange(len(cluster.workers))
        cluster.workers[place].kill()
        cluster.workers[place].wait()
        cluster.workers[place] = cluster.start_worker()


def run_seed(
    seed: int, kills: int, folder: Path, cluster: Cluster, moments: Sequence[str] = ("any",)
) -> Counter[str]:
    """Kill some times, at each of the moments in turn; return counts.

    Raises:
        AssertionError: the lake is wrong.
    """
    # The victims do not depend on the number of ended runs.
    rng, hits, resumes = (random.Random(seed) for _ in range(3))
    figures: Counter[str] = Counter()
    lake, over = folder / "lake", threading.Event()
    with (
        SandboxServer(
            lambda url: generate(wallets=WALLETS, nfts=NFTS, seed=seed, image_base=url),
            latency=0.02,
        ) as provider,
        ThreadPoolExecutor(1) as threads,
        ExitStack() as stack,
    ):
        reader = threads.submit(_read, lake, over)
        stack.callback(over.set)
        (folder / "wallets.txt").write_text("\n".join(provider.world.wallets()))
        words = ["lake", "sync", lake, "--wallets-file", folder / "wallets.txt"]
        words += ["--base-url", provider.url, "--scheduler", cluster.address, "--allow-removals"]
        words += ["--buckets", BUCKETS, "--concurrency", 2, "--takeover-after", "1s"]
        while figures["kills"] < kills:
            resume = ["--resume"] * resumes.randrange(2)
            process = start(*words, *resume, folder=folder)
            while figures["kills"] < kills:
                moment = moments[figures["kills"] % len(moments)]
                _await(process, lake, moment, rng)
                if process.poll() is not None:
                    break
                # Workers have no work after they have stored all files.
                victims = ["driver", "both", *["worker"] * (moment in {"any", "stored"})]
                victim = hits.choice(victims)
                figures.update({"kills": 1, moment: 1, victim: 1})
                _kill(process, cluster, victim, hits)
            outcome = ended(process)
            assert outcome.code in {0, -signal.SIGKILL}, outcome.err
            figures["ended"] += outcome.code == 0
            figures["resumed"] += '"resumed"' in outcome.out
            _change(provider.world, rng)
        for _ in range(2):
            command(*words).says()
        assert held(lake) == published(lake) == listed(provider.world)
        check_lake(lake)
    runs = runs_of(lake)
    figures.update(runs=len(runs), attempts=sum(run.attempt for run in runs))
    figures.update(looks=reader.result().total(), seen=len(reader.result()))
    return figures


def main() -> int:
    """Run some seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--at", choices=["any", *MOMENTS], default="any")
    given = parser.parse_args()
    for seed in range(given.seeds) if given.seed is None else [given.seed]:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, cluster_of(Path(folder), 2) as cluster:
            try:
                figures = run_seed(seed, given.kills, Path(folder), cluster, [given.at])
            except AssertionError as error:
                print(f"FAULT: seed {seed}: {error}")
                return 1
        print(f"seed {seed}: {dict(figures)}, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
