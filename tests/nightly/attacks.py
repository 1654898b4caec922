"""The share of a mirror that a faulty provider removes: 100 wallets with ten NFTs each.

A seed is a scenario. The last scenarios have no fault: no removal may be held for review.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import chdir
from pathlib import Path

from tests.kit.provider import Provider
from tests.nightly.rounds import run_seeds
from tests.pull.attacks import ATTACKS, attacked


def run_seed(seed: int, folder: Path) -> Counter[str]:
    """Print the removed share, and the number of removals held for review, of a scenario."""
    name, attack = [*ATTACKS.items()][seed]
    with chdir(folder), Provider() as provider:
        os.environ["NFTSYNC_BASE_URL"] = provider.url
        site = attacked(provider, folder / "mirror.db", attack)
        kind = "legit" if attack.most is None else "fault"
        print(
            f"{kind}  {name:<64}{site.lost(attack.what):>5.0%}{site.reviewed:>6} held", flush=True
        )
    return Counter()


if __name__ == "__main__":
    run_seeds(__doc__, run_seed, seeds=len(ATTACKS))
