"""The log never delays the receiver, and its size is bounded."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO

import httpx

from tests.kit.database import begun_once
from tests.kit.processes import start_process
from tests.kit.provider import wallet
from tests.kit.serve_process import (
    PATIENCE,
    SECRET,
    command,
    environment,
    free_port,
    id_of,
    post,
    states,
    webhook,
)
from tests.kit.terminals import open_terminal
from tests.kit.waiting import wait_until


def start(stderr: int, port: int) -> subprocess.Popen[bytes]:
    words = ("-d", begun_once(Path("nftsync.db")), "--port", port, "--no-replay")
    process = start_process(command("serve", *words), env=environment(), stderr=stderr)
    os.close(stderr)
    return process


@contextmanager
def unread(port: int) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """Run a `serve` whose stderr is a full pipe without a reader; blank lines fill it."""
    read_end, written_end = os.pipe()
    os.set_blocking(written_end, False)
    with suppress(BlockingIOError):
        while True:
            os.write(written_end, b"\n" * 4096)
    os.set_blocking(written_end, True)
    with os.fdopen(read_end, "rb") as pipe:
        yield start(written_end, port), pipe


def answers(url: str) -> bool:
    with suppress(httpx.ConnectError):
        return httpx.get(url, trust_env=False, verify=False).status_code == 200
    return False


def flood(base: str, count: int) -> None:
    """Send signed webhooks that cannot be used, each of which is a long line of the log."""
    wait_until(lambda: answers(f"{base}/healthz"))
    key = b"k" * 150
    bodies = [b'{"%s": %d, "%s": 0}' % (key, number, key) for number in range(count)]
    with (
        httpx.Client(trust_env=False, verify=False, timeout=PATIENCE) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        sent = pool.map(lambda body: post(f"{base}/webhooks", body, client=client), bodies)
        assert set(sent) == {200}


def test_an_error_without_a_reader_ends_it():
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as taken,
        unread(taken.getsockname()[1]) as (process, _),
    ):
        assert process.wait(timeout=PATIENCE) == 2


def test_without_a_reader_it_receives_and_later_logs_the_number_of_dropped_lines(database):
    sent, raw, port = 1_200, [], free_port()
    base = f"http://127.0.0.1:{port}"
    with unread(port) as (process, pipe):
        flood(base, sent)
        body = webhook("Wallet", wallet(1))
        assert [post(f"{base}/webhooks", body, key) for key in (SECRET, "another")] == [200, 401]
        assert answers(f"{base}/readyz")
        reader = threading.Thread(target=lambda: raw.extend(filter(bytes.strip, pipe)))
        reader.start()
        wait_until(lambda: any(b"log lines were dropped" in line for line in list(raw)))
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == 0
        reader.join()
    assert states(database)[id_of(body)] == "pending"
    lines = [json.loads(line) for line in raw]
    said = Counter(line["message"] for line in lines)
    (gap,) = (line for line in lines if line["message"] == "log lines were dropped")
    logged = said["a webhook was quarantined"] + said["refused a webhook"]
    assert (gap["level"], gap["dropped"] + logged) == ("WARNING", sent + 1)
    ends = [lines[number]["message"] for number in (0, -2, -1)]
    assert ends == ["serving", "stopping", "stopped"]


def test_malformed_requests_take_a_bounded_part_of_the_log(serve):
    length = b"9" * 4_400  # more digits than Python makes a number of
    with serve(None, "--no-replay") as server:
        for _ in range(100):
            with closing(socket.create_connection(("127.0.0.1", server.port), timeout=60)) as link:
                link.sendall(b"POST /webhooks HTTP/1.1\r\nContent-Length: " + length + b"\r\n\r\n")
                with suppress(ConnectionError):
                    link.recv(4096)
        assert server.get("/healthz") == 200
    by_second = Counter(line["time"][:19] for line in server.lines if line["logger"] == "waitress")
    assert all(count <= 20 for count in by_second.values()), by_second


def test_on_a_terminal_its_lines_are_for_people():
    terminal, theirs = open_terminal()
    url = f"http://127.0.0.1:{(port := free_port())}/webhooks"
    process = start(theirs, port)
    said = b""

    def wait_for(text: bytes) -> None:
        nonlocal said
        while text not in said:
            said += os.read(terminal, 4096)

    wait_for(b"serving")
    assert post(url, b'{"id": "\\u001b[2J", "x": 0}') == 200
    assert post(url, b"{}", "another secret") == 401
    wait_for(b"refused")
    process.send_signal(signal.SIGTERM)
    wait_for(b"stopped")
    assert process.wait(timeout=PATIENCE) == 0
    os.close(terminal)
    lines = said.decode().splitlines()
    [advice] = [line for line in lines[:2] if line.endswith("Stop with Ctrl-C.")]
    logged = [line for line in lines if line != advice]
    head = r"[0-2]\d:[0-5]\d:[0-5]\dZ (INFO   |WARNING) "
    assert all(re.match(head, line) for line in logged), logged
    refused = next(line for line in logged if "refused a webhook" in line)
    assert "reason wrong, remote 127.0.0.1, bytes 2" in refused
    assert "\x1b" not in said.decode()
