"""Compare two checkouts of nftsync, each with its own `.venv`, in alternating runs.

python -m benchmarks.pairs OLD NEW --pairs 7
python -m benchmarks.pairs OLD NEW --only sync replay    # some trials
python -m benchmarks.pairs OLD NEW --small --pairs 1     # tiny sizes, to check that it works

The trials use only commands, HTTP and `nftsync.sync`, so OLD may have other modules.
Each line shows both medians, the median of the pairs' ratios NEW / OLD, and their range.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from functools import cached_property
from pathlib import Path

from benchmarks import commands, receiver
from benchmarks.provider import change_amount, static_provider, write_world
from benchmarks.scripts import ours

TRIALS = ("sync", "memory", "receiver", "replay", "startup", "row", "answers")
Values = dict[str, float]


class Checkout:
    """A checkout and its databases; each trial is a method. Both checkouts share a provider."""

    def __init__(self, root: Path, world: Path, url: str, wallets: list[str]) -> None:
        self.python = str(root.absolute() / ".venv/bin/python")
        self.url, self.world, self.wallets, self.ids = url, world, wallets, world / "ids.txt"
        self.small = len(wallets) < 1_000
        where = [self.python, "-P", "-c", "import nftsync; print(nftsync.__path__[0])"]
        assert Path(subprocess.check_output(where, text=True).strip()).parent == root.resolve()
        self.folder = Path(tempfile.mkdtemp(dir=world))
        (ten := self.folder / "ten.txt").write_text("\n".join(wallets[:10]))
        ours(url, ten, self.folder / "tiny.db", python=self.python)

    @cached_property
    def synced(self) -> Path:
        ours(self.url, self.ids, database := self.new(), python=self.python)
        return database

    def new(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder), "nftsync.db")

    def serving(self, database: Path, *options: str) -> commands.Serving:
        return commands.serving(self.url, database, *options, python=self.python)

    def change(self, count: int) -> list[str]:
        """Let the provider change a balance of some wallets."""
        chance = random.Random()
        wallets = chance.sample(self.wallets, min(count, len(self.wallets)))
        for wallet in wallets:
            change_amount(self.world, wallet, chance)
        return wallets

    def sync(self) -> Values:
        self.synced = self.new()
        runs = [ours(self.url, self.ids, self.synced, python=self.python) for _ in range(2)]
        return {"first sync, s": runs[0].seconds, "unchanged sync, s": runs[1].seconds}

    def memory(self) -> Values:
        ran = ours(self.url, self.ids, self.new(), memory=True, python=self.python)
        return {"peak memory of a first sync, MB": ran.peak / 1e6}

    def receiver(self) -> Values:
        values = receiver.measure(self.new(), 200 if self.small else 10_000, self.python)
        return {"receiver, webhooks/s": values["rate"], "receiver, p99 ms": values["p99"]}

    def replay(self) -> Values:
        database = commands.copied(self.synced, self.new())
        bodies = [commands.webhook("Wallet", wallet) for wallet in 2 * self.change(2_000)]
        with self.serving(database, "--no-replay") as url:
            commands.post_all(url, bodies)
        replay = ("replay", "--base-url", self.url, "-d", database)
        values = commands.result(*replay, python=self.python)
        return {"replay, reads/s": values["fetches"] / values["seconds"]}

    def startup(self) -> Values:
        values, database = {}, ["-d", str(self.folder / "tiny.db")]
        for words in (["--help"], ["status", *database], ["holdings", *database]):
            command, seconds = commands.program(*words, python=self.python), []
            for _ in range(5):
                began = time.perf_counter()
                subprocess.run(command, env=commands.environment(), capture_output=True, check=True)
                seconds.append(time.perf_counter() - began)
            values[f"nftsync {words[0]}, ms"] = 1000 * statistics.median(seconds)
        return values

    def row(self) -> Values:
        database = commands.copied(self.synced, self.new())
        with self.serving(database) as url:
            changes = (self.change(1)[0] for _ in range(10 if self.small else 200))
            waits = sorted(commands.seconds_to_row(url, database, wallet) for wallet in changes)
        return {
            "webhook to row, p50 ms": 1000 * statistics.median(waits),
            "webhook to row, p99 ms": 1000 * waits[len(waits) * 99 // 100],
        }

    def answers(self) -> Values:
        database, python = self.new(), {"python": self.python}
        bodies = [commands.webhook("Wallet", one) for one in random.choices(self.wallets, k=200)]
        with self.serving(database) as url:
            sync = threading.Thread(target=ours, args=(self.url, self.ids, database), kwargs=python)
            sync.start()
            waits = commands.post_all(url, bodies, 50)
            sync.join()
        return {"slowest of 200 answers during a first sync, ms": 1000 * max(waits)}


def compare(old: Checkout, new: Checkout, pairs: int, trials: list[str]) -> None:
    """Run the trials in turn, and print a line for each value."""
    values: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for turn in range(pairs):
        for trial in trials:
            order = [(old, new), (new, old)][turn % 2]
            results = {checkout: getattr(checkout, trial)() for checkout in order}
            for metric in results[old]:
                values[metric].append((results[old][metric], results[new][metric]))
                commands.progress(f"{metric}: {values[metric][-1]}")
    print(f"{'':48}{'OLD':>9}{'NEW':>9}{'NEW/OLD':>9}   range")
    for metric, rows in values.items():
        ratios = sorted(second / first for first, second in rows)
        medians = "".join(f"{statistics.median(column):9.4g}" for column in zip(*rows, strict=True))
        spread = f"{ratios[0]:.3f} to {ratios[-1]:.3f}"
        print(f"{metric:48}{medians}{statistics.median(ratios):9.3f}   {spread}")
    print(f"{pairs} pairs; load average {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("roots", nargs=2, type=Path, metavar="CHECKOUT")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=TRIALS, default=TRIALS)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        world = Path(name)
        wallets = write_world(world, 60 if options.small else 5_000, 20)
        (world / "ids.txt").write_text("\n".join(wallets))
        with static_provider(world, changing=True) as provider:
            pair = [Checkout(root, world, provider.url, wallets) for root in options.roots]
            compare(*pair, options.pairs, options.only)


if __name__ == "__main__":
    main()
