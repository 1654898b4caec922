"""First and unchanged syncs against a static provider: wallets a second, and peak memory."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.provider import static_provider, write_world

#: Runs a command and prints the peak memory (KiB) of it and of what it started.
MEASURE = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
sys.stderr.write(done.stderr)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps({"result": json.loads(done.stdout), "peak": peak}))
"""


def sync(base: str, ids: Path, database: Path, concurrency: int) -> tuple[float, float, int]:
    """One sync: wallets a second of the run, of the whole command, and its peak in KiB."""
    command = [
        *(sys.executable, "-c", MEASURE),
        *(sys.executable, "-m", "nftsync", "sync", "--json", "--base-url", base),
        *("--wallets-file", str(ids), "-d", str(database), "--concurrency", str(concurrency)),
    ]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    whole = time.perf_counter() - began
    found = json.loads(done.stdout)
    if found["result"]["status"] != "ok":
        raise SystemExit(f"the sync did not go well: {found['result']}"[:500])
    wallets = found["result"]["wallets"]["ok"]
    return wallets / found["result"]["seconds"], wallets / whole, found["peak"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wallets", type=int, default=5_000)
    parser.add_argument("--nfts", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=8)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ids = folder / "wallets.txt"
        ids.write_text("\n".join(write_world(folder, given.wallets, given.nfts)))
        found: dict[str, list[tuple[float, float, int]]] = {"first": [], "unchanged": []}
        with static_provider(folder) as (base, server):
            for turn in range(given.rounds):
                database = folder / f"{turn}.db"
                for kind in found:
                    found[kind].append(sync(base, ids, database, given.concurrency))
        print(f"{given.wallets:,} wallets x {given.nfts} NFTs from {server}, medians:")
        for kind, rounds in found.items():
            run, whole, peak = (statistics.median(column) for column in zip(*rounds, strict=True))
            print(
                f"  {kind:<10} {run:7.0f} wallets/s; {whole:7.0f} with the start of the command; "
                f"peak {peak / 1024:.0f} MB"
            )


if __name__ == "__main__":
    main()
