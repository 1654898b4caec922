"""Runs nftsync and its peers, each as a plain script in a process of its own.

Peers run in an environment of their own (`.venv-bench`, made by `make bench`), so that what they
depend on is never mixed with what we depend on. Where it is missing they run in ours, if they can.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.commands import environment

__all__ = ["Ran", "installed", "ours", "ours_until_stored", "peer", "peers_python"]

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "benchmarks/peers"
BENCH = ROOT / ".venv-bench"


class Ran(NamedTuple):
    """What a script did.

    Attributes:
        seconds: its work, after its imports.
        whole: the process, from its start to its end, in seconds.
        found: what else it printed.
        peak: the most memory of it and its children together, in bytes of PSS; 0: not looked at.
    """

    seconds: float
    whole: float
    found: dict[str, float]
    peak: int = 0


def ours(
    base: str,
    wallets: Path,
    database: Path,
    *,
    concurrency: int = 8,
    memory: bool = False,
    python: str = sys.executable,
) -> Ran:
    """Call `nftsync.sync` in a plain script, by default of this checkout."""
    arguments = [base, str(wallets), str(database), str(concurrency)]
    return _run(python, "ours", arguments, memory=memory)


def ours_until_stored(base: str, wallets: Path, database: Path, count: int, retries: int) -> Ran:
    """The same, timed until so many wallets are stored, though others fail."""
    arguments = [base, str(wallets), str(database), str(count), str(retries)]
    return _run(sys.executable, "ours_until_stored", arguments)


def peer(name: str, *arguments: str | Path) -> Ran:
    """A script of `benchmarks/peers`."""
    return _run(peers_python(), name, [str(argument) for argument in arguments])


def peers_python() -> str:
    """The interpreter that runs peers."""
    return str(BENCH / "bin/python") if (BENCH / ".ready").exists() else sys.executable


@functools.cache
def installed(package: str) -> bool:
    """Whether peers can import a package."""
    code = "import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))"
    return subprocess.run([peers_python(), "-c", code, package], check=False).returncode == 0


def _run(python: str, name: str, arguments: list[str], *, memory: bool = False) -> Ran:
    peak = 0
    with tempfile.TemporaryFile() as said, tempfile.TemporaryDirectory() as folder:
        os.sync()  # what ran before must not have the disk busy now
        began = time.perf_counter()
        process = subprocess.Popen(
            [python, str(PEERS / f"{name}.py"), *arguments],
            stdout=subprocess.PIPE,
            stderr=said,
            env=environment(),
            cwd=folder,
        )
        while memory and process.poll() is None:
            peak = max(peak, _pss(process.pid))
            time.sleep(0.05)
        out, _ = process.communicate()
        whole = time.perf_counter() - began
        if process.returncode:
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines() or ["no reason given"]
            raise SystemExit(f"{name} failed: {lines[-1][:300]}")
    found = json.loads(out.splitlines()[-1])
    return Ran(found.pop("seconds"), whole, found, peak)


def _pss(pid: int) -> int:
    """The memory of a process and its children now: shared pages count once among them."""
    total = 0
    with contextlib.suppress(OSError):  # it has just ended
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += 1024 * int(line.split()[1])
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            total += sum(_pss(int(child)) for child in children.read_text().split())
    return total
