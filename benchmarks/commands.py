"""Commands of nftsync as processes, and webhooks to a running `serve`; benchmarks share them."""

from __future__ import annotations

import json
import os
import random
import socket
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, TypeAlias
from urllib.request import Request, urlopen

from nftsync.provider.webhooks import HEADER, sign

Serving: TypeAlias = AbstractContextManager[str]
SECRET = "a-secret-for-benchmarks"
#: Seconds until a command is ready, or a webhook has changed a row.
PATIENCE = 60.0


def progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def environment() -> dict[str, str]:
    """Return the shell's variables without settings of nftsync, and with the webhooks' secret."""
    shell = {name: text for name, text in os.environ.items() if not name.startswith("NFTSYNC_")}
    return shell | {"NFTSYNC_WEBHOOK_SECRET": SECRET}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until a port accepts connections."""
    for _ in range(200):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)


def program(*arguments: str | Path, python: str = sys.executable) -> list[str]:
    """Return a command line of nftsync; `-P` keeps the working directory from hiding a checkout."""
    return [python, "-P", "-m", "nftsync", *map(str, arguments)]


@contextmanager
def running(
    *arguments: str | Path, path: str, python: str = sys.executable
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a command that serves HTTP; yield its URL and process once it answers at a path."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = program(*arguments, "--port", str(port), python=python)
    variables = os.environ | {"NFTSYNC_WEBHOOK_SECRET": SECRET}
    with subprocess.Popen(command, env=variables, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline and process.poll() is None:
                try:
                    urlopen(f"{url}{path}").close()
                    break
                except OSError:
                    time.sleep(0.02)
            yield url, process
        finally:
            process.terminate()
            process.wait()


@contextmanager
def sandbox(wallets: int, nfts: int) -> Iterator[str]:
    """Run the sandbox; yield its URL."""
    arguments = ["sandbox", "--wallets", str(wallets), "--nfts", str(nfts)]
    with running(*arguments, path="/sandbox/wallets") as (url, _):
        yield url


@contextmanager
def serving(
    base: str, database: Path, *options: str, python: str = sys.executable
) -> Iterator[str]:
    """Run `serve`; yield its URL."""
    arguments = ("serve", "--base-url", base, "-d", database, *options)
    with running(*arguments, path="/readyz", python=python) as (url, _):
        yield url


def result(*arguments: str | Path, python: str = sys.executable) -> dict[str, Any]:
    """Run a command with `--json`; return its result."""
    command = program(*arguments, "--json", python=python)
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-300:]}")
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def call(method: str, url: str, body: object) -> Any:
    with urlopen(Request(url, json.dumps(body).encode(), method=method)) as response:
        return json.load(response)


def sync(base: str, database: Path, *options: str) -> dict[str, Any]:
    """Sync all wallets of a sandbox."""
    ids = database.with_suffix(".txt")
    with urlopen(f"{base}/sandbox/wallets") as response:
        ids.write_text("\n".join(json.load(response)))
    return result("sync", "--base-url", base, "-d", database, "--wallets-file", ids, *options)


def query(database: Path, sql: str, *values: object) -> list[Any]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(sql, values).fetchall()


def wallets_of(database: Path) -> list[str]:
    return [row[0] for row in query(database, "SELECT wallet_id FROM wallets")]


def copied(database: Path, copy: Path) -> Path:
    """Copy a database with its log."""
    copy.unlink(missing_ok=True)
    with closing(sqlite3.connect(database)) as old, closing(sqlite3.connect(copy)) as new:
        old.backup(new)
    return copy


def webhook(resource_type: str, resource_id: str) -> bytes:
    """Return the body of a webhook."""
    return json.dumps(
        {
            "organizationId": str(uuid.UUID(int=1)),
            "action": "update",
            "id": str(uuid.UUID(int=random.getrandbits(128), version=4)),
            "resourceId": resource_id,
            "resourceType": resource_type,
            "createdAtUtc": "2026-01-31T12:00:00.1234567+00:00",
            "changes": None,
        }
    ).encode()


def signed(body: bytes) -> dict[str, str]:
    """Return the headers of a webhook."""
    trace = os.urandom(16).hex()
    return {
        HEADER: sign(SECRET, body),
        "Content-Type": "application/json; charset=utf-8",
        "Request-Id": f"|{trace}.{trace[:16]}.",
        "Traceparent": f"00-{trace}-{trace[:16]}-00",
    }


def post_all(url: str, bodies: Sequence[bytes], per_second: float | None = None) -> list[float]:
    """Send webhooks over one connection; return the seconds until each response.

    A status other than 200 ends the benchmark.
    """
    waits = []
    began = time.monotonic()
    with closing(HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE)) as link:
        for number, body in enumerate(bodies):
            if per_second is not None:
                time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            sent = time.perf_counter()
            link.request("POST", "/webhooks", body, signed(body))
            response = link.getresponse()
            response.read()
            waits.append(time.perf_counter() - sent)
            if response.status != 200:
                raise SystemExit(f"a webhook was answered {response.status}")
    return waits


def seconds_to_row(url: str, database: Path, wallet: str) -> float:
    """Send a webhook on a changed wallet; return the seconds from its 200 to the changed row."""
    newest = "SELECT max(change_id) FROM balance_changes"
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        before = connection.execute(newest).fetchone()
        post_all(url, [webhook("Wallet", wallet)])
        began = time.perf_counter()
        while connection.execute(newest).fetchone() == before:
            if time.perf_counter() - began > PATIENCE:
                raise SystemExit("a webhook changed nothing")
            time.sleep(0.001)
    return time.perf_counter() - began
