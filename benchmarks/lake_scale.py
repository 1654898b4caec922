"""Costs of a lake of millions of generated wallets, on worker processes of this machine.

    python -m benchmarks.lake_scale --wallets 200000 --nfts 50
    python -m benchmarks.lake_scale --wallets 20000 --nfts 10 --buckets 16 --runs 365

Prints the costs of a first run, an unchanged run, runs after 1 % of the wallets changed, a run that
reads only the changed wallets, and a `groupby` in worker processes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks.commands import free_port, program, wait_for
from benchmarks.lake_costs import children_cpu
from tests.kit.provider import Peer, Provider, reply

_ONE_OF = 100  # wallets change in a day
_RECORD = (
    '{"tokenId":"%s","amount":"%d","token":{"id":"%s","organizationId":'
    '"34e1250b-bf37-55ef-a727-c4cb24c5021c","contractAddress":"0x%040x","blockchainTokenId":"%d",'
    '"metadata":{"name":"Series %d #%d","description":"One of a series that nobody has drawn.",'
    '"image":"https://images.example/%s.png","edition_id":%d,"total_edition":1000,'
    '"creator":{"name":"Nobody"}}}}'
)
#: Counts each collection's tokens, as a user would.
_GROUPBY = """
import distributed, sys
from nftsync import lake

with distributed.Client(n_workers=int(sys.argv[2]), threads_per_worker=1, dashboard_address=None):
    held = lake.holdings(sys.argv[1])
    print(held.groupby("collection")["token_id"].nunique().compute().sum())
"""


def wallet_id(number: int) -> str:
    """Return the id of a generated wallet."""
    return f"{number:08x}-0000-4000-8000-{zlib.crc32(b'%d' % number):012x}"


def body(number: int, nfts: int, day: int) -> bytes:
    """Return a wallet's response, which follows from its number and the day."""
    changes = day if number % _ONE_OF == 0 else 0
    entries = []
    for place in range(nfts):
        key = number * nfts + place
        token = f"{key:08x}-{place:04x}-4000-9000-{zlib.crc32(b'%d' % key):012x}"
        amount = 1 + changes if place == 0 else 1
        contract = key // 10_000
        ids = token, contract, key, contract, key, token
        entries.append(_RECORD % (token, amount, *ids, key % 1000))
    return b'{"nftTokenBalances":[%s]}' % ",".join(entries).encode()


def _serve(port: str, nfts: str, day: str) -> None:
    with Provider(port=int(port)) as double:

        def answer(peer: Peer) -> bool:
            double.seen.clear()  # there may be millions
            number = int(peer.seen.path.split("/")[3][:8], 16)
            response = body(number, int(nfts), int(Path(day).read_text()))
            return reply(response, content_type="application/json")(peer)

        double.always(answer)
        threading.Event().wait()


@contextlib.contextmanager
def provider(nfts: int, day: Path) -> Iterator[str]:
    """Run a provider of generated wallets; the file has the number of the day."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.lake_scale", "serve", str(port), str(nfts)]
    server = subprocess.Popen([*command, str(day)])
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def measured(command: list[str]) -> tuple[dict[str, Any], str]:
    """Run a command; return its cost, with all of its processes, and its output."""
    began, cpu = time.monotonic(), children_cpu()
    peaks: dict[int, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        main = psutil.Process(process.pid)
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                for one in [main, *main.children(recursive=True)]:
                    peaks[one.pid] = max(peaks.get(one.pid, 0), one.memory_info().rss)
            time.sleep(0.5)
        output = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}")
    cost = {
        "main_mb": peaks.pop(process.pid, 0) >> 20,
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(children_cpu() - cpu, 1),
        "worker_mb": [peak >> 20 for peak in sorted(peaks.values(), reverse=True)[:4]],
    }
    return cost, output


def sync(run: str, lake: Path, *options: str | Path) -> None:
    """Sync the lake; print the cost, and the sizes of new files and of the lake."""
    before = _files(lake)
    cost, output = measured(program("lake", "sync", lake, "--json", *options))
    files, result = _files(lake), json.loads(output)
    cost["mb_written"] = sum(files[path] for path in files.keys() - before.keys()) >> 20
    cost["lake_mb"] = sum(files.values()) >> 20
    counts = {name: result[name] for name in ("wallets", "balances")}
    print(json.dumps({"run": run} | counts | cost), flush=True)


def _files(folder: Path) -> dict[Path, int]:
    return {file: file.stat().st_size for file in folder.rglob("*") if file.is_file()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wallets", type=int, default=20_000)
    parser.add_argument("--nfts", type=int, default=10, help="of each wallet")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--buckets", default="64")
    parser.add_argument("--runs", type=int, default=1, help="with 1 %% of wallets changed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, lake, day = Path(name), Path(name, "lake"), Path(name, "day")
        day.write_text("0")
        ids = [*map(wallet_id, range(options.wallets))]
        (every := folder / "every.txt").write_text("\n".join(ids))
        (changing := folder / "changing.txt").write_text("\n".join(ids[::_ONE_OF]))
        with provider(options.nfts, day) as url:
            cluster = ("--workers", options.workers, "--buckets", options.buckets)
            words = (lake, "--base-url", url, *cluster, "--wallets-file")
            sync("first", *words, every)
            sync("unchanged", *words, every)
            for number in range(1, options.runs + 1):
                day.write_text(str(number))
                sync(f"changed {number}", *words, every)
            day.write_text(str(options.runs + 1))
            sync("only changed wallets", *words, changing)
        cost, output = measured([sys.executable, "-c", _GROUPBY, str(lake), options.workers])
        print(json.dumps({"run": "groupby", "tokens": int(output)} | cost))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        _serve(*sys.argv[2:])
    else:
        main()
