"""What a lake of millions costs: wallets made up on the fly, on worker processes of this machine.

`python -m benchmarks.lake_scale --wallets 1000000 --nfts 10` prints what each run took: a first,
one in which nothing changed, and one in which one wallet of a hundred did.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

_ONE_OF = 100  # wallets change in a day
_RUNS = ("first", "unchanged", "changed")
_RECORD = (
    '{"tokenId":"%s","amount":"%d","token":{"id":"%s","organizationId":'
    '"34e1250b-bf37-55ef-a727-c4cb24c5021c","contractAddress":"0x%040x","blockchainTokenId":"%d",'
    '"metadata":{"name":"Made up #%d","description":"One of a series that nobody has drawn.",'
    '"image":"https://images.example/%s.png","edition_id":%d,"total_edition":1000,'
    '"creator":{"name":"Nobody"}}}}'
)


def wallet_id(number: int) -> str:
    """The id of a made-up wallet."""
    return f"{number:08x}-0000-4000-8000-{zlib.crc32(b'%d' % number):012x}"


class _MadeUp(asyncio.Protocol):
    """Answers with a list that follows from the wallet's id and the day."""

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
    _MadeUp.nfts, _MadeUp.day = int(nfts), Path(day)
    server = await asyncio.get_running_loop().create_server(
        _MadeUp, "127.0.0.1", int(port), reuse_port=True
    )
    await server.serve_forever()


@contextlib.contextmanager
def provider(nfts: int, day: Path) -> Iterator[str]:
    """Two processes that make wallets up; once the file is there, it is another day."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.lake_scale", "serve", str(port), str(nfts)]
    servers = [subprocess.Popen([*command, str(day)]) for _ in range(2)]
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        for server in servers:
            server.kill()
            server.wait()


def sync(lake: Path, url: str, wallets: Path, options: list[str]) -> dict[str, Any]:
    """Sync the lake; what it took, the processes of the cluster included."""
    before = _size(lake)
    command = [sys.executable, "-m", "nftsync", "lake", "sync", str(lake), "--json"]
    command += ["--base-url", url, "--wallets-file", str(wallets), *options]
    began = time.monotonic()
    peaks: dict[int, int] = {}
    seconds: dict[int, float] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        driver = psutil.Process(process.pid)
        while process.poll() is None:
            for each in [driver, *_children(driver)]:
                with contextlib.suppress(psutil.Error):
                    peaks[each.pid] = max(peaks.get(each.pid, 0), each.memory_info().rss)
                    seconds[each.pid] = sum(each.cpu_times()[:2])
            time.sleep(0.5)
        assert process.stdout is not None
        assert process.stderr is not None
        told, said = process.stdout.read(), process.stderr.read().decode()
    if process.returncode:
        raise SystemExit(f"exit {process.returncode}: {said}")
    result = json.loads(told)
    workers = sorted((peak for pid, peak in peaks.items() if pid != process.pid), reverse=True)
    files, bytes_now = _size(lake)
    return {
        "wallets": result["wallets"],
        "balances": result["balances"],
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(sum(seconds.values()), 1),
        "driver_mb": peaks.get(process.pid, 0) >> 20,
        "worker_mb": [peak >> 20 for peak in workers[:4]],
        "files_written": files - before[0],
        "mb_written": (bytes_now - before[1]) >> 20,
        "lake_mb": bytes_now >> 20,
    }


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def _size(folder: Path) -> tuple[int, int]:
    files = [file for file in folder.rglob("*") if file.is_file()] if folder.exists() else []
    return len(files), sum(file.stat().st_size for file in files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wallets", type=int, default=20_000)
    parser.add_argument("--nfts", type=int, default=10, help="of each wallet")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--buckets", default="64")
    parser.add_argument("--runs", nargs="+", default=_RUNS, choices=_RUNS)
    parser.add_argument("--folder", help="where the lake stays; else nothing does")
    given = parser.parse_args()
    with contextlib.ExitStack() as held:
        folder = Path(given.folder or held.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(exist_ok=True)
        file = folder / "wallets.txt"
        file.write_text("\n".join(map(wallet_id, range(given.wallets))))
        options = ["--workers", given.workers, "--buckets", given.buckets]
        with provider(given.nfts, folder / "day") as url:
            for what in given.runs:
                if what == "changed":
                    (folder / "day").touch()
                figures = sync(folder / "lake", url, file, options)
                print(
                    json.dumps({"run": what, "processors": os.cpu_count(), **figures}), flush=True
                )


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(_serve(*sys.argv[2:]))
    else:
        main()
