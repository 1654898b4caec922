"""What a second worker brings, where the provider takes its time: `python -m benchmarks.lake`.

The first sync of made-up wallets into a lake of its own, and one in which nothing changed, on one
worker and on two. Seconds are the run's own, and those of the whole command, which starts workers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.provider import static_provider, write_world


def run(lake: Path, url: str, ids: Path, workers: int, options: list[str]) -> tuple[float, float]:
    """One run; its own seconds, and those of the command."""
    command = [sys.executable, "-m", "nftsync", "lake", "sync", str(lake), "--json", *options]
    command += ["--base-url", url, "--wallets-file", str(ids), "--workers", str(workers)]
    began = time.monotonic()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    whole = time.monotonic() - began
    result = json.loads(done.stdout)
    if result["status"] != "ok":
        raise SystemExit(f"a run ended with status {result['status']}")
    return result["seconds"], whole


def main() -> None:
    """Measure, in turn, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wallets", type=int, default=3_000)
    parser.add_argument("--nfts", type=int, default=10)
    parser.add_argument("--latency-ms", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=2)
    given, options = parser.parse_known_args()
    seconds: defaultdict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ids = folder / "wallets.txt"
        ids.write_text("\n".join(write_world(folder, given.wallets, given.nfts)))
        with static_provider(folder, delay=given.latency_ms / 1000) as provider:
            for turn in range(given.rounds):
                for workers in (1, 2):
                    for what in ("first", "unchanged"):
                        lake = folder / f"lake-{turn}-{workers}"
                        ran = run(lake, provider.url, ids, workers, options)
                        seconds[what, workers].append(ran)
                        print(f"{what}, {workers}: {ran[0]:.2f} s, {ran[1]:.2f} s", flush=True)
    for what in ("first", "unchanged"):
        for place, of in enumerate(("run", "command")):
            one, two = (
                statistics.median(ran[place] for ran in seconds[what, workers])
                for workers in (1, 2)
            )
            print(f"{what} {of}: {one:.2f} s on one, {two:.2f} s on two: {one / two:.2f} times")


if __name__ == "__main__":
    main()
