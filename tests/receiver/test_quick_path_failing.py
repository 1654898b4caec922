"""An app that puts a reply off and then fails: one reply, and the server lives on."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from http.client import HTTPResponse
from typing import Any

from nftsync.wsgi import HttpServer, Later, QuickPath, QuickRequest, Reply

LATE_SECONDS = 0.2


def in_a_thread(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Length", "6")])
    return [b"thread"]


def put_off_and_fail(request: QuickRequest, later: Later) -> Reply | None:
    later(request.received_at + LATE_SECONDS, lambda: Reply("200 OK", (), b"late"))
    raise RuntimeError("the app failed")


def asked(link: socket.socket, request: bytes) -> tuple[int, bytes]:
    link.sendall(request)
    answer = HTTPResponse(link)
    answer.begin()
    return answer.status, answer.read()


def test_an_app_that_fails_after_it_put_a_reply_off_is_answered_once() -> None:
    quick = QuickPath("POST", "/quick", put_off_and_fail)
    with HttpServer(in_a_thread, quick=quick) as server:
        address = ("127.0.0.1", server.port)
        with socket.create_connection(address, timeout=20) as link:
            status, _ = asked(link, b"POST /quick HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            assert status == 500
            time.sleep(3 * LATE_SECONDS)
        with socket.create_connection(address, timeout=20) as link:
            assert asked(link, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") == (200, b"thread")
