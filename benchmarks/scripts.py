"""Scripts of `benchmarks/peers`, for nftsync and for other programs, each in a process of its own.

The other programs run in `.venv-bench`, which `make bench` creates, or in this environment.
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

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "benchmarks/peers"
BENCH = ROOT / ".venv-bench"


class Ran(NamedTuple):
    """The result of a script.

    `seconds` are of its work after the imports, `whole` of its process. `values` are other numbers
    that it printed. `peak` is the greatest PSS of all its processes in bytes, or 0 if not measured.
    """

    seconds: float
    whole: float
    values: dict[str, float]
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
    """Call `nftsync.sync`, and measure the time until so many wallets are stored; others fail."""
    arguments = [base, str(wallets), str(database), str(count), str(retries)]
    return _run(sys.executable, "ours_until_stored", arguments)


def peer(name: str, *arguments: str | Path) -> Ran:
    """Run a script of another program."""
    return _run(peers_python(), name, [str(argument) for argument in arguments])


def peers_python() -> str:
    """Return the interpreter of the other programs."""
    return str(BENCH / "bin/python") if (BENCH / ".ready").exists() else sys.executable


@functools.cache
def installed(package: str) -> bool:
    """Return whether the other programs can import a package."""
    code = "import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))"
    return subprocess.run([peers_python(), "-c", code, package], check=False).returncode == 0


def _run(python: str, name: str, arguments: list[str], *, memory: bool = False) -> Ran:
    peak = 0
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryDirectory() as folder:
        os.sync()  # earlier writes must not keep the disk busy
        began = time.perf_counter()
        process = subprocess.Popen(
            [python, str(PEERS / f"{name}.py"), *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(),
            cwd=folder,
        )
        while memory and process.poll() is None:
            peak = max(peak, _pss(process.pid))
            time.sleep(0.05)
        out, _ = process.communicate()
        whole = time.perf_counter() - began
        if process.returncode:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").splitlines() or ["no reason given"]
            raise SystemExit(f"{name} failed: {lines[-1][:300]}")
    values = json.loads(out.splitlines()[-1])
    return Ran(values.pop("seconds"), whole, values, peak)


def _pss(pid: int) -> int:
    """Return the memory of a process and its children; shared pages count once."""
    total = 0
    with contextlib.suppress(OSError):  # it has just ended
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += 1024 * int(line.split()[1])
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            total += sum(_pss(int(child)) for child in children.read_text().split())
    return total
