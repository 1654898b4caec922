"""The log never delays the receiver, and its size is bounded."""

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections import Counter
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import httpx

from tests.kit.database import begun_once
from tests.kit.serve_process import (
    PATIENCE,
    Serve,
    command,
    environment,
    free_port,
    id_of,
    post,
    serving,
    signed,
    states,
    webhook,
)
from tests.kit.terminals import open_terminal
from tests.kit.waiting import wait_until

WALLET = "00000000-0000-4000-8000-000000000001"
KEY = b"k" * 150


class Unread:
    """A `serve` whose stderr is a full pipe without a reader."""

    def __init__(self, folder: Path, port: int) -> None:
        self._read_end, written_end = os.pipe()
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            fcntl.fcntl(written_end, fcntl.F_SETPIPE_SZ, 4096)
        self._filling = _fill(written_end)
        self.port = port
        self.base = f"http://127.0.0.1:{port}"
        self.url = f"{self.base}/webhooks"
        self._reader: threading.Thread | None = None
        database = begun_once(folder / "nftsync.db")
        self.process = subprocess.Popen(
            command("serve", "-d", database, "--port", port, "--no-replay"),
            env=environment(),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=written_end,
        )
        os.close(written_end)

    def get(self, path: str) -> int:
        assert self.process.poll() is None
        with suppress(httpx.ConnectError):
            return httpx.get(self.base + path, trust_env=False, verify=False).status_code
        return 0

    def wait_until_started(self) -> None:
        wait_until(lambda: self.get("/healthz") == 200)

    def read(self) -> list[bytes]:
        """Start reading the pipe; return its lines, to which later ones are added."""
        found: list[bytes] = []

        def run() -> None:
            with open(self._read_end, "rb", closefd=False) as pipe:
                pipe.read(self._filling)
                found.extend(pipe)

        self._reader = threading.Thread(target=run, daemon=True)
        self._reader.start()
        return found

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._reader is not None:
            self._reader.join()
        os.close(self._read_end)


def _fill(pipe: int) -> int:
    filled = 0
    os.set_blocking(pipe, False)
    for size in (4096, 1):
        with suppress(BlockingIOError):
            while True:
                filled += os.write(pipe, b"\n" * size)
    os.set_blocking(pipe, True)
    return filled


def flood(port: int, count: int, connections: int = 20) -> None:
    """Send signed webhooks that cannot be used, many at once, and wait for the replies.

    Each is a long line of the log.
    """
    clients = [HTTPConnection("127.0.0.1", port, timeout=PATIENCE) for _ in range(connections)]
    for first in range(0, count, connections):
        for number, client in enumerate(clients, first):
            body = b'{"%s": %d, "%s": 0}' % (KEY, number, KEY)
            client.request("POST", "/webhooks", body, signed(body))
        for client in clients:
            with client.getresponse() as reply:
                assert reply.status == 200
                reply.read()
    for client in clients:
        client.close()


def test_without_a_reader_of_stderr_it_receives_and_stops(
    tmp_path: Path,
) -> None:
    good = [webhook("Wallet", WALLET) for _ in range(3)]
    with closing(Unread(tmp_path, free_port())) as server:
        server.wait_until_started()
        assert {post(server.url, b"{}", "another secret") for _ in range(30)} == {401}
        flood(server.port, 100)
        assert [post(server.url, body) for body in good] == [200, 200, 200]
        assert [server.get("/healthz"), server.get("/readyz")] == [200, 200]
        assert server.stop() == 0
    found = states(tmp_path / "nftsync.db")
    assert [found[id_of(body)] for body in good] == ["pending"] * 3


def test_an_error_without_a_reader_ends_it(tmp_path: Path) -> None:
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as taken,
        closing(Unread(tmp_path, taken.getsockname()[1])) as server,
    ):
        assert server.process.wait(timeout=PATIENCE) == 2


def test_a_log_that_is_read_again_has_the_number_of_dropped_lines(
    tmp_path: Path,
) -> None:
    sent = 1_500
    with closing(Unread(tmp_path, free_port())) as server:
        server.wait_until_started()
        flood(server.port, sent)
        raw = server.read()
        wait_until(lambda: any(b"log lines were dropped" in line for line in list(raw)), "dropped")
        assert server.stop() == 0
    lines = [json.loads(line) for line in raw]
    said = Counter(line["message"] for line in lines)
    (gap,) = (n for n, line in enumerate(lines) if line["message"] == "log lines were dropped")
    assert lines[gap]["level"] == "WARNING"
    assert lines[gap]["dropped"] + said["a webhook was quarantined"] == sent
    assert [line["message"] for line in (lines[0], *lines[-2:])] == [
        "serving",
        "stopping",
        "stopped",
    ]


def test_malformed_requests_take_a_bounded_part_of_the_log(
    tmp_path: Path,
) -> None:
    # More digits than Python makes a number of.
    length = b"9" * 4_400
    sent = 0

    def send(server: Serve) -> None:
        nonlocal sent
        port = int(server.base.rpartition(":")[2])
        with closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as client:
            client.sendall(b"POST /webhooks HTTP/1.1\r\nContent-Length: " + length + b"\r\n\r\n")
            with suppress(ConnectionError):
                client.recv(4096)
        sent += 1

    with serving(tmp_path, None, "--no-replay") as server:
        for _ in range(100):
            send(server)
        assert server.get("/healthz") == 200
        assert server.stop() == 0
    by_second = Counter(line["time"][:19] for line in server.lines if line["logger"] == "waitress")
    assert all(count <= 20 for count in by_second.values()), by_second


def test_on_a_terminal_its_lines_are_for_people(tmp_path: Path) -> None:
    terminal, theirs = open_terminal()
    hostile = b'{"id": "\\u001b[2J", "x": 0}'
    port, database = free_port(), begun_once(tmp_path / "nftsync.db")
    with subprocess.Popen(
        command("serve", "-d", database, "--port", port, "--no-replay"),
        env=environment(),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        said = b""

        def says(text: bytes) -> bool:
            nonlocal said
            said += os.read(terminal, 4096)
            return text in said

        wait_until(lambda: says(b"serving"))
        assert post(f"http://127.0.0.1:{port}/webhooks", hostile) == 200
        assert post(f"http://127.0.0.1:{port}/webhooks", b"{}", "another secret") == 401
        wait_until(lambda: says(b"refused"))
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: says(b"stopped"))
        assert process.wait(timeout=PATIENCE) == 0
    os.close(terminal)
    lines = said.decode().splitlines()
    head = r"[0-2]\d:[0-5]\d:[0-5]\dZ (INFO   |WARNING) "
    assert lines[0].endswith("Stop with Ctrl-C.") or lines[1].endswith("Stop with Ctrl-C.")
    logged = [line for line in lines if "Ctrl-C" not in line]
    assert all(re.match(head, line) for line in logged), logged
    refused = next(line for line in logged if "refused a webhook" in line)
    assert "reason wrong, remote 127.0.0.1, bytes 2" in refused
    assert "\x1b" not in said.decode()
