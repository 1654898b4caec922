"""`nftsync serve` and other commands as processes, and webhooks for them."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from nftsync.provider.webhooks import HEADER, sign
from nftsync.sandbox.server import SandboxServer
from tests.kit.database import begun_once
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE

SECRET = "a-secret-that-never-shows"
ORGANIZATION = "00000000-0000-4000-8000-00000000000a"
HTTP: dict[str, Any] = {"trust_env": False, "verify": False, "timeout": 30}


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
        return port


def environment(**variables: str | None) -> dict[str, str]:
    """Return this process's environment with the secret, and without other settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NFTSYNC_")}
    given = {"NFTSYNC_WEBHOOK_SECRET": SECRET, **variables}
    return kept | {name: value for name, value in given.items() if value is not None}


def command(name: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", "nftsync", name, *map(str, arguments)]


def query(database: Path, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        return connection.execute(statement, parameters).fetchall()


def scraped(port: int) -> dict[str, float]:
    """Return the metrics of a `serve`, by name and labels."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", **HTTP).text
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def states(database: Path) -> dict[str, str]:
    """Return the state of each webhook."""
    return dict(query(database, "SELECT webhook_id, state FROM webhooks"))


def wait_until_done(database: Path, *webhook_ids: str) -> None:
    """Wait until these webhooks, by default all stored ones, are done."""

    def done() -> bool:
        found = states(database)
        return all(found.get(each) == "done" for each in webhook_ids or found)

    waiting = "SELECT * FROM webhooks WHERE state != 'done'"
    wait_until(done, lambda: [*query(database, waiting), *query(database, "SELECT * FROM leases")])


def assert_settled(database: Path) -> None:
    """Check that the file is intact, and that nothing is running or leased."""
    assert query(database, "PRAGMA integrity_check") == [("ok",)]
    assert query(database, "SELECT * FROM leases") == []
    assert query(database, "SELECT * FROM webhooks WHERE state = 'running'") == []
    assert query(database, "SELECT * FROM sync_runs WHERE status = 'running'") == []


def webhook(resource_type: str, resource_id: str, **changed: Any) -> bytes:
    """Return the body of a webhook with a new id."""
    fields = {
        "organizationId": ORGANIZATION,
        "action": "update",
        "id": str(uuid.uuid4()),
        "resourceId": resource_id,
        "resourceType": resource_type,
        "createdAtUtc": "2026-01-31T12:00:00.1234567+00:00",
        "changes": None,
    }
    return json.dumps(fields | changed).encode()


def id_of(body: bytes) -> str:
    return str(json.loads(body)["id"])


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    """Return the headers of a webhook."""
    return {HEADER: sign(secret, body), "Content-Type": "application/json; charset=utf-8"}


def post(url: str, body: bytes, secret: str = SECRET, client: httpx.Client | None = None) -> int:
    """Send a webhook; return the status."""
    headers = signed(body, secret)
    if client is not None:
        return client.post(url, content=body, headers=headers).status_code
    return httpx.post(url, content=body, headers=headers, **HTTP).status_code


def configure(provider: SandboxServer, url: str, secret: str = SECRET) -> None:
    """Let the sandbox send nft webhooks to a receiver."""
    config = {"url": url, "enabled": True, "sharedSecret": secret, "webhookTypes": ["nft"]}
    provider.sandbox.configure(json.dumps(config).encode())


class Serve:
    """A running `nftsync serve`.

    Attributes:
        url: of its webhooks.
        base: the base URL.
        port: its port.
        lines: its log, a JSON object each.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.raw: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        wait_until(lambda: self.logged("serving") or process.poll() is not None, "serving")
        if process.poll() is not None:
            self.end()
            raise AssertionError("".join(self.raw))
        self.url = str(self.logged("serving")[0]["url"])
        self.base = self.url.removesuffix("/webhooks")
        self.port = int(self.base.rpartition(":")[2])

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.raw.append(line)
            if line.startswith("{"):
                self.lines.append(json.loads(line))

    def logged(self, message: str) -> list[dict[str, Any]]:
        """Return the log lines that start with a message."""
        return [line for line in list(self.lines) if line["message"].startswith(message)]

    def get(self, path: str) -> int:
        return httpx.get(self.base + path, **HTTP).status_code

    def post(self, body: bytes, secret: str = SECRET) -> int:
        return post(self.url, body, secret)

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(timeout=PATIENCE)
        self.end()
        return code

    def end(self) -> None:
        """Read the rest of the log of an ended process."""
        self.process.wait()
        self._reader.join()
        if self.process.stderr is not None:
            self.process.stderr.close()


@contextmanager
def serving(
    folder: Path,
    provider_url: str | None,
    *arguments: object,
    port: int = 0,
    variables: Mapping[str, str | None] | None = None,
) -> Iterator[Serve]:
    """Run `nftsync serve` on `nftsync.db` in a folder during a block."""
    database = begun_once(folder / "nftsync.db")
    base = [] if provider_url is None else ["--base-url", provider_url]
    process = subprocess.Popen(
        command("serve", "-d", database, "--port", port, *base, *arguments),
        env=environment(**(variables or {})),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    server = Serve(process)
    try:
        yield server
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        server.end()
        print(*server.raw, sep="")  # pytest shows it when the test fails
