"""The sandbox as a provider: reads a second of wallets, from a process of its own.

The load comes from another process, over kept-alive connections with one read in flight on each:
wallets in turn.
"""

from __future__ import annotations

import argparse
import json
import re
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import cycle, islice
from urllib.parse import urlsplit
from urllib.request import urlopen

from benchmarks.figure import Figure
from benchmarks.webhooks import provider


class _Link:
    """A connection with one read in flight."""

    def __init__(self, port: int, requests: Iterator[bytes]) -> None:
        self._requests = requests
        self._heard = bytearray()
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self) -> None:
        """Send the next request, if there is one."""
        request = next(self._requests, None)
        if request is not None:
            self.socket.sendall(request)

    def hear(self) -> bytes | None:
        """Take what has come; the answer's head, once all of it is here."""
        data = self.socket.recv(262_144)
        if not data:
            raise SystemExit("the sandbox has closed a connection")
        self._heard += data
        end = self._heard.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(self._heard[:end])
        if len(self._heard) < end + 4 + int(_field(head, b"content-length") or 0):
            return None
        self._heard.clear()
        return head


def _field(head: bytes, name: bytes) -> bytes:
    found = re.search(rb"\r\n" + name + rb": ([^\r]*)", head, re.IGNORECASE)
    return b"" if found is None else found[1]


def load(base: str, count: int, connections: int) -> None:
    """Read wallets, and print how that went as JSON."""
    with urlopen(f"{base}/sandbox/wallets") as answer:
        wallets = json.load(answer)
    port = urlsplit(base).port
    assert port is not None
    plain = [_request(wallet) for wallet in wallets]
    rate = _rate(port, plain, count, connections)
    print(json.dumps({"read": rate}))


def _request(wallet: str) -> bytes:
    return f"GET /v1/wallets/{wallet}/nft-balances HTTP/1.1\r\nHost: sandbox\r\n\r\n".encode()


def _rate(port: int, requests: list[bytes], count: int, connections: int) -> float:
    """Reads a second."""
    waiting = islice(cycle(requests), count)
    heard = 0
    with selectors.DefaultSelector() as selector:
        links = [_Link(port, waiting) for _ in range(connections)]
        for link in links:
            selector.register(link.socket, selectors.EVENT_READ, link)
        began = time.perf_counter()
        for link in links:
            link.ask()
        while heard < count:
            for key, _ in selector.select():
                head = key.data.hear()
                if head is None:
                    continue
                if not head.startswith(b"HTTP/1.1 200"):
                    raise SystemExit("an answer that is no 200")
                heard += 1
                key.data.ask()
        seconds = time.perf_counter() - began
    for link in links:
        link.socket.close()
    return count / seconds


def measure(wallets: int, reads: int, connections: int, rounds: int) -> dict[str, float]:
    """Medians of some rounds against one sandbox: reads a second, by kind."""
    command = [sys.executable, "-m", "benchmarks.sandbox", "--connections", str(connections)]
    command += ["--reads", str(reads), "--load"]
    found: list[dict[str, float]] = []
    with provider(wallets, 20) as base:
        for _ in range(rounds):
            done = subprocess.run([*command, base], capture_output=True, text=True, check=True)
            found.append(json.loads(done.stdout))
    return {kind: statistics.median(each[kind] for each in found) for kind in found[0]}


def figures(*, small: bool = False) -> list[Figure]:
    """Reads a second from the sandbox.

    Args:
        small: a quick run, only to see that it works.
    """
    wallets, reads, rounds = (50, 500, 1) if small else (2_000, 10_000, 3)
    found = measure(wallets, reads, 16, rounds)
    return [
        Figure(
            "sandbox, wallets of 20 NFTs over 16 connections",
            f"{found['read']:,.0f} reads/s",
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reads", type=int, default=10_000)
    parser.add_argument("--wallets", type=int, default=2_000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load is not None:
        return load(given.load, given.reads, given.connections)
    found = measure(given.wallets, given.reads, given.connections, given.rounds)
    for kind, rate in found.items():
        print(f"{kind}: {rate:,.0f} requests/s over {given.connections} connections")
    return None


if __name__ == "__main__":
    main()
