"""How long a start takes: of the import, of help, and of a sync until its first request.

python -m benchmarks.startup
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.figure import Figure

WALLET = "5d2b1e9c-3f64-4f0e-9a53-7d1c5a0b2c11"


def ended(*arguments: str) -> float:
    """Seconds that an interpreter with these arguments runs for."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def asked() -> float:
    """Seconds from the start of `nftsync sync` to its first request."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        start = time.perf_counter()
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "nftsync", "sync", WALLET, "--retries", "1"),
                *("--base-url", f"http://127.0.0.1:{server.getsockname()[1]}"),
                *("--database", str(Path(folder) / "nftsync.db")),
            ],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            connection, _ = server.accept()
            with connection:
                connection.recv(1)
                seconds = time.perf_counter() - start
        finally:
            process.terminate()
            process.wait()
    return seconds


CASES: dict[str, tuple[Callable[[], float], float | None]] = {
    "`python -c pass`": (lambda: ended("-c", "pass"), None),
    "`import nftsync`": (lambda: ended("-c", "import nftsync"), 0.150),
    "`from nftsync import frames`": (lambda: ended("-c", "from nftsync import frames"), None),
    "`nftsync --help`": (lambda: ended("-m", "nftsync", "--help"), 0.200),
    "`nftsync sync --help`": (lambda: ended("-m", "nftsync", "sync", "--help"), None),
    "`nftsync sync` until its first request": (asked, None),
}


def figures(*, small: bool = False) -> list[Figure]:
    """Measure all in turn, with warm caches.

    Args:
        small: one round.
    """
    times: dict[str, list[float]] = {what: [] for what in CASES}
    for _ in range(1 if small else 11):
        for what, (measure, _) in CASES.items():
            times[what].append(measure())
    found = []
    for what, (_, most) in CASES.items():
        middle = statistics.median(times[what][not small :])  # the first round warms the caches
        figure = f"{middle * 1000:.0f} ms"
        if most is None:
            found.append(Figure(what, figure))
        else:
            target = f"less than {most * 1000:.0f} ms"
            found.append(Figure(what, figure, target=target, met=middle < most))
    return found


if __name__ == "__main__":
    for line in figures():
        print(*line[:2], *line[3:4], sep="  ")
