"""Answers of HTTP/1.1: what is read off plainly means what h11 makes of the same bytes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import h11
import httpcore
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from provider import MakeClient, Peer, Provider, balances, entry, head, raw, reply, token, wallet

from nftsync.errors import NoConnection, SettingsError
from nftsync.provider import Tally
from nftsync.provider.http1 import (
    Response,
    _AnyResponse,
    _PlainResponse,
    begin_response,
    header_lines,
    request_bytes,
)

GOOD = balances(entry(token(1)))


class Pieces(httpcore.NetworkStream):
    """Bytes that come in pieces, and then the end of the connection."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.left = [piece for piece in pieces if piece]

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        if not self.left:
            return b""
        piece = self.left.pop(0)
        if len(piece) > max_bytes:
            self.left.insert(0, piece[max_bytes:])
        return piece[:max_bytes]


def whole(response: Response, stream: Pieces) -> tuple[Any, ...]:
    body = b"".join(response.body())
    # What was not read answers nothing; it shows before the connection is used again.
    reusable = response.reusable and not stream.left
    return response.status, response.headers, body, reusable


def by_h11(pieces: list[bytes]) -> tuple[Any, ...] | None:
    stream = Pieces(pieces)
    try:
        return whole(_AnyResponse(stream, "GET", stream.read(65536)), stream)
    except h11.RemoteProtocolError:
        return None


def by_us(pieces: list[bytes]) -> tuple[Any, ...] | None:
    stream = Pieces(pieces)
    try:
        return whole(begin_response(stream, "GET"), stream)
    except h11.RemoteProtocolError:
        return None


NAMES = st.sampled_from(
    ["Content-Length", "content-length", "Connection", "Transfer-Encoding", "ETag", "X-A", "x-a"]
)
VALUES = st.sampled_from(
    [
        *("0", "5", "05", "+5", "5, 5", "", " 5 ", "\t5", "close", "keep-alive", "Keep-Alive"),
        *("chunked", '"a"', "a\xa0", "\x85b", "a b", "a\x0bb", "a\x00b", "\xd9\xa1"),
    ]
)
STATUSES = st.sampled_from([200, 200, 200, 100, 101, 199, 204, 304, 404, 503, 600, 20])


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(st.tuples(NAMES, VALUES), max_size=4))
    if draw(st.booleans()):
        lines.append(("Content-Length", "5"))
    version = draw(st.sampled_from(["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0"]))
    reason = draw(st.sampled_from([" OK", "", " ", " \xe4\t", " a\x01"]))
    text = f"{version} {draw(STATUSES)}{reason}\r\n"
    text += "".join(f"{name}:{value}\r\n" for name, value in lines) + "\r\n"
    body = draw(st.sampled_from([b"", b"12345", b"1234", b"1234567", b"5\r\n12345\r\n0\r\n\r\n"]))
    return text.encode("latin-1") + body


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = draw(answers())
    at = draw(st.integers(0, len(data)))
    damage = draw(st.sampled_from([b"\n", b"\r", b" ", b"\t", b":", b"\x00", b"x", b"\r\n", b""]))
    return data[:at] + damage + data[at + draw(st.integers(0, 2)) :]


@settings(max_examples=600)
@given(answers() | damaged(), st.lists(st.integers(0, 120), max_size=3))
@example(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", [])
@example(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n1234567", [])
@example(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 4\r\n\r\n12345", [])
def test_an_answer_is_what_h11_makes_of_it(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[a:b] for a, b in pairwise(places)]
    assert by_us(pieces) == by_h11(pieces)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n12345",
        b"HTTP/1.1 304 Not Modified\r\n\r\n",
    ],
)
def test_the_usual_answer_goes_without_h11(data: bytes) -> None:
    response = begin_response(Pieces([data]), "GET")
    assert isinstance(response, _PlainResponse)
    assert response.status in {200, 304}


LENGTH = f"content-length: {len(GOOD)}"
CLOSINGS = {
    "it says so": head(LENGTH, "connection: close") + GOOD,
    "bytes follow that nobody asked for": head(LENGTH) + GOOD + head(LENGTH) + GOOD,
}


@pytest.mark.parametrize("why", CLOSINGS)
def test_a_connection_is_not_used_again_where(
    provider: Provider, make_client: MakeClient, why: str
) -> None:
    provider.always(raw(CLOSINGS[why], then="keep"), reply(GOOD))
    client, tally = make_client(), Tally()
    for _ in range(2):
        assert client.balances(wallet(1), tally).entries
    assert (tally.requests, tally.retries, provider.connections) == (2, 0, 2)


def test_an_unchanged_answer_without_a_length_keeps_the_connection(
    provider: Provider, make_client: MakeClient
) -> None:
    def answer(peer: Peer) -> bool:
        known = peer.seen.headers.get("if-none-match") == '"v1"'
        whole = head(status=304) if known else head(f"content-length: {len(GOOD)}", 'etag: "v1"')
        return raw(whole if known else whole + GOOD, then="keep")(peer)

    provider.always(answer)
    client = make_client()
    found = client.balances(wallet(1), Tally())
    for _ in range(2):
        again = client.balances(wallet(1), Tally(), etag=found.etag, known_digest=found.digest)
        assert (again.entries, again.digest) == (None, found.digest)
    assert provider.connections == 1


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "127.0.0.1", "http:///v1", ""])
def test_an_address_that_is_not_of_http_is_refused(make_client: MakeClient, url: str) -> None:
    with pytest.raises(SettingsError, match=r"^base_url \(NFTSYNC_BASE_URL\) cannot be used: "):
        make_client(url=url)


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\n", "\x00", "ä", "a\x7f", "a "])
def test_what_cannot_be_a_header_is_neither_sent_nor_quoted(value: str) -> None:
    with pytest.raises(NoConnection, match="cannot be sent as HTTP$") as caught:
        header_lines({"if-none-match": value})
    assert value not in str(caught.value)


@pytest.mark.parametrize("target", [b"/a b", b"/a\r\nx: y", b"a", b"", b"/\xff"])
def test_what_cannot_be_a_path_is_not_sent(target: bytes) -> None:
    with pytest.raises(NoConnection, match="cannot be sent as HTTP$"):
        request_bytes("GET", target, b"")


def test_a_request_is_what_h11_reads_in_it() -> None:
    lines = header_lines({"host": "x", "accept": "", "x-a": "a b"})
    server = h11.Connection(h11.SERVER)
    server.receive_data(request_bytes("PATCH", b"/a?b=c", lines, b"{}"))
    request = server.next_event()
    assert isinstance(request, h11.Request)
    assert (request.method, request.target) == (b"PATCH", b"/a?b=c")
    assert list(request.headers) == [
        (b"host", b"x"),
        (b"accept", b""),
        (b"x-a", b"a b"),
        (b"content-length", b"2"),
    ]
    data = server.next_event()
    assert isinstance(data, h11.Data)
    assert bytes(data.data) == b"{}"
    assert isinstance(server.next_event(), h11.EndOfMessage)
