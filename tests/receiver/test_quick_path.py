"""Requests that no thread works on: answered at once or later, in order, once, and always."""

from __future__ import annotations

import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPResponse
from queue import SimpleQueue
from typing import Any

import httpx
import pytest
from receiver_webhooks import body, headers, raw
from running_receiver import Running

from nftsync.wsgi import HttpServer, Later, Pending, QuickPath, QuickRequest, Reply

REQUEST = b"POST /quick HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"


def in_a_thread(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Length", "6")])
    return [b"thread"]


def said(text: bytes) -> Reply:
    return Reply("200 OK", (("Content-Type", "text/plain"),), text)


class Waiting:
    """An app whose quick requests wait until they are told; each is answered with its body."""

    def __init__(self, seconds: float = 20.0) -> None:
        self.seconds = seconds
        self.pending: SimpleQueue[Pending] = SimpleQueue()

    def answer(self, request: QuickRequest, later: Later) -> None:
        deadline = request.received_at + self.seconds
        self.pending.put(later(deadline, lambda: said(request.body)))

    def tell(self, pending: Pending | None = None) -> Pending:
        pending = pending or self.pending.get(timeout=20)
        pending.done()
        pending.wake()
        return pending


@contextmanager
def connected(quick: QuickPath | Waiting, threads: int = 1) -> Iterator[socket.socket]:
    path = quick if isinstance(quick, QuickPath) else QuickPath("POST", "/quick", quick.answer)
    with (
        HttpServer(in_a_thread, threads=threads, quick=path) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as link,
    ):
        yield link


def reply(link: socket.socket) -> tuple[int, bytes]:
    answer = HTTPResponse(link, method="POST")
    answer.begin()
    return answer.status, answer.read()


def test_webhooks_that_wait_for_a_commit_hold_no_thread(run: Callable[..., Running]) -> None:
    receiver = run(limits={"threads": 1})
    with ExitStack() as stack:
        links = [stack.enter_context(receiver.connect()) for _ in range(20)]
        with closing(sqlite3.connect(receiver.database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for link in links:
                link.sendall(raw(body()))
            assert receiver.client.get("/healthz").status_code == 200
            other.execute("ROLLBACK")
        assert [reply(link)[0] for link in links] == [200] * 20
    assert len(receiver.webhooks()) == 20


def test_what_needs_a_thread_gets_one() -> None:
    """Another method, another path, a large body."""
    with connected(Waiting()) as link:
        for request in (
            b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n",
            b"POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx",
            b"POST /quick HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000,
        ):
            link.sendall(request)
            assert reply(link) == (200, b"thread")


def test_requests_sent_at_once_are_answered_in_order() -> None:
    app = Waiting()
    with connected(app) as link:
        get = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        link.sendall(REQUEST + b"1" + get + REQUEST + b"2" + get)
        app.tell()
        app.tell()
        stream = link.makefile("rb").read1
        found = b""
        while found.count(b"HTTP/1.1 200 OK") < 4 or not found.endswith(b"thread"):
            found += stream()
    places = [found.index(x) for x in (b"\r\n\r\n1", b"thread", b"\r\n\r\n2")]
    assert places == sorted(places)


def test_at_the_deadline_it_is_answered_and_never_again() -> None:
    app = Waiting(seconds=0.2)
    with connected(app) as link:
        link.sendall(REQUEST + b"1")
        assert reply(link) == (200, b"1")
        late = app.tell()
        link.sendall(REQUEST + b"2")
        told = app.tell()
        assert reply(link) == (200, b"2")
        app.tell(late)
        app.tell(told)
        link.sendall(REQUEST + b"3")
        app.tell()
        assert reply(link) == (200, b"3")


def test_a_client_that_left_before_its_reply_harms_nobody() -> None:
    app = Waiting()
    with connected(app) as link:
        with socket.create_connection(link.getpeername(), timeout=20) as other:
            other.sendall(REQUEST + b"x")
            gone = app.pending.get(timeout=20)
        app.tell(gone)
        link.sendall(REQUEST + b"1")
        app.tell()
        assert reply(link) == (200, b"1")


def test_told_after_the_server_ended_nothing_happens() -> None:
    app = Waiting(seconds=0.1)
    with connected(app) as link:
        link.sendall(REQUEST + b"1")
        assert reply(link) == (200, b"1")
    app.tell()


def test_a_stop_waits_for_replies_that_come_later() -> None:
    app = Waiting()
    server = HttpServer(in_a_thread, quick=QuickPath("POST", "/quick", app.answer))
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as link:
        link.sendall(REQUEST + b"1")
        pending = app.pending.get(timeout=20)
        stopping = threading.Thread(target=server.close)
        stopping.start()
        time.sleep(0.2)
        app.tell(pending)
        found = link.makefile("rb").read()
        stopping.join()
    assert found.startswith(b"HTTP/1.1 200 OK")
    assert b"Connection: close" in found
    assert found.endswith(b"\r\n\r\n1")


def fail(*_: object) -> Reply:
    raise RuntimeError("the app failed")


@pytest.mark.parametrize("at_once", [True, False])
def test_an_app_that_fails_is_500_and_the_server_goes_on(
    at_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def later(request: QuickRequest, begin: Later) -> None:
        begin(request.received_at + 0.1, fail)

    with connected(QuickPath("POST", "/quick", fail if at_once else later)) as link:
        link.sendall(REQUEST + b"1")
        assert reply(link)[0] == 500
        with socket.create_connection(link.getpeername(), timeout=20) as other:
            other.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert reply(other) == (200, b"thread")
    assert "the app failed" in caplog.text


@pytest.mark.parametrize(
    ("version", "lines", "kept"),
    [
        ("1.1", [], True),
        ("1.1", ["Connection: close"], False),
        ("1.0", [], False),
        ("1.0", ["Connection: keep-alive"], True),
    ],
)
def test_a_connection_is_kept_or_closed_as_the_client_asks(
    receiver: Running, version: str, lines: list[str], kept: bool
) -> None:
    content = raw(body(), *lines).replace(b"HTTP/1.1", f"HTTP/{version}".encode(), 1)
    with receiver.connect() as link:
        link.sendall(content)
        assert reply(link)[0] == 200
        if kept:
            link.sendall(content)
            assert reply(link)[0] == 200
        else:
            assert link.recv(1) == b""
    assert receiver.webhooks("deliveries") == [(2 if kept else 1,)]


def test_a_client_that_asks_before_it_sends_its_body_is_told_to(receiver: Running) -> None:
    content = body()
    head, _, _ = raw(content, "Expect: 100-continue").partition(b"\r\n\r\n")
    with receiver.connect() as link:
        link.sendall(head + b"\r\n\r\n")
        assert link.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        link.sendall(content)
        assert reply(link)[0] == 200
    assert receiver.webhooks("body") == [(content,)]


def test_a_body_in_chunks_is_stored_whole(receiver: Running) -> None:
    content = body()
    pieces = (content[start : start + 50] for start in range(0, len(content), 50))
    answer = httpx.post(
        f"{receiver.server.url}/webhooks",
        content=pieces,
        headers=headers(content),
        trust_env=False,
    )
    assert answer.status_code == 200
    assert receiver.webhooks("body") == [(content,)]


def test_before_it_waits_the_server_says_so_and_what_was_put_off_can_be_finished_then() -> None:
    app = Waiting()
    told: list[int] = []

    def finish_all() -> None:
        count = app.pending.qsize()
        if count:
            told.append(count)
            for _ in range(count):
                app.tell()

    path = QuickPath("POST", "/quick", app.answer, finish_all)
    with HttpServer(in_a_thread, threads=1, quick=path) as server, ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        links = [stack.enter_context(socket.create_connection(address, 20)) for _ in range(8)]
        for _ in range(3):
            for link in links:
                link.sendall(REQUEST + b"x")
            assert [reply(link) for link in links] == [(200, b"x")] * 8
    assert sum(told) == 24
