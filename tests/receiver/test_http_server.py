"""Our HTTP server: slow and greedy clients, taken ports, and a stop that loses no reply."""

from __future__ import annotations

import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from receiver_webhooks import SECRET, body, headers, raw
from running_receiver import Running

from nftsync.errors import InputError
from nftsync.wsgi import RECEIVED_AT, HttpServer, Listener


def hello(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Length", "5")])
    return [b"hello"]


def is_closed(link: socket.socket) -> bool:
    """Wait until the server ends a connection; True if it sent nothing before."""
    try:
        return link.recv(1) == b""
    except ConnectionResetError:
        return True


def test_slow_clients_do_not_keep_a_good_one_waiting(receiver: Running) -> None:
    content = body()
    with ExitStack() as stack:
        for number in range(24):
            link = stack.enter_context(receiver.connect())
            whole = raw(content)
            link.sendall(whole[:40] if number % 2 else whole[:-100])
        assert [receiver.post(body()) for _ in range(20)] == [200] * 20
    assert len(receiver.webhooks()) == 20


@pytest.mark.parametrize("part", [b"", b"GET / HT", raw(body())[:-10]])
def test_a_request_that_never_ends_is_cut_off(part: bytes) -> None:
    limits = {"request_seconds": 0.3, "idle_seconds": 0.3}
    with (
        HttpServer(hello, **limits) as server,  # type: ignore[arg-type]
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as link,
    ):
        link.sendall(part)
        assert is_closed(link)


def test_a_drip_of_bytes_does_not_prolong_a_request() -> None:
    """Each byte makes the connection active, but the request began when it began."""
    with (
        HttpServer(hello, request_seconds=0.5, idle_seconds=1_000) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=0.05) as link,
    ):
        for _ in range(400):
            try:
                link.sendall(b"x")
                if link.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except (ConnectionResetError, BrokenPipeError):
                return
    pytest.fail("the connection was never ended")


def test_where_slow_clients_hold_all_connections_a_good_one_still_gets_in(
    run: Callable[..., Running],
) -> None:
    receiver = run(limits={"connections": 5})
    with ExitStack() as stack:
        slow = [stack.enter_context(receiver.connect()) for _ in range(12)]
        for link in slow:
            link.sendall(raw(body())[:-10])
        content = body()
        for _ in range(5):
            reply = httpx.post(
                f"{receiver.server.url}/webhooks",
                content=content,
                headers=headers(content),
                trust_env=False,
            )
            assert reply.status_code == 200
        assert is_closed(slow[0]), "the one that came first goes first"
    assert receiver.webhooks("deliveries") == [(5,)]


def test_ports_and_hosts_that_cannot_be_used_are_named() -> None:
    with (
        HttpServer(hello) as server,
        pytest.raises(InputError, match=rf"port {server.port} .* taken; .* --web-port"),
    ):
        Listener(port=server.port, flag="--web-port")
    for host, port in (("127.0.0.1", 70_000), ("no.such.host.invalid", 0), ("192.0.2.1", 0)):
        with pytest.raises(InputError, match="cannot listen"):
            Listener(host, port)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_names_and_both_kinds_of_addresses_are_served(host: str) -> None:
    if host == "::1" and not _has_ipv6():
        pytest.skip("no IPv6 on this machine")
    with HttpServer(hello, Listener(host)) as server:
        assert httpx.get(server.url, trust_env=False).text == "hello"


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_its_port_is_free_after_a_stop_and_its_threads_have_ended() -> None:
    before = set(threading.enumerate())
    with HttpServer(hello) as server:
        httpx.get(server.url, trust_env=False)
    server.close()
    assert set(threading.enumerate()) <= before  # those of earlier tests may end meanwhile
    with HttpServer(hello, Listener(port=server.port)) as again:
        assert httpx.get(again.url, trust_env=False).text == "hello"


