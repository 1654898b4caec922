"""The command line of a long run: one round after another, or one that failed alone."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable


def run_rounds(
    about: str | None,
    run: Callable[[int, argparse.Namespace], Counter[str]],
    *,
    rounds: int,
    **options: float,
) -> int:
    """Run rounds by their seeds; print the sums of their figures, and each failure.

    Args:
        about: the first line describes the command.
        run: a round of a seed; AssertionError is a failure.
        rounds: the default of `--rounds`.
        options: further numeric options, with their defaults.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seed", type=int, help="this round alone")
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    given = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("NFTSYNC_")]:
        del os.environ[name]
    seeds = range(given.rounds) if given.seed is None else [given.seed]
    figures, failures, began = Counter[str](), 0, time.monotonic()
    for seed in seeds:
        try:
            figures += run(seed, given)
        except AssertionError as error:
            failures += 1
            print(f"FAULT: seed {seed}: {error}"[:10_000], file=sys.stderr, flush=True)
    print(", ".join(f"{count:,} {name}" for name, count in sorted(figures.items())))
    seconds = time.monotonic() - began
    print(f"{len(seeds):,} rounds in {seconds:,.0f} s, {failures} with faults")
    return 1 if failures else 0
