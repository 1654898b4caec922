"""Memory of a `serve` that sends alerts, most of them to destinations that fail.

    python -m tests.nightly.watch_memory --minutes 180
    python -m tests.nightly.watch_memory --minutes 20 --speed 9     # as many webhooks in 20 minutes
    python -m tests.nightly.watch_memory --minutes 5 --trace        # with the lines that allocate

A sandbox provider sends 40 webhooks a minute. Rules report the changes to a destination that
answers, and to others that refuse, break connections, hang, are busy or are a failing command.
Each line shows what `serve` holds, in MB: resident memory (anonymous, files, shared), what malloc
has in use and keeps free, SQLite, Arrow, and the numbers of Python objects and threads. In the end,
it shows the types of objects that grew. `--speed` multiplies the webhooks; the destinations' pauses
stay as they are.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import nftsync
from nftsync.sandbox.consumer import Slow
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.serve_process import Serve, configure, environment, query
from tests.kit.worlds import listed
from tests.nightly.watch_kills import SECRET

WALLETS, NFTS = 300, 20
PER_MINUTE = 40
FAULTS: dict[str, Any] = {
    "healthy": None,
    "refusing": 500,
    "broken": "close",
    "hanging": "hang",
    "busy": Slow(retry_after=60),
}
RULES = """
[destinations.failing]
kind = "command"
command = ["false"]
[watch.moves]
on = ["sent", "received"]
to = {names}
[watch.amounts]
on = ["amount", "metadata"]
digest = "1m"
to = {names}
[watch.health]
on = ["wallet_stale", "wallet_failed", "sync_failed", "removals_held", "replay_paused"]
to = {names}
[forward.all]
to = {names}
"""
DESTINATION = """
[destinations.{name}]
kind = "webhook"
url = "{url}/sandbox/consumer/{name}"
secret_file = "{secret}"
"""


# In the process of `serve` ------------------------------------------------------------------------


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def _inside(traced: bool) -> dict[str, Any]:
    """Return what this process holds, as only it knows."""
    import _sqlite3

    import pyarrow as pa

    sqlite = ctypes.CDLL(_sqlite3.__file__).sqlite3_memory_used
    sqlite.restype = ctypes.c_int64
    figures: dict[str, Any] = {"sqlite": sqlite(), "arrow": pa.total_allocated_bytes()}
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallinfo2"):
        libc.mallinfo2.restype = _Mallinfo
        info = libc.mallinfo2()
        figures |= {"used": info.uordblks + info.hblkhd, "free": info.fordblks}
    objects = gc.get_objects()
    figures |= {"objects": len(objects), "threads": threading.active_count()}
    figures["types"] = dict(Counter(type(one).__qualname__ for one in objects).most_common(60))
    if traced:
        gc.collect()
        shown = tracemalloc.take_snapshot().statistics("lineno")[:25]
        figures["lines"] = {str(one.traceback): one.size for one in shown}
    return figures


def _serve(file: str, every: str, traced: str, *arguments: str) -> None:
    """Run `nftsync serve`, and write a line about this process now and then."""
    from nftsync.cli import main

    def watch() -> None:
        with Path(file).open("w") as out:
            while True:
                time.sleep(float(every))
                print(json.dumps(_inside(bool(traced))), file=out, flush=True)

    if traced:
        tracemalloc.start(8)
    threading.Thread(target=watch, daemon=True).start()
    main(["serve", *arguments])


# From outside ------------------------------------------------------------------------------------


def resident(pid: int) -> dict[str, int]:
    """Return a process's resident memory in bytes: all, anonymous, files, shared."""
    status = Path(f"/proc/{pid}/status").read_text()
    names = {"VmRSS": "rss", "RssAnon": "anon", "RssFile": "file", "RssShmem": "shared"}
    lines = re.findall(r"^(\w+):\s+(\d+) kB", status, re.MULTILINE)
    return {names[name]: int(size) * 1024 for name, size in lines if name in names}


