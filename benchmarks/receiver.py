"""The receiver under load: durable webhooks a second and how long each waits for its reply.

The load comes from a process of its own, over kept-alive connections with one webhook in flight on
each.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figure import Figure
from nftsync.provider.webhooks import HEADER, sign

SECRET = "benchmark"
ORGANIZATION = str(uuid.UUID(int=1))


def requests(count: int) -> list[bytes]:
    """Distinct signed webhooks, as they go over the wire."""
    made = []
    for _ in range(count):
        body = json.dumps(
            {
                "organizationId": ORGANIZATION,
                "action": "update",
                "id": str(uuid.UUID(bytes=os.urandom(16))),
                "resourceId": str(uuid.UUID(bytes=os.urandom(16))),
                "resourceType": "Wallet",
                "createdAtUtc": "2026-01-31T12:00:00.1234567+00:00",
                "changes": None,
            }
        ).encode()
        head = (
            "POST /webhooks HTTP/1.1\r\nHost: receiver\r\n"
            "Content-Type: application/json; charset=utf-8\r\n"
            f"{HEADER}: {sign(SECRET, body)}\r\n"
            "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return made


def load(port: int, count: int, connections: int) -> None:
    """Send webhooks, and print how that went as JSON."""
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
                    raise SystemExit("an answer that is no 200")
                moment = time.perf_counter()
                waits.append(moment - sent[link])
                if waiting:
                    sent[link] = moment
                    link.sendall(waiting.pop())
        seconds = time.perf_counter() - began
    waits.sort()
    print(
        json.dumps(
            {
                "rate": count / seconds,
                "p50": waits[count // 2] * 1000,
                "p99": waits[int(count * 0.99)] * 1000,
                "worst": waits[-1] * 1000,
            }
        )
    )


def serve(database: Path) -> None:
    """Serve until standard input ends; prints the port."""
    from nftsync.receiver.app import close_app, create_app
    from nftsync.wsgi import HttpServer

    app = create_app(database=database, secrets=[SECRET])
    with HttpServer(app) as server:
        print(server.port, flush=True)
        began = time.process_time()
        sys.stdin.read()
        print(time.process_time() - began, flush=True)
    close_app(app)


@contextmanager
def serving(database: Path, spent: list[float]) -> Iterator[int]:
    """The receiver in a process of its own; yields its port, appends its seconds of CPU."""
    command = [sys.executable, "-m", "benchmarks.receiver", "--serve", str(database)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        spent.append(float(process.communicate()[0]))


def measure(database: Path, webhooks: int, connections: int) -> dict[str, float]:
    """One round, of new webhooks into a new database."""
    spent: list[float] = []
    with serving(database, spent) as port:
        command = [sys.executable, "-m", "benchmarks.receiver", "--load", str(port)]
        command += ["--webhooks", str(webhooks), "--connections", str(connections)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result | {"cpu": spent[0] / webhooks * 1e6}


def medians(webhooks: int, connections: int, rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        found = [
            measure(Path(name) / f"{turn}.db", webhooks, connections) for turn in range(rounds)
        ]
    return {key: statistics.median(each[key] for each in found) for key in found[0]}


def figures(*, small: bool = False) -> list[Figure]:
    """The lines of the report.

    Args:
        small: a few seconds, to see that it works.
    """
    found = medians(1_000 if small else 20_000, 32, 1 if small else 5)
    return [
        Figure(
            "durable webhooks, 32 connections",
            f"{found['rate']:,.0f} webhooks/s",
            target="at least 1,000/s",
            met=found["rate"] >= 1_000,
        ),
        Figure(
            "wait for the reply, p99",
            f"{found['p99']:.1f} ms",
            target="under 100 ms",
            met=found["p99"] < 100,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--webhooks", type=int, default=20_000)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--load", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load is not None:
        return load(given.load, given.webhooks, given.connections)
    if given.serve is not None:
        return serve(given.serve)
    found = medians(given.webhooks, given.connections, given.rounds)
    print(
        f"{given.webhooks:,} webhooks over {given.connections} connections, medians: "
        f"{found['rate']:.0f} webhooks/s; p50 {found['p50']:.1f} ms, p99 {found['p99']:.1f} ms, "
        f"worst {found['worst']:.0f}; {found['cpu']:.0f} µs of CPU each"
    )
    return None


if __name__ == "__main__":
    main()
