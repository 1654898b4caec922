"""Stop and continue a sync and its reading process, thousands of times; all wallets are read.

    python -m tests.nightly.stops --rounds 20
    python -m tests.nightly.stops --seed 17        # one round alone, the one that failed

A round is two syncs of wallets with long lists: one whose processes are stopped and continued again
and again, and one whose reading process is stopped once, for good. Ctrl-Z, `docker pause`, a
debugger and a laptop that sleeps stop a process in the same way, at any byte of what it writes.
Every other round runs with PYTHONUNBUFFERED=1, as most container images set it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

from tests.kit.database import begun_once
from tests.kit.processes import start_process
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import PATIENCE, mirrored

#: Enough for a reading process, whose frames of some 400 entries take about 200 kB each.
WALLETS, ENTRIES, TEXT = 520, 100, 450
#: Seconds, at most, between two signals.
STOPPED, RUNNING = 0.02, 0.02


def long_lists(provider: Provider) -> None:
    """Let each wallet hold the same long list."""
    fields = {"contractAddress": "0x1", "metadata": {"name": "x", "description": "y" * TEXT}}
    entries = [entry(token(number), **fields) for number in range(ENTRIES)]
    for number in range(WALLETS):
        provider.holds(wallet(number), *entries)


def start_sync(
    folder: Path, url: str, *flags: str, unbuffered: bool = False, **variables: str
) -> subprocess.Popen[str]:
    """A sync of all wallets into `nftsync.db` of a folder."""
    database, names = begun_once(folder / "nftsync.db"), folder / "wallets.txt"
    names.write_text("\n".join(wallet(number) for number in range(WALLETS)))
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    if unbuffered:
        variables["PYTHONUNBUFFERED"] = "1"
    return start_process(
        [
            *(sys.executable, "-m", "nftsync", "sync", "--json", "--base-url", url, *flags),
            *("-d", str(database), "--wallets-file", str(names)),
        ],
        cwd=folder,
        env=kept | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def readers(process: subprocess.Popen[str]) -> list[int]:
    """The ids of a sync's reading processes."""
    try:
        return [child.pid for child in psutil.Process(process.pid).children()]
    except psutil.NoSuchProcess:
        return []


def stop_and_continue(process: subprocess.Popen[str], rng: random.Random, until: float) -> int:
    """Stop the processes again and again until the sync ends; return how many signals were sent."""
    signals = 0
    children: list[int] = []
    while process.poll() is None and time.monotonic() < until:
        children = children or readers(process)
        chosen = rng.choice([[process.pid], children, [process.pid, *children]])
        try:
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in chosen:
                    os.kill(pid, number)
                    signals += 1
                time.sleep(rng.uniform(0, STOPPED if number == signal.SIGSTOP else RUNNING))
        except ProcessLookupError:  # it has been replaced, or has just ended
            children = []
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
    return signals


def stop_for_good(process: subprocess.Popen[str], rng: random.Random, until: float) -> int:
    """Stop the reading process at some moment, and do not continue it; return how often."""
    stopped = 0
    while process.poll() is None and time.monotonic() < until and not stopped:
        for pid in readers(process):
            time.sleep(rng.uniform(0, 1))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                stopped += 1
    with suppress(subprocess.TimeoutExpired):
        process.wait(until - time.monotonic())
    return stopped


def run_sync(
    url: str, seed: int, *, for_good: bool = False, patience: float = PATIENCE
) -> Counter[str]:
    """Run one sync under stops; a seed with an even number runs it unbuffered.

    Args:
        url: a provider with `long_lists`.
        seed: of the moments.
        for_good: stop its reading process once, for good.
        patience: seconds within which it must end.
    """
    with tempfile.TemporaryDirectory() as folder:
        flags = ("--timeout", "1") if for_good else ()
        process = start_sync(Path(folder), url, *flags, unbuffered=seed % 2 == 0)
        until = time.monotonic() + patience
        stop = stop_for_good if for_good else stop_and_continue
        signals = stop(process, random.Random(seed), until)
        figures = Counter(syncs=1, signals=signals)
        try:
            out, err = process.communicate(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            _, err = process.communicate()
            raise AssertionError(f"seed {seed}: no end within {patience:g} s: {err}") from None
        assert process.returncode == 0, (seed, process.returncode, err)
        result = json.loads(out)
        assert result["status"] == "ok", (seed, result)
        assert len(mirrored(Path(folder, "nftsync.db"))) == WALLETS * ENTRIES, seed
        return figures + Counter(wallets=result["wallets"]["ok"], replaced=err.count("replaced"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, help="this round alone")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds for a sync")
    given = parser.parse_args()
    seeds = range(given.rounds) if given.seed is None else [given.seed]
    failures: list[str] = []
    with Provider() as provider:
        long_lists(provider)
        for for_good in (False, True):
            figures: Counter[str] = Counter()
            for seed in seeds:
                try:
                    figures += run_sync(
                        provider.url, seed, for_good=for_good, patience=given.patience
                    )
                except AssertionError as error:
                    failures.append(str(error))
                    print(f"failed: {error}"[:2_000], file=sys.stderr)
            told = ", ".join(f"{name} {count:,}" for name, count in figures.items())
            print("stopped for good:" if for_good else "stopped and continued:", told, flush=True)
    sys.exit(f"{len(failures)} of {2 * len(seeds)} syncs failed" if failures else 0)


if __name__ == "__main__":
    main()
