"""The faults of a provider, and the error of a client for each."""

import gzip
from http.client import responses
from typing import NamedTuple

from nftsync.errors import AccessRefused, NoConnection, ReadError, UnusableResponse
from tests.kit.provider import Sender, balances, endless, entry, head, path_of, raw, reply, token

GOOD = balances(entry(token(1)))
PACKED = gzip.compress(GOOD)


class Fault(NamedTuple):
    """A faulty answer, and its error.

    Attributes:
        message: a pattern of its text.
        passing: whether the client tries again.
        down: whether the provider counts as down.
    """

    answer: Sender
    kind: type[ReadError]
    message: str
    passing: bool = False
    down: bool = False
    status: int | None = None


def chunked(body: bytes, *, last: bytes = b"0\r\n\r\n", **headers: str) -> bytes:
    """Return a response whose body is one chunk."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return head("transfer-encoding: chunked", *lines) + b"%x\r\n%s\r\n%s" % (len(body), body, last)


def _broken(answer: Sender) -> Fault:
    return Fault(answer, NoConnection, "the connection broke: .*", passing=True, down=True)


def _cut(body: bytes, **headers: str) -> Fault:
    message = "the (compressed )?body is .*"
    return Fault(reply(body, **headers), UnusableResponse, message, passing=True)


def _passing(status: int) -> Fault:
    message = f"the provider answered {status} {responses.get(status, '')}".strip()
    return Fault(reply(b"busy", status), ReadError, message, True, True, status)


def _unusable(message: str, body: bytes, status: int = 200, **headers: str) -> Fault:
    answer, error_status = reply(body, status, **headers), None if status == 200 else status
    return Fault(answer, UnusableResponse, f".*{message}.*", status=error_status)


def _refused(status: int, after: str = ".*", **headers: str) -> Fault:
    down = status not in {400, 404, 410, 413, 422}
    kind = AccessRefused if status in {401, 403} else ReadError
    message = f"the provider answered {status}{after}"
    return Fault(reply(b"no", status, **headers), kind, message, down=down, status=status)


_TOO_LONG = " .* and asks to wait 86400 s, longer than 300 s"
FAULTS: dict[str, Fault] = {
    "closed": _broken(raw()),
    "reset": _broken(raw(then="reset")),
    "too short": _broken(reply(GOOD, length=len(GOOD) + 1)),
    "reset in the body": _broken(
        raw(head(f"content-length: {len(GOOD)}") + GOOD[:9], then="reset")
    ),
    "no last chunk": _broken(raw(chunked(GOOD, last=b""))),
    "endless headers": _broken(endless(b"x: y\r\n" * 1_000, b"HTTP/1.1 200 OK\r\n")),
    "another protocol": _broken(raw(b"SSH-2.0-x\r\n")),
    "empty": _cut(b""),
    "cut at the end": _cut(GOOD[:-1]),
    "cut in the middle": _cut(GOOD[: len(GOOD) // 2]),
    "cut in a character": _cut('{"x": "é'.encode()[:-1]),
    "cut gzip": _cut(PACKED[:-12], content_encoding="gzip"),
    **{str(status): _passing(status) for status in (408, 421, 425, 429, 500, 501, 503, 505, 599)},
    "HTML": _unusable("it looks like HTML", b"<html>Welcome to the hotel's Wi-Fi"),
    "no list": _unusable("nftTokenBalances", b"{}"),
    "another shape": _unusable("nftTokenBalances: expected array", b'{"nftTokenBalances": {}}'),
    "two amounts of a token": _unusable(
        f"token {token(1)} is listed twice, with the amounts '1' and '2'",
        balances(entry(token(1), "1"), entry(token(1), "2")),
    ),
    "not gzip": _unusable("cannot be decompressed", GOOD, content_encoding="gzip"),
    "damaged gzip": _unusable(
        "cannot be decompressed",
        PACKED[:20] + b"\xff" * 30 + PACKED[50:],
        content_encoding="gzip",
    ),
    "brotli": _unusable("content encoding 'br'", GOOD, content_encoding="br"),
    "gzip twice": _unusable(
        "encoding 'gzip, gzip'", gzip.compress(PACKED), content_encoding="gzip, gzip"
    ),
    "206": _unusable("206: only a part of the object", GOOD, 206, content_range="items 0-0/2"),
    **{
        f"{status} to {place}": _unusable(
            f"{status}, a redirect, which nftsync does not follow", GOOD, status, location=place
        )
        for status in (301, 302, 307)
        for place in (path_of(1), "/there")
    },
    **{str(status): _refused(status, retry_after="1") for status in (400, 401, 404, 410, 413, 422)},
    "403 with requests left": _refused(403, x_ratelimit_remaining="9", x_ratelimit_reset="1"),
    "403 with a reset": _refused(403, ratelimit_reset="1"),
    "403 without a time": _refused(403, retry_after="never"),
    "429 for a day": _refused(429, _TOO_LONG, retry_after="86400"),
    "503 for a day": _refused(503, _TOO_LONG, retry_after="86400"),
}
FINAL = {name: fault for name, fault in FAULTS.items() if not fault.passing}
