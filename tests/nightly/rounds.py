"""The command line of a long run: one seed after another, or one that failed alone."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.worlds import listed

#: A folder in memory, if there is one: a recording writes to it often.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def sandbox(wallets: int, nfts: int, seed: int = 0, **options: float) -> SandboxServer:
    return SandboxServer(
        lambda url: generate(wallets=wallets, nfts=nfts, seed=seed, image_base=url), **options
    )


def edit(provider: SandboxServer, rng: random.Random) -> None:
    """Mint, rename or transfer something; a provider with a receiver sends webhooks."""
    every = {key: int(amount) for key, amount in listed(provider.world).items()}
    giver, token = rng.choice(sorted(key for key, amount in every.items() if amount))
    taker = rng.choice([wallet for wallet in provider.world.wallets() if wallet != giver])
    kind, name = rng.random(), {"name": f"Named {rng.random()}"}
    if kind < 0.15:
        provider.sandbox.mint(taker, rng.randrange(1, 9), name)
    elif kind < 0.3:
        provider.sandbox.edit_metadata(token, name)
    else:
        amount = rng.randint(1, every[giver, token])
        provider.sandbox.transfer(giver, taker, token, amount)


def run_seeds(
    about: str | None, run: Callable[..., Counter[str]], *, seeds: int = 1, **options: Any
) -> None:
    """Run seeds; print each failure and the sums of their figures, and exit with 1 if one failed.

    Args:
        about: its first line describes the command.
        run: runs a seed in an empty folder with the options; AssertionError is a failure.
        seeds: the default of `--seeds`.
        options: further options, with their defaults.
    """
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--seed", type=int, help="this seed alone")
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    given = vars(parser.parse_args())
    count, seed = given.pop("seeds"), given.pop("seed")
    for name in [*os.environ]:
        if name.startswith("NFTSYNC_") or name.lower().endswith("_proxy"):
            del os.environ[name]
    figures, failures, began = Counter[str](), 0, time.monotonic()
    chosen = range(count) if seed is None else [seed]
    for number in chosen:
        with tempfile.TemporaryDirectory() as folder:
            try:
                figures += run(number, Path(folder).resolve(), **given)
            except AssertionError as error:
                failures += 1
                print(f"FAULT: seed {number}: {error}"[:10_000], file=sys.stderr, flush=True)
    print(", ".join(f"{count:,} {name}" for name, count in sorted(figures.items())))
    seconds = time.monotonic() - began
    print(f"{len(chosen):,} seeds in {seconds:,.0f} s, {failures} with faults")
    sys.exit(failures > 0)
