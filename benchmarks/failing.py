"""First sync of 5,000 wallets, 200 of which always answer 500, and of the 4,800 others alone.

The two syncs alternate. Each time runs from the call of `nftsync.sync` until the 4,800 wallets are
stored.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from pathlib import Path

from benchmarks.commands import progress
from benchmarks.figure import Figure
from benchmarks.provider import body_file, static_provider, write_world
from benchmarks.scripts import ours_until_stored
from benchmarks.sync import median, ratio

MOST = 1.3


def figures(*, small: bool = False) -> list[Figure]:
    """Compare; about 3 minutes."""
    count, bad, nfts, rounds, retries = (30, 2, 3, 1, 2) if small else (5_000, 200, 20, 3, 5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone, whole = folder / "alone.txt", folder / "all.txt"
        wallets = write_world(folder, count, nfts)
        failing = set(random.Random(1).sample(wallets, bad))
        whole.write_text("\n".join(wallets))
        alone.write_text("\n".join(wallet for wallet in wallets if wallet not in failing))
        for wallet in failing:
            body_file(folder, wallet).unlink()
        runs = {alone: [], whole: []}
        with static_provider(folder, missing=500) as provider:
            for turn in range(rounds):
                for ids in runs:
                    database = folder / f"{ids.stem}-{turn}.db"
                    ran = ours_until_stored(provider.url, ids, database, count - bad, retries)
                    progress(f"{ids.stem}: {ran.seconds:.2f} s")
                    runs[ids].append(ran)
    times = ratio(runs[alone], runs[whole])
    end = statistics.median(ran.values["until_the_end"] for ran in runs[whole])
    return [
        Figure(
            f"first sync, {count:,} wallets x {nfts}, {bad} of which always answer 500, until the "
            "others are stored",
            f"{median(runs[whole]):.2f} s; {end:.1f} s until those are given up",
            f"{times:.2f} × the time of the others alone ({median(runs[alone]):.2f} s)",
            f"at most {MOST:g}",
            times <= MOST,
        )
    ]
