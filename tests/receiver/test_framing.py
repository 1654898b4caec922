"""A request whose length or end can be read in two ways is refused, or at least the last."""

import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pytest

from tests.kit.serve_process import query
from tests.receiver.conftest import body, raw
from tests.receiver.framing import Outcome, requests

NEXT = b"GET /next HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def signed() -> Iterator[tuple[Outcome, bytes]]:
    content = body()
    signature = raw(content).split(b"\r\n")[2].decode()
    return requests("receiver", "/webhooks", signature, content.decode())


def statuses(port: int, parts: Iterable[bytes]) -> list[int]:
    """The statuses of the replies until the connection ends."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(ConnectionError):  # the server stops reading a refused request
            for part in parts:
                link.sendall(part)
        with suppress(ConnectionError):
            while data := link.recv(65_536):
                got += data
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] ([0-9]{3})", got)]


def pieces(content: bytes, size: int) -> Iterator[bytes]:
    return (content[start : start + size] for start in range(0, len(content), size))


def assert_outcome(outcome: Outcome, found: list[int], sent: bytes) -> None:
    if outcome == "good":
        assert found == [200, 404], sent
    elif outcome == "last":
        assert found in ([200], [400]), sent
    else:
        assert found in ([400], []), sent  # none: the reply was lost with the connection


@pytest.mark.parametrize("size", [100_000, 3])
def test_an_ambiguous_request_is_the_last_of_its_connection(receiver, size):
    for outcome, content in signed():
        query(receiver.database, "DELETE FROM webhooks")
        found = statuses(receiver.server.port, pieces(content + NEXT, size))
        assert_outcome(outcome, found, content)
        if size > 3 and outcome == "refused":
            assert found == [400], content
        assert len(receiver.webhooks()) == found.count(200)


def test_requests_before_an_ambiguous_one_are_answered(receiver):
    """Also if their bodies have empty lines, or lines that look like headers."""
    before = raw(body().replace(b",", b",\r\n\r\n")) + raw(body().replace(b",", b",\n"))
    for outcome, content in signed():
        found = statuses(receiver.server.port, [before + content + NEXT])
        assert found[:2] == [200, 200]
        assert_outcome(outcome, found[2:], content)
    assert receiver.post(body() + b"\r\nTransfer-Encoding: chunked\r\n\r\n") == 200
