"""A sync of wallets of which some always answer 500, in turn with one of the others alone.

    python -m benchmarks.failing

5,000 made-up wallets of 20 NFTs, 200 of which, spread over the list, have no answer but 500. Timed
is the call of `nftsync.sync` until the 4,800 others are stored.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.provider import body_file, static_provider, write_world
from benchmarks.scripts import Ran, ours_until_stored
from benchmarks.sync import middle, said, times

#: Such a wallet is not to cost the others much more than its own requests do.
MOST = 1.3


def in_turn(
    folder: Path, wallets: list[str], failing: set[str], rounds: int, retries: int
) -> list[list[Ran]]:
    """The others alone, and all of them: a run of each in every round."""
    alone, whole = folder / "alone.txt", folder / "all.txt"
    others = [wallet for wallet in wallets if wallet not in failing]
    alone.write_text("\n".join(others))
    whole.write_text("\n".join(wallets))
    found: list[list[Ran]] = [[], []]
    with static_provider(folder, missing=500) as provider:
        for turn in range(rounds):
            for runs, file in zip(found, (alone, whole), strict=True):
                database = folder / f"{file.stem}-{turn}.db"
                ran = ours_until_stored(provider.url, file, database, len(others), retries)
                said(f"{file.stem}: {ran.seconds:.2f} s, {ran.found['until_the_end']:.1f} s in all")
                runs.append(ran)
    return found


def figures(*, small: bool = False) -> list[Figure]:
    """Compare; about 3 minutes, with `small` some seconds."""
    count, bad, nfts, rounds, retries = (30, 2, 3, 1, 2) if small else (5_000, 200, 20, 3, 5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wallets = write_world(folder, count, nfts)
        failing = set(random.Random(1).sample(wallets, bad))
        for wallet in failing:
            body_file(folder, wallet).unlink()
        alone, whole = in_turn(folder, wallets, failing, rounds, retries)
    ratio = times(alone, whole)
    end = statistics.median(ran.found["until_the_end"] for ran in whole)
    return [
        Figure(
            f"first sync, {count:,} wallets x {nfts}, {bad} of which always answer 500, until the "
            "others are stored",
            f"{middle(whole):.2f} s; {end:.1f} s until those are given up",
            f"{ratio:.2f} times the time of the others alone ({middle(alone):.2f} s)",
            f"at most {MOST:g}",
            ratio <= MOST,
        )
    ]


if __name__ == "__main__":
    for figure in figures(small="--small" in sys.argv):
        print(figure)
