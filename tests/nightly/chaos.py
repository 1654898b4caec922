"""Kill workers and drivers of a lake at random times, and check the lake.

The world changes between two kills, and a reader reads the pinned runs. In the end, the last run
and its published table equal the provider's lists, and its changes add up to them.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from nftsync.errors import NftsyncError
from nftsync.lake.pinned import pinned
from tests.kit import lakes
from tests.kit.lake_cluster import Cluster, cluster_of, sync_words
from tests.kit.processes import ended, start
from tests.kit.worlds import listed
from tests.kit.worlds import run_command as command
from tests.nightly.rounds import edit, run_seeds, sandbox

BUCKETS = 4
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
    while not over.wait(2):
        try:
            run = pinned(lake).run.run_id
        except NftsyncError:
            continue  # no run has ended yet
        assert lakes.played(lake, run) == lakes.held(lake, run)
        reads[run] += 1
    return reads


def _await(process: subprocess.Popen[str], lake: Path, moment: str, rng: random.Random) -> None:
    """Wait until a run reaches a moment, for some time, or until it ends."""
    if moment not in MOMENTS:
        with suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0.5, _LONGEST))
        return
    before = {*lake.glob(MOMENTS[moment])}
    least = rng.randint(1, BUCKETS - 1) if moment == "stored" else 1
    while process.poll() is None and len({*lake.glob(MOMENTS[moment])} - before) < least:
        time.sleep(0.001)


def run_seed(seed: int, folder: Path, cluster: Cluster, *, kills: int, at: str) -> Counter[str]:
    """Kill some times, in turn at each of the moments, which `at` names; return counts."""
    rng, figures = random.Random(seed), Counter[str]()
    lake, over, moments = folder / "lake", threading.Event(), at.split()
    with (
        sandbox(60, 4, seed, latency=0.02) as provider,
        ThreadPoolExecutor(1) as threads,
        ExitStack() as stack,
    ):
        reader = threads.submit(_read, lake, over)
        stack.callback(over.set)
        words = sync_words(lake, provider.world.wallets(), provider.url, cluster, BUCKETS)
        words += ["--allow-removals", "--concurrency", 2, "--takeover-after", "1s"]
        while figures["kills"] < kills:
            resume = ["--resume"] * rng.randrange(2)
            process = start(*words, *resume, folder=folder)
            while figures["kills"] < kills:
                moment = moments[figures["kills"] % len(moments)]
                _await(process, lake, moment, rng)
                if process.poll() is not None:
                    break
                # Workers have no work after they have stored all files.
                victims = ["driver", "both", *["worker"] * (moment in {"any", "stored"})]
                victim = rng.choice(victims)
                figures.update({"kills": 1, moment: 1, victim: 1})
                if victim != "worker":  # first, because a moment is short
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                if victim != "driver":
                    cluster.kill(cluster.workers[rng.randrange(2)])
                    cluster.start_worker()
            outcome = ended(process)
            assert outcome.code in {0, -signal.SIGKILL}, outcome.err
            figures["ended"] += outcome.code == 0
            figures["resumed"] += '"resumed"' in outcome.out
            for _ in range(8):
                edit(provider, rng)
        for _ in range(2):
            command(*words).says()
        assert lakes.held(lake) == lakes.published(lake) == listed(provider.world)
        lakes.check_lake(lake)
    attempts = sum(run.attempt for run in lakes.runs_of(lake))
    figures.update(runs=len(lakes.runs_of(lake)), attempts=attempts, reads=reader.result().total())
    return figures


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, cluster_of(Path(name), 2) as cluster:
        run_seeds(__doc__, partial(run_seed, cluster=cluster), kills=20, at="any")
