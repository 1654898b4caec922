"""The share of a mirror that a faulty provider removes: 100 wallets with ten NFTs each.

    make attacks
    python -m tests.nightly.attacks [--only TEXT]

The last scenarios are no faults: no removal may be held for review.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import chdir
from pathlib import Path

from tests.kit.provider import Provider
from tests.pull.attacks import ATTACKS, attacked


def main() -> None:
    """Print the removed share, and the number of removals held for review, of each scenario."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="scenarios whose name contains this text")
    only = parser.parse_args().only
    for name, attack in ATTACKS.items():
        if only not in name:
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, chdir(folder), Provider() as provider:
            os.environ["NFTSYNC_BASE_URL"] = provider.url
            site = attacked(provider, Path(folder, "mirror.db"), attack)
            lost, held = site.lost(attack.what), site.reviewed
        kind, seconds = "legit" if attack.most is None else "fault", time.monotonic() - began
        print(f"{kind}  {name:<64}{lost:>5.0%}{held:>6} held  ({seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