def write_settings(folder: Path, url: str) -> None:
    secret = folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(stat.S_IRUSR)
    tables = [DESTINATION.format(name=name, url=url, secret=secret) for name in FAULTS]
    tables.append(RULES.format(names=json.dumps([*FAULTS, "failing"])))
    (folder / "nftsync.toml").write_text("".join(tables))


def trade(server: SandboxServer, rng: random.Random, held: dict[tuple[str, str], int]) -> None:
    """Make one change at the provider, which sends webhooks."""
    giver, token = rng.choice([key for key, amount in held.items() if amount])
    if rng.random() < 0.2:
        server.sandbox.edit_metadata(token, {"name": f"Renamed {rng.random()}"})
        return
    taker = rng.choice([wallet for wallet in server.world.wallets() if wallet != giver])
    amount = rng.randint(1, held[giver, token])
    server.sandbox.transfer(giver, taker, token, amount)
    held[giver, token] -= amount
    held[taker, token] = held.get((taker, token), 0) + amount


COLUMNS = ("rss", "anon", "file", "shared", "used", "free", "sqlite", "arrow")


def show(minute: float, figures: dict[str, Any], database: Path) -> None:
    (messages,) = query(database, "SELECT count(*) FROM messages")[0]
    (webhooks,) = query(database, "SELECT count(*) FROM webhooks")[0]
    cells = [f"{minute:6.1f}"] + [f"{figures.get(name, 0) / 1e6:8.1f}" for name in COLUMNS]
    cells += [f"{figures.get(name, 0):8,}" for name in ("objects", "threads")]
    print(" ".join([*cells, f"{webhooks:8,}", f"{messages:8,}"]), flush=True)


def run(folder: Path, minutes: float, speed: float, every: float, *, traced: bool) -> list[Any]:
    """Run `serve` for so long; return its figures over time."""
    database, rng, samples = folder / "nftsync.db", random.Random(1), []
    with SandboxServer(
        lambda url: generate(wallets=WALLETS, nfts=NFTS, seed=1, image_base=url), time_scale=0.02
    ) as provider:
        provider.consumers.script(FAULTS)
        wallets = provider.world.wallets()
        nftsync.sync(wallets, base_url=provider.url, database=database, progress=False)
        write_settings(folder, provider.url)
        inside = folder / "inside"
        begin = [inside, every, "yes" if traced else ""]
        serve = ["-d", database, "--port", 0, "--base-url", provider.url, "--sync-every", "15m"]
        process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, "--serve", *map(str, [*begin, *serve])],
            env=environment(PYTHONPATH=str(Path.cwd())),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            server = Serve(process)
            configure(provider, server.url)
            held = {key: int(amount) for key, amount in listed(provider.world).items()}
            print(
                "minute", *(f"{name:>8}" for name in COLUMNS), " objects  threads webhooks messages"
            )
            began, shown = time.monotonic(), 0
            while (seconds := time.monotonic() - began) < 60 * minutes:
                trade(provider, rng, held)
                time.sleep(60 / (PER_MINUTE / 2 * speed))  # a transfer sends about two webhooks
                lines = inside.read_text().splitlines() if inside.exists() else []
                if len(lines) > shown:
                    shown = len(lines)
                    samples.append(resident(process.pid) | json.loads(lines[-1]))
                    show(seconds / 60, samples[-1], database)
                server.lines.clear()
                server.raw.clear()
            process.send_signal(signal.SIGTERM)
            assert server.wait() == 0
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    return samples


def main() -> int:
    """The long run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=180)
    parser.add_argument("--speed", type=float, default=1)
    parser.add_argument("--every", type=float, default=60, help="seconds between two lines")
    parser.add_argument("--trace", action="store_true", help="also show the lines that allocate")
    given = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("NFTSYNC_")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory() as folder:
        samples = run(Path(folder), given.minutes, given.speed, given.every, traced=given.trace)
    first, last = samples[len(samples) // 4], samples[-1]
    for kind in ("types", "lines"):
        grown = Counter(last.get(kind, {}))
        grown.subtract(first.get(kind, {}))
        for name, more in grown.most_common(12):
            print(f"{more:+12,} {name}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        _serve(*sys.argv[2:])
    else:
        sys.exit(main())
