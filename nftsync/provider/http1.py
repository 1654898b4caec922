"""HTTP/1.1 on one connection: a request as bytes, and its answer read piece by piece.

A plain answer (its head comes whole with the first bytes, and one Content-Length says how long it
is) is read off here. All others go through h11, which knows the whole of HTTP/1.1, and takes longer
for an answer than checking, decoding and handing on a wallet's list take together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import h11

from nftsync.errors import NoConnection

if TYPE_CHECKING:
    import httpcore

__all__ = ["Response", "begin_response", "header_lines", "request_bytes"]

_READ_BYTES = 64 * 1024
#: The longest head of an answer that is waited for.
_LONGEST_HEAD = 100 * 1024
_NAME = r"[-!#$%&'*+.^_`|~0-9A-Za-z]++"
_PLAIN_HEAD = re.compile(
    rf"HTTP/1\.1 ([2-5][0-9][0-9])(?: [\t -~\x80-\xff]*+)?+\r\n"
    rf"((?:{_NAME}:[\t -~\x80-\xff]*+\r\n)*+)\r\n".encode("latin-1")
)
_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
_TARGET = re.compile(rb"/[!-~]*")
_HEADER = re.compile(rf"{_NAME}: ?[!-~]?(?:[\t -~]*[!-~])?")
_UNSENDABLE = "the connection broke: the request cannot be sent as HTTP"
_NO_BODY = frozenset({204, 304})


def header_lines(headers: Mapping[str, str]) -> bytes:
    """Write headers as they are sent.

    Raises:
        NoConnection: one cannot be sent; the text does not quote it.
    """
    lines = [f"{name}: {value}" for name, value in headers.items()]
    if not all(map(_HEADER.fullmatch, lines)):
        raise NoConnection(_UNSENDABLE)
    return "".join(f"{line}\r\n" for line in lines).encode("ascii")


def request_bytes(method: str, target: bytes, lines: bytes, body: bytes | None = None) -> bytes:
    """Write a request.

    Args:
        method: the HTTP method.
        target: path and query, already encoded.
        lines: from `header_lines`, the `Host` among them.
        body: what to send.

    Raises:
        NoConnection: the target cannot be sent.
    """
    if _TARGET.fullmatch(target) is None:
        raise NoConnection(_UNSENDABLE)
    if body is None:
        return b"%s %s HTTP/1.1\r\n%s\r\n" % (method.encode("ascii"), target, lines)
    return b"%s %s HTTP/1.1\r\n%scontent-length: %d\r\n\r\n%s" % (
        *(method.encode("ascii"), target, lines),
        *(len(body), body),
    )


class Response(Protocol):
    """An answer whose head has been read.

    Attributes:
        status: the HTTP status.
        headers: by their names in lower case; the values of a repeated one are joined by commas.
        reusable: the body has been read to its end, and the connection may carry another request.
    """

    status: int
    headers: dict[str, str]
    reusable: bool

    def body(self) -> Iterator[bytes]:
        """The body, as it comes in.

        Raises:
            h11.RemoteProtocolError: it is cut short, or is no HTTP.
        """


def begin_response(stream: httpcore.NetworkStream, method: str) -> Response:
    """Read the head of the answer to a request.

    Args:
        stream: the connection.
        method: of the request.

    Raises:
        h11.RemoteProtocolError: what came is no answer.
    """
    first = stream.read(_READ_BYTES)
    plain = _PLAIN_HEAD.match(first)
    if plain is not None:
        lines = plain[2].decode("latin-1").split("\r\n")[:-1]
        headers = _joined(line.split(":", 1) for line in lines)
        status = int(plain[1])
        length = _plain_length(status, headers)
        if length is not None:
            return _PlainResponse(stream, status, headers, first[plain.end() :], length)
    return _AnyResponse(stream, method, first)


def _joined(headers: Iterable[Iterable[str]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.lower(), raw_value.strip(" \t")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _plain_length(status: int, headers: Mapping[str, str]) -> int | None:
    """How long the body is, where nothing else than its Content-Length says so."""
    if "transfer-encoding" in headers:
        return None
    if headers.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    has_no_body = status in _NO_BODY
    length = headers.get("content-length", "0" if has_no_body else "")
    if _LENGTH.fullmatch(length) is None:
        return None
    return 0 if has_no_body else int(length)


class _PlainResponse:
    """An answer that a Content-Length ends."""

    __slots__ = ("_first", "_length", "_stream", "headers", "reusable", "status")

    def __init__(
        self,
        stream: httpcore.NetworkStream,
        status: int,
        headers: dict[str, str],
        first: bytes,
        length: int,
    ) -> None:
        self.status = status
        self.headers = headers
        self.reusable = False
        self._stream = stream
        self._first = first
        self._length = length

    def body(self) -> Iterator[bytes]:
        left = self._length - len(self._first)
        if self._first:
            yield self._first[: self._length] if left < 0 else self._first
        while left > 0:
            # Not just what is left: the rest of a TLS record would wait where no socket shows it,
            # and be taken for the next answer.
            data = self._stream.read(_READ_BYTES)
            if not data:
                raise h11.RemoteProtocolError(
                    "peer closed connection without sending complete message body "
                    f"(received {self._length - left} bytes, expected {self._length})"
                )
            yield data[:left] if len(data) > left else data
            left -= len(data)
        # What came beyond the end answers nothing that we asked.
        self.reusable = left == 0


class _AnyResponse:
    """Any answer, read by h11."""

    def __init__(self, stream: httpcore.NetworkStream, method: str, first: bytes) -> None:
        self._stream = stream
        self._peer = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_HEAD)
        # The request has been sent; h11 only needs to know what kind of answer may come.
        self._peer.send(h11.Request(method=method, target="/", headers=[("host", "-")]))
        self._peer.send(h11.EndOfMessage())
        self._feed(first)
        while not isinstance(event := self._next_event(), h11.Response):
            if not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("what came is no answer")
        self.status = event.status_code
        self.headers = _joined(
            (name.decode("ascii"), value.decode("latin-1")) for name, value in event.headers
        )
        self.reusable = False

    def body(self) -> Iterator[bytes]:
        while isinstance(event := self._next_event(), h11.Data):
            yield bytes(event.data)
        peer = self._peer
        over = peer.our_state is h11.DONE and peer.their_state is h11.DONE
        self.reusable = over and not peer.trailing_data[0]

    def _next_event(self) -> object:
        while (event := self._peer.next_event()) is h11.NEED_DATA:
            self._feed(self._stream.read(_READ_BYTES))
        return event

    def _feed(self, data: bytes) -> None:
        if not data and self._peer.their_state is h11.SEND_RESPONSE:
            raise h11.RemoteProtocolError("Server disconnected without sending a response.")
        self._peer.receive_data(data)
