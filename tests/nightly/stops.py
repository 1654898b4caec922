"""Stop and continue a sync and its reading process many times; all wallets are read.

    python -m tests.nightly.stops --rounds 20
    python -m tests.nightly.stops --seed 17        # one round alone

A round is two syncs of wallets with long lists: in one, processes are stopped and continued
repeatedly; in the other, the reading process is stopped once for good. Ctrl-Z, `docker pause`, a
debugger and a sleeping laptop stop a process like that, at any byte of its output. Every other
round sets PYTHONUNBUFFERED=1, as most container images do.
"""

from __future__ import annotations

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
from typing import Any

import psutil

from tests.kit.database import begun_once
from tests.kit.processes import start_process
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import PATIENCE, mirrored
from tests.nightly.rounds import run_rounds

#: Enough for a reading process; its frames of about 400 entries have about 200 kB.
WALLETS, ENTRIES, TEXT = 520, 100, 450
#: Seconds, at most, between two signals.
STOPPED, RUNNING = 0.02, 0.02


def long_lists(provider: Provider) -> None:
    """Let each wallet hold the same long list."""
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
    """Start a sync of all wallets into `nftsync.db` of a folder."""
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


def readers(process: subprocess.Popen[Any]) -> list[int]:
    """Return the ids of a sync's reading processes."""
    try:
        return [child.pid for child in psutil.Process(process.pid).children()]
    except psutil.NoSuchProcess:
        return []


def stop_and_continue(process: subprocess.Popen[str], rng: random.Random, until: float) -> int:
    """Stop and continue the processes until the sync ends; return the number of signals."""
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
        except ProcessLookupError:  # it was replaced or has ended
            children = []
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
    return signals


def stop_for_good(process: subprocess.Popen[str], rng: random.Random, until: float) -> int:
    """Stop the reading process once at a random moment; return the number of signals."""
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
    """Run one sync with stops; an even seed runs it unbuffered.

    Args:
        url: a provider with `long_lists`.
        seed: of the moments.
        for_good: stop its reading process once, and do not continue it.
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


def main() -> int:
    with Provider() as provider:
        long_lists(provider)

        def run(seed: int, given: Any) -> Counter[str]:
            figures = Counter[str]()
            for name, for_good in (("continued", False), ("stopped for good", True)):
                found = run_sync(provider.url, seed, for_good=for_good, patience=given.patience)
                figures += Counter({f"{key} ({name})": value for key, value in found.items()})
            return figures

        return run_rounds(__doc__, run, rounds=20, patience=PATIENCE)


if __name__ == "__main__":
    sys.exit(main())
