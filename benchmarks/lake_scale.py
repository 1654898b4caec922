"""Costs of a lake of millions of generated wallets, on worker processes of this machine.

`python -m benchmarks.lake_scale --wallets 1000000 --nfts 10` prints the cost of a first run, of an
unchanged run, and of a run after one wallet of a hundred changed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks.commands import free_port, program, wait_for

_ONE_OF = 100  # wallets change in a day
_RECORD = (
    '{"tokenId":"%s","amount":"%d","token":{"id":"%s","organizationId":'
    '"34e1250b-bf37-55ef-a727-c4cb24c5021c","contractAddress":"0x%040x","blockchainTokenId":"%d",'
    '"metadata":{"name":"Made up #%d","description":"One of a series that nobody has drawn.",'
    '"image":"https://images.example/%s.png","edition_id":%d,"total_edition":1000,'
    '"creator":{"name":"Nobody"}}}}'
)


def wallet_id(number: int) -> str:
    """Return the id of a generated wallet."""
    return f"{number:08x}-0000-4000-8000-{zlib.crc32(b'%d' % number):012x}"


class _Generator(asyncio.Protocol):
    """Responds with a list that follows from the wallet's id and the day."""

    nfts: int
    day: Path

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.rest = b""

    def data_received(self, data: bytes) -> None:
        *requests, self.rest = (self.rest + data).split(b"\r\n\r\n")
        for request in requests:
            body = self.body(request.split(b"/", 4)[3].decode())
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                b"content-length: %d\r\n\r\n%s" % (len(body), body)
            )

    def body(self, wallet: str) -> bytes:
        number = int(wallet[:8], 16)
        changed = self.day.exists() and number % _ONE_OF == 0
        entries = []
        for place in range(self.nfts):
            key = number * self.nfts + place
            token = f"{key:08x}-{place:04x}-4000-9000-{zlib.crc32(b'%d' % key):012x}"
            amount = 2 if changed and place == 0 else 1
            contract = key // 10_000
            entries.append(_RECORD % (token, amount, token, contract, key, key, token, key % 1000))
        return b'{"nftTokenBalances":[%s]}' % ",".join(entries).encode()


async def _serve(port: str, nfts: str, day: str) -> None:
    _Generator.nfts, _Generator.day = int(nfts), Path(day)
    server = await asyncio.get_running_loop().create_server(
        _Generator, "127.0.0.1", int(port), reuse_port=True
    )
    await server.serve_forever()


@contextlib.contextmanager
def provider(nfts: int, day: Path) -> Iterator[str]:
    """Run two processes that generate wallets; if the file exists, it is another day."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.lake_scale", "serve", str(port), str(nfts)]
    servers = [subprocess.Popen([*command, str(day)]) for _ in range(2)]
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        for server in servers:
            server.kill()
            server.wait()


def sync(lake: Path, url: str, wallets: Path, options: list[str]) -> dict[str, Any]:
    """Sync the lake; return the cost, including the cluster's processes."""
    files, size = _size(lake)
    source = ("--base-url", url, "--wallets-file", wallets)
    command = program("lake", "sync", lake, "--json", *source, *options)
    began = time.monotonic()
    peaks: dict[int, int] = {}
    seconds: dict[int, float] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        driver = psutil.Process(process.pid)
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                for one in [driver, *driver.children(recursive=True)]:
                    peaks[one.pid] = max(peaks.get(one.pid, 0), one.memory_info().rss)
                    seconds[one.pid] = sum(one.cpu_times()[:2])
            time.sleep(0.5)
        output = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}")
    result, driver_peak = json.loads(output), peaks.pop(process.pid)
    files_now, size_now = _size(lake)
    return {
        "wallets": result["wallets"],
        "balances": result["balances"],
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(sum(seconds.values()), 1),
        "driver_mb": driver_peak >> 20,
        "worker_mb": [peak >> 20 for peak in sorted(peaks.values(), reverse=True)[:4]],
        "files_written": files_now - files,
        "mb_written": (size_now - size) >> 20,
        "lake_mb": size_now >> 20,
    }


def _size(folder: Path) -> tuple[int, int]:
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return len(sizes), sum(sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wallets", type=int, default=20_000)
    parser.add_argument("--nfts", type=int, default=10, help="of each wallet")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--buckets", default="64")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        (ids := Path(name, "wallets.txt")).write_text(
            "\n".join(map(wallet_id, range(options.wallets)))
        )
        cluster = ["--workers", options.workers, "--buckets", options.buckets]
        with provider(options.nfts, day := Path(name, "day")) as url:
            for run in ("first", "unchanged", "changed"):
                if run == "changed":
                    day.touch()
                cost = sync(Path(name, "lake"), url, ids, cluster)
                print(json.dumps({"run": run, "processors": os.cpu_count(), **cost}), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(_serve(*sys.argv[2:]))
    else:
        main()
