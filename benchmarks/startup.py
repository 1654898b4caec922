"""Start-up: imports, help, and `nftsync sync` until its first request."""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.commands import program
from benchmarks.figure import Figure

WALLET = "5d2b1e9c-3f64-4f0e-9a53-7d1c5a0b2c11"
#: Command lines, and the most seconds that they may take.
CASES: dict[str, tuple[list[str], float | None]] = {
    "`python -c pass`": ([sys.executable, "-c", "pass"], None),
    "`import nftsync`": ([sys.executable, "-c", "import nftsync"], 0.150),
    "`from nftsync import frames`": ([sys.executable, "-c", "from nftsync import frames"], None),
    "`nftsync --help`": (program("--help"), 0.200),
    "`nftsync sync --help`": (program("sync", "--help"), None),
    "`nftsync sync` until its first request": (program("sync", WALLET, "--retries", "1"), None),
}
#: Cases that only explain others.
_UNLISTED = {"`python -c pass`", "`nftsync sync --help`"}


def measure(command: list[str], *, requests: bool) -> float:
    """Return the seconds of a command, or until its first request."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        if requests:
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
            command = [*command, "--base-url", url, "--database", f"{folder}/nftsync.db"]
        start = time.perf_counter()
        with subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            if requests:
                with server.accept()[0] as connection:
                    connection.recv(1)
                    seconds = time.perf_counter() - start
                process.terminate()
                return seconds
            if process.wait():
                raise SystemExit(f"{command} failed")
            return time.perf_counter() - start


def figures(*, small: bool = False) -> list[Figure]:
    """Measure the cases in turn, in new processes."""
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(1 if small else 11):
        for name, (command, _) in CASES.items():
            times[name].append(measure(command, requests=WALLET in command))
    figures = []
    for name, (_, most) in CASES.items():
        median = statistics.median(times[name][not small :])  # the first round fills caches
        target = f"less than {most * 1000:.0f} ms" if most else ""
        met = None if most is None else median < most
        listed = name not in _UNLISTED
        result = f"{median * 1000:.0f} ms"
        figures.append(Figure(name, result, target=target, met=met, listed=listed))
    return figures
