import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from nftsync.errors import InputError
from nftsync.wsgi import HttpServer, Listener
from tests.kit.worlds import PATIENCE
from tests.receiver.conftest import body, raw

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def hello(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Length", "5")])
    return [b"hello"]


def connect(server: HttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def test_slow_clients_do_not_keep_a_good_one_waiting(receiver):
    whole = raw(body())
    with ExitStack() as stack:
        for number in range(24):
            link = stack.enter_context(receiver.connect())
            link.sendall(whole[:40] if number % 2 else whole[:-100])
        assert [receiver.post(body()) for _ in range(20)] == [200] * 20
    assert len(receiver.webhooks()) == 20


def get(server: HttpServer) -> str:
    return httpx.get(server.url, trust_env=False, verify=False, timeout=PATIENCE).text


@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_names_and_both_kinds_of_addresses_are_served(host):
    try:
        listener = Listener(host)
    except InputError:
        assert host == "::1", "which a machine may lack"
        pytest.skip("no IPv6 on this machine")
    with HttpServer(hello, listener) as server:
        assert get(server) == "hello"


def test_its_port_is_taken_until_a_stop_which_ends_its_threads():
    before = set(threading.enumerate())
    with HttpServer(hello) as server:
        get(server)
        with pytest.raises(InputError, match=rf"port {server.port} .* taken by .*; use --web-port"):
            Listener(port=server.port, advice="use --web-port")
    server.close()
    assert set(threading.enumerate()) <= before  # threads of earlier tests may end meanwhile
    with HttpServer(hello, Listener(port=server.port)) as again:
        assert get(again) == "hello"
    for host, port in (("127.0.0.1", 70_000), ("no.such.host.invalid", 0), ("192.0.2.1", 0)):
        with pytest.raises(InputError, match="cannot listen"):
            Listener(host, port)


def test_a_stop_lets_requests_in_work_finish_refuses_others_and_cuts_off_half_sent_ones():
    entered, go = threading.Semaphore(0), threading.Event()
    whole = b"x" * 5_000_000  # more than the system takes at once

    def slow(_: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        entered.release()
        assert go.wait(PATIENCE)
        start_response("200 OK", [("Content-Length", str(len(whole)))])
        return [whole]

    server = HttpServer(slow)
    with connect(server) as working, connect(server) as half, connect(server) as idle:
        working.sendall(REQUEST)
        half.sendall(REQUEST[:-4])
        assert entered.acquire(timeout=PATIENCE)
        stopping = threading.Thread(target=server.close)
        stopping.start()
        refused = b"HTTP/1.1 200"
        while refused.startswith(b"HTTP/1.1 200"):  # until the stop has begun
            go.set()
            with connect(server) as late:
                late.sendall(REQUEST)
                refused = late.recv(5_000_000)
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"Connection: close" in refused
        reply = b""
        while len(reply) < 5_000_000:
            reply += working.recv(1_000_000)
        assert reply.startswith(b"HTTP/1.1 200")
        stopping.join()
        assert half.recv(1) == idle.recv(1) == b""


LIMITED = """
import resource, sys
from nftsync.wsgi import HttpServer
def hello(environ, start_response):
    start_response("200 OK", [("Content-Length", "5")])
    return [b"hello"]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with HttpServer(hello) as server:
    print(server.port, flush=True)
    sys.stdin.read()
"""


def test_more_clients_than_descriptors_wait_and_bring_no_flood_of_errors():
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(
            [sys.executable, "-c", LIMITED], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        ) as process,
        ExitStack() as stack,
    ):
        assert process.stdout is not None
        port = int(process.stdout.readline())
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        time.sleep(0.3)
        stack.close()
        reply = httpx.get(f"http://127.0.0.1:{port}", trust_env=False, verify=False, timeout=20)
        assert reply.text == "hello"
        _, errors = process.communicate()
    assert "Traceback" not in errors
    assert len(errors.splitlines()) <= 200, errors
    told = errors.splitlines()[0]  # at the start
    assert all(text in told for text in ("32 clients at once", "64 files", "ulimit -n"))


@pytest.mark.skipif(
    0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 3_000,
    reason="this process may not open the files of both sides of 700 connections",
)
def test_700_idle_connections_stop_nobody_and_none_had_to_be_closed_for_that():
    """Nor do descriptors of more than 1,024, which `select` could not serve."""
    with HttpServer(hello, idle_seconds=3_600) as server, ExitStack() as stack:
        idle = [stack.enter_context(connect(server)) for _ in range(700)]
        assert get(server) == "hello"
        for one in idle:
            one.setblocking(False)
            with pytest.raises(BlockingIOError):  # else it was closed
                one.recv(1)


def test_clients_that_wait_get_their_turn_when_idle_ones_are_closed():
    with HttpServer(hello, connections=4, idle_seconds=1) as server, ExitStack() as stack:
        idle = [stack.enter_context(connect(server)) for _ in range(20)]
        assert get(server) == "hello"
        for one in idle:
            one.settimeout(PATIENCE)
            assert one.recv(1) == b""