class Slow:
    """An app whose requests last until they are let go."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., object]
    ) -> Iterable[bytes]:
        self.entered.release()
        assert self.go.wait(20)
        return hello(environ, start_response)


def test_however_many_requests_wait_one_more_is_answered_at_once() -> None:
    slow = Slow()

    def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        return (slow if environ["PATH_INFO"] == "/slow" else hello)(environ, start_response)

    with HttpServer(app) as server, ExitStack() as stack:
        links = []
        for _ in range(150):
            link = socket.create_connection(("127.0.0.1", server.port), timeout=20)
            links.append(stack.enter_context(link))
            link.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in links:
            assert slow.entered.acquire(timeout=20)
        assert httpx.get(server.url, trust_env=False, timeout=20).text == "hello"
        slow.go.set()
        assert [link.recv(12) for link in links] == [b"HTTP/1.1 200"] * len(links)


def test_the_app_is_told_when_the_whole_request_was_here() -> None:
    times: list[float] = []

    def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        times.extend((environ[RECEIVED_AT], time.monotonic()))
        return hello(environ, start_response)

    with (
        HttpServer(app) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as link,
    ):
        link.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n")
        time.sleep(0.05)
        times.append(time.monotonic())
        link.sendall(b"x")
        assert link.recv(12) == b"HTTP/1.1 200"
    assert times == sorted(times)


def test_a_stop_lets_requests_in_work_finish_and_takes_no_new_ones() -> None:
    app = Slow()
    server = HttpServer(app)
    idle = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    link = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    with link, idle:
        link.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert app.entered.acquire(timeout=20)
        stopping = threading.Thread(target=server.close)
        stopping.start()
        assert is_closed(idle)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", server.port), timeout=20)
        app.go.set()
        reply = link.makefile("rb").read()
        stopping.join()
    assert reply.startswith(b"HTTP/1.1 200")
    assert reply.endswith(b"hello")


def test_a_stop_lets_a_request_that_is_coming_in_finish() -> None:
    app = Slow()
    server = HttpServer(app)
    first = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    second = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    with first, second:
        first.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        second.sendall(b"GET / HTTP/1.1\r\nHo")
        assert app.entered.acquire(timeout=20)
        stopping = threading.Thread(target=server.close)
        stopping.start()
        second.sendall(b"st: x\r\n\r\n")
        assert app.entered.acquire(timeout=20)
        app.go.set()
        replies = [link.makefile("rb").read() for link in (first, second)]
        stopping.join()
    assert [reply[:15] for reply in replies] == [b"HTTP/1.1 200 OK"] * 2
    assert b"Connection: close" in replies[1]


def test_a_stop_does_not_wait_for_ever_for_a_request_that_does_not_end() -> None:
    server = HttpServer(hello)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as link:
        link.sendall(b"GET / HTTP/1.1\r\nHo")
        server.close()
        assert is_closed(link)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


SERVE = """
import sys
from pathlib import Path
from nftsync.wsgi import HttpServer, Listener, stop_signals
from nftsync.receiver import close_app, create_app, quick_path
with stop_signals() as wait:
    app = create_app(database=Path(sys.argv[1]), secrets=[sys.argv[2]])
    with HttpServer(app, quick=quick_path(app)) as server:
        print(server.port, flush=True)
        wait()
    close_app(app)
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_request_in_flight_be_stored_and_answered(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The database is locked while the signal comes, so the request waits for its commit."""
    database = tmp_path / "nftsync.db"
    content = body()
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(database), SECRET], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
            with closing(sqlite3.connect(database, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                link.sendall(raw(content))
                process.send_signal(number)
                while listens(port):
                    pass
                other.execute("ROLLBACK")
            assert link.makefile("rb").read().startswith(b"HTTP/1.1 200 OK")
        assert process.stdout.read() == "ended\n"
        assert process.wait() == 0
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT body FROM webhooks").fetchall() == [(content,)]
