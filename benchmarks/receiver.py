"""Receiver under load: durable webhooks per second, and the wait for each response.

Another process sends distinct signed webhooks over kept-alive connections, one at a time on each.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from pathlib import Path

from benchmarks.commands import serving, signed, webhook
from benchmarks.figure import Figure


def requests(count: int) -> list[bytes]:
    """Return distinct signed webhooks as HTTP requests."""
    texts = []
    for _ in range(count):
        body = webhook("Wallet", str(uuid.UUID(bytes=os.urandom(16), version=4)))
        lines = [f"{name}: {text}" for name, text in signed(body).items()]
        head = ["POST /webhooks HTTP/1.1", "Host: receiver", *lines, f"Content-Length: {len(body)}"]
        texts.append("\r\n".join([*head, "", ""]).encode() + body)
    return texts


def load(port: int, count: int, connections: int) -> None:
    """Send webhooks; print the rate and the percentiles of the waits as JSON."""
    waiting = requests(count)
    waits: list[float] = []
    with selectors.DefaultSelector() as selector:
        sent: dict[socket.socket, float] = {}
        for _ in range(connections):
            link = socket.create_connection(("127.0.0.1", port))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(link, selectors.EVENT_READ)
            sent[link] = 0.0
        parts: defaultdict[socket.socket, bytes] = defaultdict(bytes)
        began = time.perf_counter()
        for link in sent:
            sent[link] = time.perf_counter()
            link.sendall(waiting.pop())
        while len(waits) < count:
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                link = key.fileobj
                parts[link] += link.recv(65536)
                if not parts[link].endswith(b"}\n"):
                    continue
                if not parts.pop(link).startswith(b"HTTP/1.1 200"):
                    raise SystemExit("a webhook was not answered 200")
                moment = time.perf_counter()
                waits.append(moment - sent[link])
                if waiting:
                    sent[link] = moment
                    link.sendall(waiting.pop())
        seconds = time.perf_counter() - began
    waits.sort()
    print(json.dumps({"rate": count / seconds, "p99": waits[int(count * 0.99)] * 1000}))


def measure(database: Path, count: int, python: str = sys.executable) -> dict[str, float]:
    """Send webhooks to a receiver with a new database, over 32 connections."""
    with serving("http://127.0.0.1:9", database, "--no-replay", python=python) as url:
        command = [sys.executable, "-m", "benchmarks.receiver", url.rpartition(":")[2]]
        done = subprocess.run(
            [*command, str(count), "32"], capture_output=True, text=True, check=True
        )
    values: dict[str, float] = json.loads(done.stdout)
    return values


def figures(*, small: bool = False) -> list[Figure]:
    """Measure the receiver; about 2 minutes."""
    count, rounds = (1_000, 1) if small else (20_000, 5)
    with tempfile.TemporaryDirectory() as name:
        values = [measure(Path(name, f"{turn}.db"), count) for turn in range(rounds)]
    rate, p99 = (statistics.median(value[key] for value in values) for key in ("rate", "p99"))
    return [
        Figure(
            "durable webhooks, 32 connections",
            f"{rate:,.0f} webhooks/s",
            target="at least 1,000/s",
            met=rate >= 1_000,
        ),
        Figure("wait for the reply, p99", f"{p99:.1f} ms", target="under 100 ms", met=p99 < 100),
    ]


if __name__ == "__main__":
    load(*map(int, sys.argv[1:]))
