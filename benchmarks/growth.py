"""Syncs and refreshes of databases with 100,000 to 5,000,000 balances: does size slow them down?

At each size, in turn and each time on a fresh copy: a sync of 5,000 known wallets with 1 % changed
balances, and a first sync of 5,000 new wallets, 20 NFTs each. Then two `serve` processes, on the
smallest and the largest database, each follow the same webhooks, one wallet at a time.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.commands import progress, seconds_to_row, serving
from benchmarks.figure import Figure
from benchmarks.filled import multiply
from benchmarks.provider import change_amount, static_provider, write_world
from benchmarks.scripts import ours


class Worlds:
    """The provider's files: known wallets before and after a change, and new wallets."""

    def __init__(self, folder: Path, wallets: int, nfts: int) -> None:
        self.known, self.changed, self.new = (folder / name for name in ("known", "changed", "new"))
        self.ids = folder / "known.txt"
        self.new_ids = folder / "new.txt"
        self.wallets = write_world(self.known, wallets, nfts, seed=1)
        self.ids.write_text("\n".join(self.wallets))
        self.new_ids.write_text("\n".join(write_world(self.new, wallets, nfts, seed=2)))
        shutil.copytree(self.known, self.changed)
        chance = random.Random(5)
        for wallet in chance.choices(self.wallets, k=wallets * nfts // 100):
            change_amount(self.changed, wallet, chance)


def measure(worlds: Worlds, database: Path, folder: Path) -> dict[str, float]:
    """Seconds of both syncs on a copy of a database."""
    copy = folder / "copy.db"
    seconds = {}
    shutil.copyfile(database, copy)
    with copy.open("rb+") as copied:
        os.fsync(copied)  # or the first sync would pay for writing the copy to the disk
    with static_provider(worlds.changed) as provider:
        seconds["1 % changed"] = ours(provider.url, worlds.ids, copy).seconds
    with static_provider(worlds.new) as provider:
        seconds["first"] = ours(provider.url, worlds.new_ids, copy).seconds
    for file in folder.glob("copy.db*"):
        file.unlink()
    return seconds


def refreshes(worlds: Worlds, databases: list[Path], count: int) -> list[float]:
    """Medians of the seconds from a webhook's 200 to the changed row, for each database."""
    chance = random.Random(6)
    with (
        static_provider(worlds.known, changing=True) as provider,
        serving(provider.url, databases[0]) as one,
        serving(provider.url, databases[1]) as other,
    ):
        waits: list[list[float]] = [[], []]
        for wallet in chance.sample(worlds.wallets, count + 5):
            change_amount(worlds.known, wallet, chance)
            for times, url, database in zip(waits, (one, other), databases, strict=True):
                times.append(seconds_to_row(url, database, wallet))
    return [statistics.median(times[5:]) for times in waits]  # both are warm by then


def growth(what: str, found: dict[int, list[float]], balances: int, most: float) -> Figure:
    per = 100_000 / balances
    middles = {size: per * statistics.median(times) for size, times in found.items()}
    ratio = max(middles.values()) / min(middles.values())
    each = "; ".join(f"{seconds:.2f} at {size:,}" for size, seconds in middles.items())
    return Figure(
        f"seconds per 100,000 balances, {what}",
        each,
        f"{ratio:.2f} × from the lowest to the highest",
        f"under {most:g}",
        ratio < most,
    )


def figures(*, small: bool = False) -> list[Figure]:
    """Grow and measure; about 5 minutes and 8 GB of disk, with `small` a few seconds."""
    wallets, nfts, rounds, count = (60, 4, 1, 3) if small else (5_000, 20, 3, 50)
    copies = (1, 2) if small else (1, 10, 50)
    balances = wallets * nfts
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        worlds = Worlds(folder, wallets, nfts)
        original = folder / "original.db"
        with static_provider(worlds.known) as provider:
            ours(provider.url, worlds.ids, original)
        databases = {copy * balances: folder / f"{copy}.db" for copy in copies}
        for copy, database in zip(copies, databases.values(), strict=True):
            multiply(original, database, copy)
            progress(f"made a database of {copy * balances:,} balances")
        seconds: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for _ in range(rounds):
            for size, database in databases.items():
                for sync, elapsed in measure(worlds, database, folder).items():
                    seconds[sync][size].append(elapsed)
                    progress(f"{sync} at {size:,}: {elapsed:.2f} s")
        least, most = min(databases), max(databases)
        at_least, at_most = refreshes(worlds, [databases[least], databases[most]], count)
    return [
        growth(f"first sync of {wallets:,} new wallets", seconds["first"], balances, 2),
        growth(
            f"sync of {wallets:,} known wallets, 1 % changed", seconds["1 % changed"], balances, 1.4
        ),
        Figure(
            "refresh of one wallet, from its webhook's 200 to the changed row, median",
            f"{1000 * at_least:.0f} ms at {least:,}; {1000 * at_most:.0f} ms at {most:,}",
            f"{at_most / at_least:.2f} × as long",
            "the same: at most 1.25",
            at_most / at_least <= 1.25,
        ),
    ]
