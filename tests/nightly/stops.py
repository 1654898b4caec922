"""Stop and continue a sync and its reading process many times; all wallets are read.

A seed is two syncs of wallets with long lists: in one, processes are stopped and continued
repeatedly; in the other, the reading process is stopped once for good. Ctrl-Z, `docker pause`, a
debugger and a sleeping laptop stop a process like that, at any byte of its output. Every other
seed sets PYTHONUNBUFFERED=1, as most container images do.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import psutil

from tests.kit.database import begun_once
from tests.kit.processes import start
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import PATIENCE, Outcome, mirrored
from tests.nightly.rounds import run_seeds

#: Enough for a reading process; its frames of about 400 entries have about 200 kB.
WALLETS, ENTRIES, TEXT = 520, 100, 450
#: Seconds, at most, between two signals.
PAUSE = 0.02


def long_lists(provider: Provider) -> None:
    fields: dict[str, Any] = {
        "contractAddress": "0x1",
        "metadata": {"name": "x", "description": "y" * TEXT},
    }
    entries = [entry(token(number), **fields) for number in range(ENTRIES)]
    for number in range(WALLETS):
        provider.holds(wallet(number), *entries)


def start_sync(
    folder: Path, url: str, *flags: str, unbuffered: bool = False, **variables: str
) -> subprocess.Popen[str]:
    database, names = begun_once(folder / "nftsync.db"), folder / "wallets.txt"
    names.write_text("\n".join(wallet(number) for number in range(WALLETS)))
    words = ("sync", "--base-url", url, *flags, "-d", database, "--wallets-file", names)
    variables |= {"PYTHONUNBUFFERED": "1" if unbuffered else ""}
    return start(*words, folder=folder, variables=variables)


def readers(process: subprocess.Popen[Any]) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(process.pid).children()]
    except psutil.NoSuchProcess:
        return []


def stop(process: subprocess.Popen[str], rng: random.Random, until: float, last: float) -> int:
    """Stop and continue the processes; after `last` signals, stop the reading one for good."""
    signals, children = 0, list[int]()
    while process.poll() is None and time.monotonic() < until:
        children = children or readers(process)
        chosen = rng.choice([[process.pid], children, [process.pid, *children]])
        for_good = signals >= last and children != []
        try:
            for number in (signal.SIGSTOP, signal.SIGCONT)[: 1 if for_good else 2]:
                for pid in children if for_good else chosen:
                    os.kill(pid, number)
                    signals += 1
                time.sleep(rng.uniform(0, PAUSE))
        except ProcessLookupError:  # it was replaced or has ended
            children = []
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
        if for_good and children:
            break
    return signals


def run_sync(url: str, seed: int, *, last: float = inf, patience: float = PATIENCE) -> Counter[str]:
    """Run a sync with stops from a provider with `long_lists`; an even seed is unbuffered."""
    until = time.monotonic() + patience
    with tempfile.TemporaryDirectory() as folder:
        flags = () if last == inf else ("--timeout", "1")
        process = start_sync(Path(folder), url, *flags, unbuffered=seed % 2 == 0)
        signals = stop(process, random.Random(seed), until, last)
        try:
            out, err = process.communicate(timeout=max(1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"no end in {patience:g} s: {process.communicate()}") from None
        result = Outcome(process.returncode, out, err).says().json
        assert result["status"] == "ok", result
        assert len(mirrored(Path(folder, "nftsync.db"))) == WALLETS * ENTRIES
    return Counter(syncs=1, signals=signals, replaced=err.count("replaced"))


def run_seed(seed: int, _: Path, url: str, patience: float) -> Counter[str]:
    last = random.Random(seed).randrange(200)
    forever = run_sync(url, seed, patience=patience)
    return forever + run_sync(url, seed, last=last, patience=patience)


if __name__ == "__main__":
    with Provider() as provider:
        long_lists(provider)
        run_seeds(__doc__, partial(run_seed, url=provider.url), seeds=20, patience=PATIENCE)
